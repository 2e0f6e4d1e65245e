"""Causes of idle time of a device, and the label of each in findings, charts and the timeline.

Example:
    >>> IdleCause.DATALOAD.label
    'data loading'
"""

from __future__ import annotations

from enum import StrEnum


class IdleCause(StrEnum):
    """Cause of an idle interval, as the analysis `idle_gaps` decides it."""

    LAUNCH_BOUND = "launch_bound"
    SYNC = "sync"
    DATALOAD = "dataload"
    KERNEL_TO_KERNEL = "kernel_to_kernel"
    STREAM_DEPENDENCY = "stream_dependency"
    SUBMISSION = "submission"
    PROFILER = "profiler"
    UNKNOWN = "unknown"
    HOST_WORK = "host_work"
    SLOW_CALL = "slow_call"
    FIRST_CALL = "first_call"
    STALL = "stall"

    @property
    def label(self) -> str:
        """The cause in words."""
        return _LABELS[self]


_LABELS = {
    IdleCause.LAUNCH_BOUND: "launch-bound",
    IdleCause.HOST_WORK: "CPU busy outside launches",
    IdleCause.SLOW_CALL: "slow runtime calls",
    IdleCause.FIRST_CALL: "first calls of ops",
    IdleCause.STALL: "stalls of the CPU",
    IdleCause.SYNC: "synchronization",
    IdleCause.DATALOAD: "data loading",
    IdleCause.KERNEL_TO_KERNEL: "between kernels",
    IdleCause.STREAM_DEPENDENCY: "stream dependency",
    IdleCause.SUBMISSION: "late submission",
    IdleCause.PROFILER: "profiler overhead",
    IdleCause.UNKNOWN: "unknown cause",
}

HOST_LAUNCHES = (
    IdleCause.LAUNCH_BOUND,
    IdleCause.HOST_WORK,
    IdleCause.SLOW_CALL,
    IdleCause.FIRST_CALL,
    IdleCause.STALL,
)
"""The host launched late, for one of these reasons."""
QUEUED = (IdleCause.KERNEL_TO_KERNEL, IdleCause.STREAM_DEPENDENCY, IdleCause.SUBMISSION)
"""The work was queued on the device and did not start."""
CAUSES = tuple(map(str, IdleCause))
MANAGED = "(managed memory used by the CPU)"
"""Label of idle time that ends as the CPU touches managed memory, which moves its pages to the host."""
READS = r"^(?:f?getc|getchar|f?gets|getline|p?readv?(?:64)?|fread|scanf)$"
"""Calls of the operating system that read files or input."""


def label(cause: str) -> str:
    """Return the label of a cause, or its name if it is not one of these.

    Example:
        >>> label("sync"), label("another")
        ('synchronization', 'another')
    """
    return IdleCause(cause).label if cause in CAUSES else cause
