"""Analyses: one module each, a pure function from a run to tables and findings."""
