"""Advice on step times: behind `steps`."""
