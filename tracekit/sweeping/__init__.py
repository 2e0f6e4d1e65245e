"""Sweeps: one workload over a grid of settings, each cell in a new process, resumable at any time.

`grid` reads what a person writes, `model` says what a cell and a record are, `folder` keeps them in the
store, `engine` measures what is missing, `search` doubles a batch to the best throughput, `table` sums up.
"""

from __future__ import annotations

from tracekit.sweeping.engine import Watcher, finish
from tracekit.sweeping.folder import Folder, find, listed
from tracekit.sweeping.model import Cell, Outcome, Plan, Record, Settings
from tracekit.sweeping.table import Row, rows

__all__ = [
    "Cell",
    "Folder",
    "Outcome",
    "Plan",
    "Record",
    "Row",
    "Settings",
    "Watcher",
    "find",
    "finish",
    "listed",
    "rows",
]
