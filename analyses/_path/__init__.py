"""Dependences of host and device intervals, for `critical_path`."""
