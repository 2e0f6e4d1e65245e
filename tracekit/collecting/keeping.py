"""The profiler's own file, kept beside the tables of a run."""

from __future__ import annotations

import gzip
import re
import shutil
from typing import TYPE_CHECKING

from tracekit import places

if TYPE_CHECKING:
    from pathlib import Path

    from tracekit.places import Place

KEPT_TRACE = "trace.json.gz"
KEPT_REPORT = "trace"
REPORTS = (".nsys-rep", ".qdrep")
"""Suffixes of what a profiler wrote itself, beside the trace that was made of it."""
_HOST_NAME = re.compile(rb'^\s*"host_name":')
_TRACE_NAME = re.compile(rb'"traceName":\s*"[^"]*"')


def keep(trace: Path, target: Place) -> None:
    """Keep what the profiler wrote: its report as it is, or else its trace, compressed.

    A trace is kept without the host's name, which has a line of its own, and the file's path.
    """
    for suffix in REPORTS:
        report = trace.with_suffix(suffix)
        if report.is_file():
            with places.put(target.with_name(KEPT_REPORT + suffix)) as part:
                shutil.copyfile(report, part)
            return
    with (
        places.put(target) as part,
        trace.open("rb") as source,
        gzip.open(part, "wb", compresslevel=4) as packed,
    ):
        for line in source:
            if not _HOST_NAME.match(line):
                packed.write(_TRACE_NAME.sub(b'"traceName": "trace.json"', line))
