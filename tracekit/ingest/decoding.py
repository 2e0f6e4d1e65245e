"""One trace decoded by the reader that its content asks for, and made complete."""

from __future__ import annotations

import errno
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from tracekit.ingest import files, nsys
from tracekit.ingest.closing import close
from tracekit.ingest.crew import Decoded, Failed
from tracekit.ingest.kineto import reader as kineto

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from pathlib import Path

    from tracekit.ingest.kineto.scan.loader import Scanners
    from tracekit.ingest.pool import Pool
    from tracekit.ingest.sources import Source
    from tracekit.ingest.trace import Trace
    from tracekit.places import Place

    Decoders = tuple[Pool, Scanners]
    """Where chunks are decoded, and what decodes them once it is ready."""

_WRITING = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EROFS)
"""What the file system says only to one who writes."""


@contextmanager
def reading(path: Place) -> Iterator[None]:
    """Turns an error of the file system into one that names the file, unless it speaks of what is written.

    Raises:
        UnusableInputError: The file cannot be read.
        OSError: What is decoded cannot be parked.
    """
    try:
        yield
    except OSError as error:
        if error.errno in _WRITING:
            raise
        with files.reading(path):
            raise


def read(path: Place, directory: Path, decoders: Decoders, progress: Callable[[int], None]) -> list[Trace]:
    """Decode a file and park what is in it.

    Args:
        path: The file.
        directory: An existing folder for the batches.
        decoders: What decodes text.
        progress: Told the bytes of the file consumed so far.

    Returns:
        One trace, or one for each rank that the file holds.

    Raises:
        UnusableInputError: It is no trace.
    """
    if nsys.is_nsys(path):
        from tracekit.ingest.nsys import reader  # what a trace of torch.profiler never needs

        return reader.read(path, directory, progress)
    pool, fast = decoders
    return [kineto.read(path, directory, pool, progress, scanners=fast)]


def closed(source: Source, traces: Sequence[Trace], identity: dict[str, Any]) -> list[Decoded | Failed]:
    """Complete the traces of a source; one without an interval fails."""
    found: list[Decoded | Failed] = []
    for number, trace in enumerate(traces):
        size = close(trace)
        found.append(
            Failed(source=source, error=trace.empty())
            if size is None
            else Decoded(source=source, trace=trace, size=size, identity=identity, number=number)
        )
    return found
