"""Measures of ranks and matched collectives, for `ranks`."""
