"""The tables of a suite's report, one module each."""
