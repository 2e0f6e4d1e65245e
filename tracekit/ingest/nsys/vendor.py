"""What the vendor's numbers mean; exports before 2022.4 do not say, so it is said here."""

from __future__ import annotations

import re
from typing import Final

from tracekit.schema import CopyKind, Memory

KERNEL: Final = "CUPTI_ACTIVITY_KIND_KERNEL"
MEMCPY: Final = "CUPTI_ACTIVITY_KIND_MEMCPY"
MEMSET: Final = "CUPTI_ACTIVITY_KIND_MEMSET"
GRAPH: Final = "CUPTI_ACTIVITY_KIND_GRAPH_TRACE"
SYNC: Final = "CUPTI_ACTIVITY_KIND_SYNCHRONIZATION"
RUNTIME: Final = "CUPTI_ACTIVITY_KIND_RUNTIME"
OVERHEAD: Final = "CUPTI_ACTIVITY_KIND_OVERHEAD"
PROFILER: Final = "PROFILER_OVERHEAD"
OSRT: Final = "OSRT_API"
NVTX: Final = "NVTX_EVENTS"
MEMORY: Final = "CUDA_GPU_MEMORY_USAGE_EVENTS"
METRICS: Final = "GPU_METRICS"
STRINGS: Final = "StringIds"
TABLES: Final = frozenset(
    {KERNEL, MEMCPY, MEMSET, GRAPH, SYNC, RUNTIME, OVERHEAD, PROFILER, OSRT, NVTX, MEMORY, METRICS}
)
"""Tables of events; a file with one of them, or with `MARKS`, is an export."""
MARKS: Final = frozenset({STRINGS, "TARGET_INFO_SESSION_START_TIME", "ANALYSIS_DETAILS"})
SUFFIX: Final = ".parquet"
"""What the name of a table's file ends in, in a folder of them."""

_UNKNOWN, _PAGEABLE, _PINNED, _DEVICE = "Unknown", "Pageable", "Pinned", "Device"
_ARRAY, _MANAGED = "Array", "Managed"
MEMORY_WORDS: Final = (_PAGEABLE, _PINNED, _DEVICE, _ARRAY, _MANAGED, _DEVICE, _MANAGED, _UNKNOWN)
"""Words for srcKind, dstKind and memKind, by number."""
_MEMORIES = {
    _PAGEABLE: Memory.PAGEABLE,
    _PINNED: Memory.PINNED,
    _DEVICE: Memory.DEVICE,
    _ARRAY: Memory.ARRAY,
    _MANAGED: Memory.UNIFIED,
    _UNKNOWN: Memory.UNKNOWN,
}
ON_HOST: Final = (0, 1)
"""Memory kinds of the host."""

_COPIES: Final = {
    1: ("HtoD", CopyKind.H2D),
    2: ("DtoH", CopyKind.D2H),
    3: ("HtoA", CopyKind.H2D),
    4: ("AtoH", CopyKind.D2H),
    5: ("AtoA", CopyKind.D2D),
    6: ("AtoD", CopyKind.D2D),
    7: ("DtoA", CopyKind.D2D),
    8: ("DtoD", CopyKind.D2D),
    9: ("HtoH", CopyKind.H2H),
    10: ("PtoP", CopyKind.P2P),
    11: ("HtoD", CopyKind.H2D),
    12: ("DtoH", CopyKind.D2H),
    13: ("DtoD", CopyKind.D2D),
}
_MIGRATIONS: Final = (11, 12, 13)
"""Copies of unified memory, whose memory kinds the export calls unknown."""
SYNCS: Final = {1: "Event Sync", 2: "Stream Wait Event", 3: "Stream Sync", 4: "Context Sync"}
"""Names by syncType, as torch.profiler writes them."""
NO_STREAM: Final = 0xFFFF_FFFF
NVTX_MARK: Final = 34
NVTX_RANGES: Final = (59, 60)
WARNING, ERROR = 2, 3
"""Severities of DIAGNOSTIC_EVENT."""

_VERSION = re.compile(r"(_ptsz|_ptds)?(_v\d+)?$")


def call(name: str) -> str:
    """The name of a runtime or driver call without the version of its interface.

    Example:
        >>> call("cudaMemcpyAsync_v3020"), call("cuMemcpyHtoDAsync_v2"), call("cudaLaunchKernel_ptsz_v7000")
        ('cudaMemcpyAsync', 'cuMemcpyHtoDAsync', 'cudaLaunchKernel')
    """
    return _VERSION.sub("", name, count=1)


def copy(kind: int, source: int, target: int) -> tuple[str, CopyKind, Memory, Memory]:
    """Name, direction and memories of a copy; named as torch.profiler names it.

    Example:
        >>> copy(1, 0, 2)[0], copy(12, 7, 7)[0]
        ('Memcpy HtoD (Pageable -> Device)', 'Unified Memory Memcpy DtoH')
    """
    letters, direction = _COPIES.get(kind, (_UNKNOWN, CopyKind.UNKNOWN))
    if kind in _MIGRATIONS:
        return f"Unified Memory Memcpy {letters}", direction, Memory.UNIFIED, Memory.UNIFIED
    ends = [word(source), word(target)]
    return f"Memcpy {letters} ({ends[0]} -> {ends[1]})", direction, _MEMORIES[ends[0]], _MEMORIES[ends[1]]


def word(memory: int) -> str:
    """The word for a memory kind."""
    return MEMORY_WORDS[memory] if 0 <= memory < len(MEMORY_WORDS) else _UNKNOWN
