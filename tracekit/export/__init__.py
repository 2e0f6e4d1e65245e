"""Runs in formats of other tools, written as streams."""
