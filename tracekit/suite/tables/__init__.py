"""Tables of a suite's report, one module per table."""
