"""Workers for tasks that do not need one another: processes of this machine, or those of a Dask cluster."""

from tracekit.executors.cluster import workers
from tracekit.executors.model import Outcome, Workers, scratch

__all__ = ["Outcome", "Workers", "scratch", "workers"]
