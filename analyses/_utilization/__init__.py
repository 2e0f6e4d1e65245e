"""Samples, tables and findings of `utilization`."""
