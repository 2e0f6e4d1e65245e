"""Findings on step times, for `steps`."""
