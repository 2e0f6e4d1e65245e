"""Dash dashboard over finished analysis results: one module per page, figures as pure functions."""
