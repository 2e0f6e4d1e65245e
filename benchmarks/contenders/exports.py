"""Who reads a SQLite export of Nsight Systems."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from benchmarks.contenders.commands import homes, program, tracekit
from benchmarks.runner import Contender

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from benchmarks.inputs.exports import Export
    from benchmarks.peers import Environment

IMPORT = "tracekit import"
_FILE = "export.sqlite"


def contenders(export: Export, peers: Mapping[str, Environment]) -> Sequence[Contender]:
    """Everybody who can read an export.

    Args:
        export: What they read.
        peers: Where each peer is installed.
    """
    rows = "takes every row of the event tables as Python's own sqlite3 gives it"
    frames = "reads the event tables into data frames and puts names in place of numbers"
    script = "read_export.py"
    return [
        tracekit(IMPORT, "reads, checks, links and writes every table to Parquet", "import", export.path),
        _nsys_ai(export, peers["nsys-ai"]),
        program("sqlite3 + pandas", frames, script, "pandas", export.path, against=IMPORT),
        program("sqlite3", rows, script, "rows", export.path, against=IMPORT),
    ]


def _nsys_ai(export: Export, peer: Environment) -> Contender:
    """Its cache is made beside the file, so it gets a folder with a link to the same bytes."""

    def beside(scratch: Path) -> None:
        os.link(export.path, scratch / _FILE)

    return Contender(
        name="nsys-ai warm",
        does="writes its Parquet cache and its map from NVTX ranges to kernels",
        against=IMPORT,
        command=lambda scratch: [str(peer.python), "-P", "-m", "nsys_ai", "warm", str(scratch / _FILE)],
        environment=homes(peer),
        prepare=beside,
        missing=peer.missing,
    )
