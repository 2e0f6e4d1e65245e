"""Benchmarks: each prints ratios measured within one run, since absolute times differ between machines."""
