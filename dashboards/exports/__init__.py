"""Exports of what a page shows: CSV, one HTML file, a trace for Perfetto."""
