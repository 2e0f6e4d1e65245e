"""Allocator events: behind `memory`."""
