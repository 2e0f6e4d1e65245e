"""Host and device events of a simulated program, with exact integer times."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any


class Kind(StrEnum):
    """Category of an event, spelled as Kineto does."""

    OP = "cpu_op"
    RUNTIME = "cuda_runtime"
    ANNOTATION = "user_annotation"
    PYTHON = "python_function"
    OVERHEAD = "overhead"
    KERNEL = "kernel"
    MEMCPY = "gpu_memcpy"
    MEMSET = "gpu_memset"


@dataclass(frozen=True)
class HostEvent:
    """One interval on a host thread; `args` are the further fields of the written event."""

    kind: Kind
    name: str
    start_ns: int
    dur_ns: int
    tid: int
    step: int | None
    external_id: int | None = None
    correlation: int | None = None
    args: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class DeviceEvent:
    """One interval on a stream of a device; `op` is the external id of the op that launched it."""

    kind: Kind
    name: str
    start_ns: int
    dur_ns: int
    device: int
    stream: int
    step: int | None
    correlation: int
    op: int | None = None
    args: dict[str, Any] = field(default_factory=dict)

    @property
    def end_ns(self) -> int:
        """End, exclusive."""
        return self.start_ns + self.dur_ns


@dataclass(frozen=True)
class Allocation:
    """One allocator event; the device -1 is the host."""

    t_ns: int
    bytes: int
    address: int
    device: int
    total_allocated: int
    total_reserved: int
    tid: int
