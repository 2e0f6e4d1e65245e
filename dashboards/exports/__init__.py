"""Exports of a page: CSV, a self-contained HTML report, a trace for Perfetto."""
