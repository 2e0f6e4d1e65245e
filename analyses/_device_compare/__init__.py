"""Gains of a device against the ratio of peaks, for `device_compare`."""
