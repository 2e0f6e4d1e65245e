"""The profiler's own file, kept beside the tables of a run."""

from __future__ import annotations

import gzip
import re
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path

KEPT_TRACE = "trace.json.gz"
_HOST_NAME = re.compile(rb'^\s*"host_name":')
_TRACE_NAME = re.compile(rb'"traceName":\s*"[^"]*"')


def keep(trace: Path, target: Path) -> None:
    """Compress the trace without the host's name, which has a line of its own, and the file's path."""
    part = target.with_suffix(".part")
    try:
        with trace.open("rb") as source, gzip.open(part, "wb", compresslevel=4) as packed:
            for line in source:
                if not _HOST_NAME.match(line):
                    packed.write(_TRACE_NAME.sub(b'"traceName": "trace.json"', line))
        part.rename(target)
    finally:
        part.unlink(missing_ok=True)
