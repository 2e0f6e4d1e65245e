"""The index of a store on object storage: one listing tells its whole runs, and when each became one.

An entry is a copy of a run's `run.json`, named `<run id>@<ns since the epoch>.json`: the service's own times
are of whole seconds, and of two runs within one the later must be known. Entries are written after `run.json`
and deleted before, so each is of a whole run, except where another tool deleted that.
"""

from __future__ import annotations

import re
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tracekit.places import RemotePath

FOLDER = ".index"
_NAME = re.compile(r"(.+)@(\d{1,19})\.json")


@dataclass(frozen=True, kw_only=True)
class Entry:
    """What the index has of a run.

    Attributes:
        place: The copy of its `run.json`.
        written_ns: When it was written, ns since the epoch, by the writer's clock.
    """

    place: RemotePath
    written_ns: int


def entries(store: RemotePath) -> dict[str, Entry]:
    """The entries by run id.

    Raises:
        OSError: The service refuses.
    """
    found = ((_NAME.fullmatch(one.name), one) for one in (store / FOLDER).iterdir())
    return {match[1]: Entry(place=place, written_ns=int(match[2])) for match, place in found if match}


def add(store: RemotePath, run_id: str, content: bytes) -> int:
    """Add a run, whose `run.json` has this content; returns the time that it is given."""
    now = time.time_ns()
    (store / FOLDER / f"{run_id}@{now}.json").write_bytes(content)
    return now


def drop(store: RemotePath, run_id: str) -> None:
    """Delete a run's entry, if it has one."""
    if entry := entries(store).get(run_id):
        entry.place.unlink(missing_ok=True)
