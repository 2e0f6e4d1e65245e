"""Compiled decoder of Kineto's events; see `docs/architecture.md`."""
