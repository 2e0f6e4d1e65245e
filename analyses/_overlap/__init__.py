"""Exposed and overlapped time, for `overlap`."""
