"""Benchmarks of tracekit itself; each one says what it measures and how."""
