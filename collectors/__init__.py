"""Collectors: one module per tool that records a profile; they import tracekit, never the reverse."""
