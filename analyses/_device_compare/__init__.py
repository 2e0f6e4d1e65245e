"""Gains of a device beside what peaks allow: behind `device_compare`."""
