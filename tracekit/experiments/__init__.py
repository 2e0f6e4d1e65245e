"""Experiments: many measured runs that answer one question."""
