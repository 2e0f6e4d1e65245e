"""Large traces, plain and gzipped; each lies alone in a folder, as some tools ask."""

from __future__ import annotations

import gzip
import shutil
from dataclasses import dataclass
from typing import TYPE_CHECKING

from benchmarks.amplify import amplify
from benchmarks.inputs.cut import events
from benchmarks.inputs.kept import kept

if TYPE_CHECKING:
    from pathlib import Path

    from benchmarks.inputs.bases import Base

GZIP_LEVEL = 6


@dataclass(frozen=True, kw_only=True)
class Trace:
    """A trace in one form.

    Attributes:
        path: The file; nothing else is in its folder.
        form: `plain` or `gz`.
        base: What it was made from.
        size: Bytes of its text, inflated.
        events: How many it holds.
    """

    path: Path
    form: str
    base: Base
    size: int
    events: int


def plain(folder: Path, base: Base, megabytes: float) -> Trace:
    """A trace of about so many MB."""
    size = round(megabytes * 1e6)

    def make(draft: Path) -> dict[str, int]:
        (draft / "trace").mkdir()
        path = draft / "trace" / "trace.json"
        events = amplify(base.path, path, size)
        return {"events": events, "size": path.stat().st_size}

    place = folder / f"{base.name}-{megabytes:g}MB"
    facts = kept(place, base.path, make, size=size)
    path = place / "trace" / "trace.json"
    return Trace(path=path, form="plain", base=base, size=facts["size"], events=facts["events"])


def given(folder: Path, base: Base) -> Trace:
    """A plain trace that is large already, as it is."""

    def make(draft: Path) -> dict[str, int]:
        (draft / "trace").mkdir()
        (draft / "trace" / "trace.json").symlink_to(base.path.absolute())
        size = base.path.stat().st_size
        return {"events": sum(map(len, events(base.path))), "size": size}

    place = folder / f"given-{base.name}"
    facts = kept(place, base.path, make)
    path = place / "trace" / "trace.json"
    return Trace(path=path, form="plain", base=base, size=facts["size"], events=facts["events"])


def gzipped(trace: Trace) -> Trace:
    """The same trace, compressed as a profiler does."""

    def make(draft: Path) -> dict[str, int]:
        (draft / "trace").mkdir()
        with (
            trace.path.open("rb") as source,
            gzip.open(draft / "trace" / "trace.json.gz", "wb", compresslevel=GZIP_LEVEL) as target,
        ):
            shutil.copyfileobj(source, target, 1 << 20)
        return {"events": trace.events, "size": trace.size}

    place = trace.path.parents[1].with_name(f"{trace.path.parents[1].name}-gz")
    kept(place, trace.base.path, make, size=trace.size)
    path = place / "trace" / "trace.json.gz"
    return Trace(path=path, form="gz", base=trace.base, size=trace.size, events=trace.events)
