"""Who decodes the traces of a job and writes their tables: this process, or the workers of a cluster."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol

import msgspec

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tracekit.errors import TracekitError
    from tracekit.ingest.closing import Size
    from tracekit.ingest.process import Linked, Place
    from tracekit.ingest.sources import Source
    from tracekit.ingest.trace import Trace
    from tracekit.parts import Delivered


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

    def write(self, tasks: Sequence[tuple[Decoded, Place]]) -> list[Written | Failed]:
        """Link traces and write their tables.

        Returns:
            What became of each, in their order.
        """
