"""Allocator events, for `memory`."""
