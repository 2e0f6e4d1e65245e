"""The profiler's own file, kept beside the tables of a run."""

from __future__ import annotations

import gzip
import re
import shutil
from pathlib import Path
from typing import TYPE_CHECKING

from tracekit import scrubbing

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tracekit.store import Draft

KEPT_TRACE = "trace.json.gz"
KEPT_REPORT = "trace"
REPORTS = (".nsys-rep", ".qdrep")
"""Suffixes of what a profiler wrote itself, beside the trace that was made of it."""
_HOST_NAME = re.compile(rb'^\s*"host_name":')
_BLOCK = 1 << 20
_TRACE_NAME = re.compile(rb'"traceName":\s*"[^"]*"')


def keep(trace: Path, draft: Draft) -> Path:
    """Keep what the profiler wrote: its report as it is, or else its trace, compressed.

    A trace is kept without the host's name, which has a line of its own, the file's path, and what
    `tracekit.scrubbing` takes out of every text.

    Args:
        trace: What was recorded.
        draft: Where it is kept, until there is a run to move it into.

    Raises:
        UnusableInputError: The store cannot be written.
    """
    folder = draft.path / "kept"  # apart from what the profiler wrote there
    with draft.store.writing():
        folder.mkdir()
        for suffix in REPORTS:
            report = trace.with_suffix(suffix)
            if report.is_file():
                return Path(shutil.copyfile(report, folder / f"{KEPT_REPORT}{suffix}"))
        kept = folder / KEPT_TRACE
        with trace.open("rb") as source, gzip.open(kept, "wb", compresslevel=4) as packed:
            while lines := source.readlines(_BLOCK):
                packed.write(_scrubbed(lines))
    return kept


def _scrubbed(lines: Sequence[bytes]) -> bytes:
    named = [
        _TRACE_NAME.sub(b'"traceName": "trace.json"', line) for line in lines if not _HOST_NAME.match(line)
    ]
    told = scrubbing.texts([line.decode("utf-8", "surrogateescape") for line in named])
    return "".join(told).encode("utf-8", "surrogateescape")
