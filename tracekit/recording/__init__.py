"""Collect: run a workload or a program under a collector and put what it recorded into the store.

Collectors are plug-ins, reached through the registry only.
"""

from __future__ import annotations
