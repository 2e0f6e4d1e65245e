"""Benchmarks; they print ratios within one run, since absolute times differ between machines."""
