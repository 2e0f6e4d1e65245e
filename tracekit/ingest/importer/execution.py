"""What this process, or its workers, exchange with the importer: decoded traces and written tables."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec

from tracekit.errors import TracekitError
from tracekit.ingest.jobs.sources import Source
from tracekit.ingest.link.graphs import Outcome
from tracekit.ingest.link.trace import Trace
from tracekit.runs.tables import WrittenFile
from tracekit.schema import Table


class Destination(msgspec.Struct, frozen=True):
    """Destination of a trace's rows."""

    directory: Path  # the run being written
    part: int | None  # number of the part files; None if the run consists of this trace only
    source: Source  # its source, with its rank, the names of its steps and the captures of its graphs
    host_row: int  # row id of its first host row
    device_row: int  # row id of its first device row
    zero_ns: int  # the run's zero, ns since the epoch

    def path(self, table: Table) -> Path:
        """Return the path of the trace's file of a table."""
        if self.part is None:
            return self.directory / f"{table.name}.parquet"
        return self.directory / table.name / f"part-{self.part:05d}.parquet"


class Linked(msgspec.Struct, frozen=True):
    """Counts of linked rows of a trace."""

    device: int  # device rows other than idle ones
    unlinked: int  # device rows without a launching call
    launches: int  # host calls that can launch device work
    # graph launches and the attribution of their kernels; None without graph launches
    graphs: Outcome | None = None
    unclear: int = 0  # device rows whose correlation id several calls have
    renumbered: int = 0  # steps that had numbers of earlier ones
    pause_ns: int = 0  # time between the steps of two sessions of the profiler


class Decoded(msgspec.Struct, frozen=True, kw_only=True):
    """A decoded and completed trace, spooled on the machine that decoded it."""

    source: Source  # its source; the traces of a file of several ranks share it
    trace: Trace
    size: Size
    identity: dict[str, Any]  # identity of the file: name, size and digest
    number: int = 0  # index of the trace among those of its source
    host: str = ""  # machine of its spool; "" for this one


class Failed(msgspec.Struct, frozen=True, kw_only=True):
    """A trace that is left out of the run, and why."""

    source: Source
    error: TracekitError


class Written(msgspec.Struct, frozen=True, kw_only=True):
    """Counts of the linked rows of a trace, and its files if they are not in the draft's folder."""

    linked: Linked
    delivered: tuple[WrittenFile, ...] = ()


class Size(msgspec.Struct, frozen=True):
    """Size of a decoded trace."""

    host: int  # number of rows in `host_intervals`
    device: int  # number of rows in `device_intervals`, idle ones included
    first_ns: int  # time of its first event, ns since the epoch
    last_ns: int  # end of its last event, ns since the epoch
    is_host_only: bool = False  # whether it has neither work of a device nor calls of its runtime


Progress = Callable[[str, int, int], None]
"""Callback with a trace's name, its bytes decoded so far, and its size (0 if unknown)."""


def ignore_progress(_name: str, _done: int, _size: int) -> None:
    """Show nothing."""
