"""A stand-in for nsys: checks its arguments strictly, records its program, and plays an outcome."""

from __future__ import annotations

import json
import sqlite3
import sys
from contextlib import closing
from pathlib import Path
from typing import Any

from tests.nsys_help import CURRENT, export_help, profile_help

KIND = "CUPTI_ACTIVITY_KIND_"
DIAGNOSTIC = "CREATE TABLE DIAGNOSTIC_EVENT (timestamp, timestampType, source, severity, text, globalPid)"
SCRIPT = Path(__file__).with_name("nsys_stand_in.py")


def install(
    folder: Path, *, version: str = CURRENT, outcome: str = "fine", export: Path | None = None
) -> Path:
    """An executable `nsys` in a folder; see `nsys_stand_in.py` for the outcomes it plays.

    Args:
        folder: Where it goes, made if need be.
        version: One of `tests.nsys_help.VERSIONS`.
        outcome: What it plays.
        export: What an export is a copy of; by default it has what was recorded.
    """
    folder.mkdir(parents=True, exist_ok=True)
    program = folder / "nsys"
    program.write_text(f"#!{sys.executable} -IS\n{SCRIPT.read_text()}")
    program.chmod(0o755)
    known = {
        "version": version,
        "profile": profile_help(version),
        "export": export_help(version),
        "outcome": outcome,
        "file": str(export) if export else "",
    }
    program.with_name("plays.json").write_text(json.dumps(known))
    return program


def calls(program: Path) -> list[list[str]]:
    """The arguments of every call of a stand-in, in order."""
    path = program.with_name("calls.jsonl")
    return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []


def recorded(export: Path) -> dict[str, list[str]]:
    """The names of all events in an export that the stand-in made, by table."""
    with closing(sqlite3.connect(export)) as database:
        tables = [name for (name,) in database.execute("SELECT name FROM sqlite_master")]
        kept = [name for name in sorted(tables) if name != "StringIds"]
        return {
            name: [text for (text,) in database.execute(f"SELECT text FROM {name} ORDER BY start")]  # noqa: S608 (ours)
            for name in kept
        }


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
