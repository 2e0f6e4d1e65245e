"""Measure the dashboard in Chromium."""
