"""Runs commands in processes of their own, in turns, and accounts for all they take."""

from benchmarks.runner.cost import Cost, Failure
from benchmarks.runner.measure import Limits, measure
from benchmarks.runner.rounds import Contender, Row, interleaved

__all__ = ["Contender", "Cost", "Failure", "Limits", "Row", "interleaved", "measure"]
