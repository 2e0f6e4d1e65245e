"""What `run.json` of remote runs says, read once: a run does not change, so a copy here serves."""

from __future__ import annotations

import os
from contextlib import suppress
from typing import TYPE_CHECKING

from tracekit import places

if TYPE_CHECKING:
    from pathlib import Path

    from tracekit.places import RemotePath, Stat


def content(source: RemotePath, known: Stat, copy: Path) -> bytes:
    """The content of a small file: the copy's where that has its size and time, else read and copied.

    Args:
        source: The file.
        known: Its size and time, as a listing told.
        copy: The copy, which need not exist, in a folder that may be one that cannot be written.

    Raises:
        OSError: It cannot be read.
    """
    with suppress(OSError):
        stat = copy.stat()
        if (stat.st_size, stat.st_mtime_ns) == (known.st_size, known.st_mtime_ns):
            return copy.read_bytes()
    found = source.read_bytes()
    with suppress(OSError), places.put(copy) as file:
        file.write_bytes(found)
        os.utime(file, ns=(known.st_mtime_ns, known.st_mtime_ns))
    return found
