"""Comparison of two runs, or of several runs per side: comparability, changes, and their causes.

model      result of a comparison
engine     compares runs: comparability, spans, pieces, matching, ledgers, verdicts
spans      the compared steps of each run
pieces     ops as a tree, and the work of each op path
naming     canonical names and roles of kernels and ops
matching   matching of the pieces of two runs; the work ledger
ledgers    amounts, groups, and the lines of both ledgers
wall       the wall ledger
alignment  pairs of intervals of two runs
judge      metrics, verdicts and warnings
noise      noise of stored runs
"""

from __future__ import annotations

from tracekit.diff.engine import Options, diff
from tracekit.diff.model import Diff

__all__ = ["Diff", "Options", "diff"]
