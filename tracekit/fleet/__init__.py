"""Workers for tasks that do not need one another: processes of this machine, or those of a Dask cluster."""

from tracekit.fleet.model import Outcome, Workers
from tracekit.fleet.opening import workers
from tracekit.fleet.scratch import scratch

__all__ = ["Outcome", "Workers", "scratch", "workers"]
