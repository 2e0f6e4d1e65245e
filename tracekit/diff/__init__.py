"""Comparison of two runs, or of several runs per side: comparability, changes, and their causes.

model                result of a comparison
engine               compares runs: comparability, steps, items, matching, breakdowns, verdicts
compared_steps       the compared steps of each run
work_items           ops as a tree, and the work of each op path
naming               canonical names and roles of kernels and ops
matching             matching of the work items of two runs; groups and causes
breakdowns           amounts, groups, and the lines of both breakdowns
step_time_breakdown  parts of the compared steps (the wall ledger)
alignment            pairs of intervals of two runs
verdicts             metrics and verdicts
side_notes           warnings about the runs
noise                noise of stored runs
"""

from __future__ import annotations

from tracekit.diff.engine import Options, diff
from tracekit.diff.model import Diff

__all__ = ["Diff", "Options", "diff"]
