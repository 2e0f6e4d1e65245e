"""What names and categories of Kineto events mean: tables, kinds, copy directions and memory."""

from __future__ import annotations

import re
from functools import lru_cache

from tracekit.schema import CopyKind, DeviceKind, HostKind, Memory

DEVICE_CATEGORIES = {
    "kernel": DeviceKind.KERNEL,
    "Kernel": DeviceKind.KERNEL,
    "gpu_memcpy": DeviceKind.MEMCPY,
    "Memcpy": DeviceKind.MEMCPY,
    "gpu_memset": DeviceKind.MEMSET,
    "Memset": DeviceKind.MEMSET,
    "cuda_sync": DeviceKind.SYNC,
}
HOST_CATEGORIES = {
    "cpu_op": HostKind.OP,
    "Operator": HostKind.OP,
    "cuda_runtime": HostKind.RUNTIME,
    "cuda_driver": HostKind.RUNTIME,
    "Runtime": HostKind.RUNTIME,
    "xpu_runtime": HostKind.RUNTIME,
    "privateuse1_runtime": HostKind.RUNTIME,
    "privateuse1_driver": HostKind.RUNTIME,
    "user_annotation": HostKind.ANNOTATION,
    "python_function": HostKind.PYTHON,
    "overhead": HostKind.OVERHEAD,
}
NAMED_KINDS = (HostKind.OP, HostKind.RUNTIME)
"""Kinds of the host that `host_kind` may make others of."""

DERIVED_CATEGORIES = frozenset({"gpu_user_annotation", "Trace", "ac2g", "fwdbwd"})
"""Categories that repeat what other events say; leaving them out loses nothing."""

SILENT_PHASES = frozenset({"X", "M", "C", "s", "t", "f", "i", "I", "R"})
"""Phases that are read, or only describe or connect; of any other the loss is said."""

LEGACY_DEVICE = "CUDA functions"
"""The process to which torch's autograd profiler of old gave its kernels."""

MEMORY_EVENT = "[memory]"

_ANNOTATION = re.compile(r"ProfilerStep#|Optimizer\.|enumerate\(DataLoader\)|nccl:|## ")
_BLOCKING = re.compile(r"(cuda|hip|cu)(Device|Stream|Event|Ctx)Synchronize")
_COPY = re.compile(r"(HtoD|DtoH|DtoD|PtoP|HtoH)")
_COPY_HIP = re.compile(r"Copy(Host|Device)To(Host|Device)")
_MEMORY = re.compile(r"\((\w+)\s*->\s*(\w+)\)")
_COPY_KINDS = {
    "HtoD": CopyKind.H2D,
    "DtoH": CopyKind.D2H,
    "DtoD": CopyKind.D2D,
    "PtoP": CopyKind.P2P,
    "HtoH": CopyKind.H2H,
    "HostToDevice": CopyKind.H2D,
    "DeviceToHost": CopyKind.D2H,
    "DeviceToDevice": CopyKind.D2D,
    "HostToHost": CopyKind.H2H,
}
_MEMORIES = {
    "Pageable": Memory.PAGEABLE,
    "Pinned": Memory.PINNED,
    "Device": Memory.DEVICE,
    "Managed": Memory.UNIFIED,
    "Unified": Memory.UNIFIED,
    "Array": Memory.ARRAY,
}


@lru_cache(maxsize=4096)
def host_kind(kind: HostKind, name: str) -> HostKind:
    """The kind of a host event: old traces call annotations operators; blocking calls are `sync`.

    Example:
        >>> host_kind(HostKind.RUNTIME, "cudaStreamSynchronize")
        <HostKind.SYNC: 'sync'>
    """
    if kind is HostKind.OP and _ANNOTATION.match(name):
        return HostKind.ANNOTATION
    if kind is HostKind.RUNTIME and _BLOCKING.match(name):
        return HostKind.SYNC
    return kind


@lru_cache(maxsize=4096)
def copy_ends(name: str) -> tuple[CopyKind, Memory, Memory]:
    """Direction, source memory and destination memory of a copy, from its name.

    Example:
        >>> [str(part) for part in copy_ends("Memcpy HtoD (Pageable -> Device)")]
        ['H2D', 'pageable', 'device']
    """
    match = _COPY.search(name) or _COPY_HIP.search(name)
    word = match.group().removeprefix("Copy") if match else ""
    ends = _MEMORY.search(name)
    source, target = (ends[1], ends[2]) if ends else ("", "")
    return (
        _COPY_KINDS.get(word, CopyKind.UNKNOWN),
        _MEMORIES.get(source, Memory.UNKNOWN),
        _MEMORIES.get(target, Memory.UNKNOWN),
    )
