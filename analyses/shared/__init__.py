"""Helpers shared by several analyses."""

from __future__ import annotations
