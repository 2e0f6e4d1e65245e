"""Checks of `integrity`."""
