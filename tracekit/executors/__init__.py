"""Executors of independent tasks: processes of this machine, or workers of a Dask cluster."""

from tracekit.executors.cluster import workers
from tracekit.executors.model import Outcome, Workers, keep, scratch

__all__ = ["Outcome", "Workers", "keep", "scratch", "workers"]
