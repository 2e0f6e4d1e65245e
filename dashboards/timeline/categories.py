"""Interval categories: a fixed list of numbered names that determine the colours.

Kernels are classified by name with `tracekit.diff.names`, other intervals by kind, copies by direction. Idle
intervals have the cause found by the `idle_gaps` analysis; without one (shorter than 1 µs, or not computed
yet) the category is `idle`.
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
"""Causes of idle time in `idle_gaps`."""
IDLE: Final = "idle"
CATEGORIES: Final = (
    *("gemm", "conv", "attention", "normalization", "elementwise", "reduction"),
    *("copy H2D", "copy D2H", "copy D2D/other", "memset", "communication", "other kernel", "graph"),
    *("op", "runtime call", "annotation", "python", "overhead", "sync"),
    *(f"{IDLE}: {cause}" for cause in CAUSES),
    IDLE,
)
"""Names by number. Append new ones at the end, since clients use the numbers."""
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
"""Kernels that copy or fill are elementwise; the copy categories are for memcpy intervals."""
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
    """Return the category of a kernel by its name.

    Example:
        >>> [CATEGORIES[of_kernel(name)] for name in ("ampere_sgemm_128x64_tn", "softmax_warp", "k")]
        ['gemm', 'reduction', 'other kernel']
    """
    return NUMBER[_OF_ROLE.get(role(name), "other kernel")]


def of_cause(cause: str) -> int:
    """Return the category of an idle interval by its cause.

    Example:
        >>> CATEGORIES[of_cause("sync")], CATEGORIES[of_cause("")]
        ('idle: sync', 'idle')
    """
    return NUMBER.get(f"{IDLE}: {cause}", NUMBER[IDLE])


def of_kinds(kinds: Sequence[str]) -> Codes:
    """Return the category of each kind; for kernels and copies a placeholder."""
    return np.array([NUMBER[_OF_KIND.get(kind, "sync")] for kind in kinds], np.uint8)


def of_copies(kinds: Sequence[str]) -> Codes:
    """Return the category of each copy kind, followed by that of copies of unknown kind."""
    return np.array([NUMBER[_OF_COPY.get(kind, _OTHER_COPY)] for kind in (*kinds, "")], np.uint8)
