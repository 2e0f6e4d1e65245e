"""Tables of a comparison for output to people."""

from __future__ import annotations

from tracekit.render.diff_causes import alone, causes, counts, groups
from tracekit.render.diff_ledgers import match, wall, work
from tracekit.render.diff_metrics import differences, metrics
from tracekit.render.diff_table import Table

__all__ = ["Table", "alone", "causes", "counts", "differences", "groups", "match", "metrics", "wall", "work"]
