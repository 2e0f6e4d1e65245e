"""A decoded and spooled trace, and what it contains beside its events."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec

from tracekit.errors import UnusableInputError
from tracekit.ingest.link.nesting import Nest, nest_rows
from tracekit.runs.meta import Diagnostic
from tracekit.storage import Place

MAX_RANK = (1 << 20) - 1


class DeviceProperties(msgspec.Struct):
    """Entry of `deviceProperties`."""

    index: int = msgspec.field(default=0, name="id")
    name: str = ""
    memory_bytes: int | None = msgspec.field(default=None, name="totalGlobalMem")
    major: int | None = msgspec.field(default=None, name="computeMajor")
    minor: int | None = msgspec.field(default=None, name="computeMinor")
    sm_count: int | None = msgspec.field(default=None, name="numSms")
    max_threads_per_sm: int | None = msgspec.field(default=None, name="maxThreadsPerMultiprocessor")
    registers_per_sm: int | None = msgspec.field(default=None, name="regsPerMultiprocessor")
    shared_bytes_per_sm: int | None = msgspec.field(default=None, name="sharedMemPerMultiprocessor")
    warp_size: int | None = msgspec.field(default=None, name="warpSize")
    copy_engines: int | None = None
    uuid: str | None = None


class Distributed(msgspec.Struct):
    """`distributedInfo`: rank and process groups of the trace."""

    rank: int | None = None
    world_size: int | None = None
    backend: str | None = None
    groups: Any = msgspec.field(default=None, name="pg_config")


class TopLevel(msgspec.Struct):
    """Members of the top level beside the events; host and user names are not read."""

    devices: list[DeviceProperties] = msgspec.field(default_factory=list, name="deviceProperties")
    distributed: Distributed | None = msgspec.field(default=None, name="distributedInfo")
    base_ns: int = msgspec.field(default=0, name="baseTimeNanoseconds")
    cuda_runtime: int | None = msgspec.field(default=None, name="cuda_runtime_version")
    with_stack: int | None = None
    record_shapes: int | None = None
    profile_memory: int | None = None
    driver: str | None = msgspec.field(default=None, name="tracekit_driver")
    tool: str | None = msgspec.field(default=None, name="tracekit_tool")
    simulated: bool = msgspec.field(default=False, name="tracekit_simulated")

    @property
    def rank(self) -> int | None:
        """The declared rank; None if it is absent or invalid."""
        rank = self.distributed.rank if self.distributed else None
        return rank if rank is not None and 0 <= rank <= MAX_RANK else None

    @property
    def world_size(self) -> int:
        """The declared number of ranks of the job; 0 if it is absent or invalid."""
        size = (self.distributed.world_size if self.distributed else None) or 0
        return size if 0 <= size <= MAX_RANK else 0


class Trace(msgspec.Struct, frozen=True, kw_only=True):
    """A decoded and spooled trace of one process or rank."""

    path: Place  # the file
    directory: Path  # folder of the spool
    top: TopLevel  # top level of the trace: its metadata
    notes: tuple[Diagnostic, ...]  # diagnostics of decoding
    empty: UnusableInputError  # the error of a trace without intervals
    no_device_work: str = ""  # the tool's message on missing device activity; empty if it has none
    nest: Nest = nest_rows  # algorithm for the nesting of its host rows
    tells_ranks: bool = False  # whether its first events may name several ranks
