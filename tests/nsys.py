"""A stand-in for nsys: checks its arguments strictly, runs the program, and plays an outcome."""

from __future__ import annotations

import json
import sqlite3
import sys
from contextlib import closing
from pathlib import Path
from typing import Any

KIND = "CUPTI_ACTIVITY_KIND_"
DIAGNOSTIC = "CREATE TABLE DIAGNOSTIC_EVENT (timestamp, timestampType, source, severity, text, globalPid)"
NEW = """usage: nsys profile [<args>] [application] [<application args>]

    -c, --capture-range=

       Possible values are none, cudaProfilerApi, nvtx, hotkey.

    --capture-range-end=

       Possible values are none, stop, stop-shutdown, repeat[:N], repeat-shutdown:N.

    --cpuctxsw=

       Possible values are 'process-tree', 'system-wide', 'none'.

    --cuda-event-trace=

       Possible values are 'auto', 'true', 'false'.

    --cuda-graph-trace=

       Possible values are 'graph' or 'node'. See also --cuda-memory-usage.

    --discard-environment=

       Possible values are 'true' or 'false'.

    -f, --force-overwrite=

       Possible values are 'true' or 'false'.

    -o, --output=

       Output report filename.

    -s, --sample=

       Possible values are 'process-tree', 'system-wide', 'none'.

    --stats=

       Possible values are 'true' or 'false'.

    -t, --trace=

       Possible values are 'cuda', 'cuda-hw', 'nvtx', 'cublas', 'cudnn', 'opengl', 'osrt', 'none'.
"""
OLD = """usage: nsys profile [<args>] [application] [<application args>]

\t-c, --capture-range=
\t   Possible values are none, cudaProfilerApi, nvtx. Stop it by --stop-on-range-end.
\t-x, --stop-on-range-end=
\t   Possible values are 'true' or 'false'.
\t--kill=
\t   Possible values are 'none', 'sigterm', 'sigkill'.
\t-f, --force-overwrite=
\t   Possible values are 'true' or 'false'.
\t-o, --output=
\t   Output report filename.
\t-s, --sample=
\t   Possible values are 'cpu' or 'none'.
\t--stats=
\t   Possible values are 'true' or 'false'.
\t-t, --trace=
\t   Possible values are 'cuda', 'nvtx', 'cublas', 'osrt', 'none'.
"""
HELP = {"2025.1.1.103": NEW, "2021.2.1.58": OLD}
EXPORT_HELP = {
    "2025.1.1.103": "  -f, --force-overwrite=\n  --lazy=\n  -o, --output=\n  -t, --type=\n",
    "2021.2.1.58": "  -f, --force-overwrite=\n  -o, --output=\n  -t, --type=\n",
}
SCRIPT = Path(__file__).with_name("nsys_stand_in.py")


def install(
    folder: Path, *, version: str = "2025.1.1.103", outcome: str = "fine", export: Path | None = None
) -> Path:
    """An executable `nsys` in a folder; see `nsys_stand_in.py` for the outcomes it plays.

    Args:
        folder: Where it goes, made if need be.
        version: One of `HELP`.
        outcome: What it plays.
        export: What an export is a copy of.
    """
    folder.mkdir(parents=True, exist_ok=True)
    program = folder / "nsys"
    program.write_text(f"#!{sys.executable} -IS\n{SCRIPT.read_text()}")
    program.chmod(0o755)
    known = {
        "version": version,
        "profile": HELP[version],
        "export": EXPORT_HELP[version],
        "outcome": outcome,
        "file": str(export) if export else "",
    }
    program.with_name("plays.json").write_text(json.dumps(known))
    return program


def calls(program: Path) -> list[list[str]]:
    """The arguments of every call of a stand-in, in order."""
    path = program.with_name("calls.jsonl")
    return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []


def write_export(
    path: Path, *, rows: dict[str, int] | None = None, said: list[tuple[int, str]] | None = None
) -> Path:
    """A SQLite file with so many rows in tables, and diagnostics of a severity."""
    with closing(sqlite3.connect(path)) as database:
        database.execute(DIAGNOSTIC)
        for number, (severity, text) in enumerate(said or []):
            values: tuple[Any, ...] = (number, 1, 3, severity, text, None)
            database.execute("INSERT INTO DIAGNOSTIC_EVENT VALUES (?, ?, ?, ?, ?, ?)", values)
        for table, count in (rows or {}).items():
            database.execute(f"CREATE TABLE {table} (start INTEGER, end INTEGER)")
            spans = [(n, n + 1) for n in range(count)]
            database.executemany(f"INSERT INTO {table} VALUES (?, ?)", spans)  # noqa: S608 (ours)
        database.commit()
    return path
