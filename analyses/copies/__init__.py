"""Copies between host and device, for `h2d_copies`, `d2h_copies` and `pinned_memory`."""

from __future__ import annotations
