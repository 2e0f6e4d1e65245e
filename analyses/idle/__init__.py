"""Causes of device idle time and cost of host waits, for `idle_gaps` and `sync_points`."""

from __future__ import annotations
