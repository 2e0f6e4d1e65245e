"""Who decodes the traces of a job and writes their tables: this process, or the workers of a cluster."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol

import msgspec

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from tracekit.errors import TracekitError
    from tracekit.ingest.nesting import Trace
    from tracekit.ingest.sources import Source
    from tracekit.runs.tables import Delivered
    from tracekit.schema import Table


class TaskPlace(msgspec.Struct, frozen=True):
    """Where a trace's rows go.

    Attributes:
        directory: The run being written.
        part: Number of the part files; None when the trace is the whole run.
        rank: Its rank.
        host_row: Row id of its first host row.
        device_row: Row id of its first device row.
        zero_ns: The run's zero, ns since the epoch.
    """

    directory: Path
    part: int | None
    rank: int
    host_row: int
    device_row: int
    zero_ns: int

    def path(self, table: Table) -> Path:
        """The file that takes the trace's rows of a table."""
        if self.part is None:
            return self.directory / f"{table.name}.parquet"
        return self.directory / table.name / f"part-{self.part:05d}.parquet"


class Linked(msgspec.Struct, frozen=True):
    """How much of a trace could be joined.

    Attributes:
        device: Device rows that a host should have launched (idle ones left out).
        unlinked: Those of them without a launching call.
        launches: Calls of the host that may have put work on a device.
    """

    device: int
    unlinked: int
    launches: int


class Decoded(msgspec.Struct, frozen=True, kw_only=True):
    """A trace that is decoded, parked where it was decoded, and complete.

    Attributes:
        source: Where it came from; one that holds several ranks stands once for each of them.
        trace: The trace.
        size: What it holds.
        identity: What tells the file apart.
        number: Place of the trace among those of its source.
        host: The machine where it is parked; "" for this one.
    """

    source: Source
    trace: Trace
    size: Size
    identity: dict[str, Any]
    number: int = 0
    host: str = ""


class Failed(msgspec.Struct, frozen=True, kw_only=True):
    """A trace that will not be in the run.

    Attributes:
        source: Where it came from.
        error: Why.
    """

    source: Source
    error: TracekitError


class Written(msgspec.Struct, frozen=True, kw_only=True):
    """A trace whose tables are written.

    Attributes:
        linked: How much of it could be joined.
        delivered: The files, where they do not lie in the draft's own folder.
    """

    linked: Linked
    delivered: tuple[Delivered, ...] = ()


class Crew(Protocol):
    """Does the work on each trace; what a trace is in its job is for others to say."""

    def decode(self, sources: Sequence[Source]) -> list[Decoded | Failed]:
        """Decode traces.

        Returns:
            The traces of each source, in the order of the sources.
        """

    def write(self, tasks: Sequence[tuple[Decoded, TaskPlace]]) -> list[Written | Failed]:
        """Link traces and write their tables.

        Returns:
            What became of each, in their order.
        """


class Size(msgspec.Struct, frozen=True):
    """What a decoded trace holds.

    Attributes:
        host: Rows it will have in `host_intervals`.
        device: Rows it will have in `device_intervals`, idle ones included.
        first_ns: Its first instant, ns since the epoch.
        last_ns: Its last instant.
    """

    host: int
    device: int
    first_ns: int
    last_ns: int
