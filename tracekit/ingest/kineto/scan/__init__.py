"""Compiled decoder of Kineto's events; see `docs/scanner.md`."""
