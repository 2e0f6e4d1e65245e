"""Helpers shared by several analyses."""
