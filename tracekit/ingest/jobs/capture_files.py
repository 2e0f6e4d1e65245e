"""Find the traces of graph captures that lie beside the trace of their replay.

Tools for traces of serving engines describe a folder of captures in `execution_details.json`: a list of
objects with the `file`, and the `batch_size` and `mode` of the graph.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

import msgspec

from tracekit.ingest.jobs.ranks import from_name
from tracekit.ingest.jobs.sources import Source
from tracekit.storage import Kind, Place, inside, kind

DETAILS = "execution_details.json"
_NAME = re.compile(r"(?i)capture.*\.json(\.gz)?$")
_LIMIT = 1 << 20


def list_captures(folder: Place) -> list[Place]:
    """Return the captures of a folder with `execution_details.json`, sorted by name.

    These are the listed files; if none of them exists, the traces with `capture` in their names.
    """
    details = folder / DETAILS
    if kind(details) is not Kind.FILE:
        return []
    try:
        with details.open("rb") as stream:
            entries = msgspec.json.decode(stream.read(_LIMIT))
    except (OSError, msgspec.DecodeError):
        return []
    described = [  # the other entries of such a list have no mode
        entry
        for entry in (entries if isinstance(entries, list) else ())
        if isinstance(entry, dict) and {"mode", "batch_size"} <= entry.keys()
    ]
    names = {str(entry.get("file", "")) for entry in described}
    files = [path for path in inside(folder) if path.is_file()]
    captures = [path for path in files if path.name in names]
    return sorted(captures or [path for path in files if _NAME.search(path.name)], key=lambda path: path.name)


def captures_of(source: Source, places: Sequence[Place] = ()) -> tuple[Place, ...]:
    """Return the captures of a trace: those given, else those beside it; of its rank if their names tell."""
    if places:
        return tuple(places)
    if kind(source.path) is not Kind.FILE:
        return ()
    folder = source.path.parent
    captures = [*list_captures(folder), *list_captures(folder / "capture_traces")]
    if source.path in captures:
        return ()
    return tuple(path for path in captures if from_name(path.name) in (None, source.rank or 0))
