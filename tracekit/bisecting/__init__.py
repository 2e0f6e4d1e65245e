"""Which commit, or version of a package, made a program slower: measured between two ends, few at a time.

model      what is searched, and what was found
ends       the commits of a range, the versions of a list
signature  counts of a stored run, which repeat exactly
cache      what was measured before, by commit, command and machine
lab        one measurement, at a commit or with a version
turns      the sides of a jump, measured again in turn
engine     the search itself
"""

from __future__ import annotations

from tracekit.bisecting.engine import bisect
from tracekit.bisecting.model import Bisection, Search

__all__ = ["Bisection", "Search", "bisect"]
