"""Large SQLite exports of Nsight Systems."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from dataclasses import dataclass
from typing import TYPE_CHECKING

from benchmarks.amplify_nsys import amplify, count
from benchmarks.inputs.kept import kept

if TYPE_CHECKING:
    from pathlib import Path

    from benchmarks.inputs.bases import Base


@dataclass(frozen=True, kw_only=True)
class Export:
    """An export.

    Attributes:
        path: The file.
        base: What it was made from.
        size: Its bytes.
        events: Rows of its tables of events.
    """

    path: Path
    base: Base
    size: int
    events: int


def given(base: Base) -> Export:
    """An export that is large already, as it is."""
    with closing(sqlite3.connect(base.path)) as file:
        events = count(file)
    return Export(path=base.path.absolute(), base=base, size=base.path.stat().st_size, events=events)


def export(folder: Path, base: Base, megabytes: float) -> Export:
    """An export of about so many MB."""
    size = round(megabytes * 1e6)

    def make(draft: Path) -> dict[str, int]:
        path = draft / "export.sqlite"
        return {"events": amplify(base.path, path, size), "size": path.stat().st_size}

    place = folder / f"nsys-{base.name}-{megabytes:g}MB"
    facts = kept(place, base.path, make, size=size)
    return Export(path=place / "export.sqlite", base=base, size=facts["size"], events=facts["events"])
