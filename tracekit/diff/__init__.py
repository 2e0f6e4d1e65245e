"""Comparing runs: whether they can be compared, what changed, and what the change is made of.

sides          the runs a person means
comparability  fields that must be equal, and shapes
spans          the same number of steps on both sides
optree         paths and subtree hashes of ops
pieces         what ran, summed into units that are alike
matching       the pieces of one run with those of the other, rung by rung
work           the work ledger: added, removed, count and rate, without residual
wall, idle     the wall ledger: what the steps were filled with
rollup         lines by op, module or kernel
alone          names of work that only one side has
metrics, judge one number per run, and verdicts
repeats        whether all runs of one side run the same number of everything
doubts         what to keep in mind: dirty runs, several commits or devices, what was left out
engine         all of it in order
"""

from __future__ import annotations

from tracekit.diff.engine import Options, diff
from tracekit.diff.model import Diff

__all__ = ["Diff", "Options", "diff"]
