"""A gate over stored runs: the runs of a commit against those of its baseline.

model          what a gate says
heads          the runs in question
baseline       the runs they are compared with
configuration  runs that measure the same thing, and in what others differ
judge          one number per run, compared by the statistics
engine         all of it in order
"""

from __future__ import annotations

from tracekit.checking.engine import check
from tracekit.checking.model import Gate, Options

__all__ = ["Gate", "Options", "check"]
