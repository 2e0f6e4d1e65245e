"""Categories of intervals: the fixed, small list by which the timeline colours, one number each.

What a kernel does is said by `tracekit.diff.names`, the one classification by name; the kind of an interval
and the direction of a copy say the rest. An idle interval has the cause that the analysis `idle_gaps` found;
where that lists none (shorter than 1 µs, or not yet worked out) it is just idle.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import numpy as np
import numpy.typing as npt

from tracekit.diff.names import Role, role
from tracekit.schema import CopyKind, DeviceKind, HostKind

if TYPE_CHECKING:
    from collections.abc import Sequence

    Codes = npt.NDArray[np.uint8]

CAUSES: Final = (
    "launch_bound",
    "sync",
    "dataload",
    "kernel_to_kernel",
    "stream_dependency",
    "profiler",
    "unknown",
)
"""Why a device was idle, as `idle_gaps` says it."""
IDLE: Final = "idle"
CATEGORIES: Final = (
    *("gemm", "conv", "attention", "normalization", "elementwise", "reduction"),
    *("copy H2D", "copy D2H", "copy D2D/other", "memset", "communication", "other kernel", "graph"),
    *("op", "runtime call", "annotation", "python", "overhead", "sync"),
    *(f"{IDLE}: {cause}" for cause in CAUSES),
    IDLE,
)
"""Names by number. New ones go to the end: numbers are what clients colour by."""
NUMBER: Final = {name: number for number, name in enumerate(CATEGORIES)}
_OTHER_COPY = "copy D2D/other"
_OF_ROLE = {
    Role.GEMM: "gemm",
    Role.CONV: "conv",
    Role.ATTENTION: "attention",
    Role.NORM: "normalization",
    Role.ELEMENTWISE: "elementwise",
    Role.FILL: "elementwise",
    Role.COPY: "elementwise",
    Role.OPTIMIZER: "elementwise",
    Role.REDUCTION: "reduction",
    Role.SOFTMAX: "reduction",
    Role.POOL: "reduction",
    Role.COLLECTIVE: "communication",
}
"""A kernel that copies or fills is a kernel all the same: copies are what the device's copy engines do."""
_OF_KIND: dict[str, str] = {
    DeviceKind.MEMSET: "memset",
    DeviceKind.GRAPH: "graph",
    DeviceKind.SYNC: "sync",
    DeviceKind.IDLE: IDLE,
    HostKind.OP: "op",
    HostKind.RUNTIME: "runtime call",
    HostKind.ANNOTATION: "annotation",
    HostKind.PYTHON: "python",
    HostKind.OVERHEAD: "overhead",
}
_OF_COPY: dict[str, str] = {CopyKind.H2D: "copy H2D", CopyKind.D2H: "copy D2H"}


def of_kernel(name: str) -> int:
    """The category of a kernel by its name.

    Example:
        >>> [CATEGORIES[of_kernel(name)] for name in ("ampere_sgemm_128x64_tn", "softmax_warp", "k")]
        ['gemm', 'reduction', 'other kernel']
    """
    return NUMBER[_OF_ROLE.get(role(name), "other kernel")]


def of_cause(cause: str) -> int:
    """The category of an idle interval by its cause.

    Example:
        >>> CATEGORIES[of_cause("sync")], CATEGORIES[of_cause("")]
        ('idle: sync', 'idle')
    """
    return NUMBER.get(f"{IDLE}: {cause}", NUMBER[IDLE])


def of_kinds(kinds: Sequence[str]) -> Codes:
    """The category of each kind that decides it alone; kernels and copies have the other ones' for now."""
    return np.array([NUMBER[_OF_KIND.get(kind, "sync")] for kind in kinds], np.uint8)


def of_copies(kinds: Sequence[str]) -> Codes:
    """The category of each kind of copy, and at the end that of a copy of which it is not known."""
    return np.array([NUMBER[_OF_COPY.get(kind, _OTHER_COPY)] for kind in (*kinds, "")], np.uint8)
