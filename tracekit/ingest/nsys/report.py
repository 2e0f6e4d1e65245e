"""Formats of Nsight Systems by path; export reports with `nsys export`, next to the report."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path
from typing import TypeVar

from tracekit import storage
from tracekit.errors import UnusableInputError
from tracekit.ingest.kineto.source import convert_errors, file_name
from tracekit.ingest.nsys.rows import MARKS, SUFFIX, TABLES
from tracekit.runs.toolchain import find_nsys
from tracekit.storage import Place, locks
from tracekit.storage.atomic import write_atomically

SUFFIXES = (".nsys-rep", ".qdrep")
"""Suffixes of reports; the second one before version 2021.4."""
_MAX_OUTPUT_CHARS = 400
_PART = ".part.sqlite"
AnyPlace = TypeVar("AnyPlace", Path, Place)


def is_report(path: Place) -> bool:
    """Return whether a path has the name of a report."""
    return path.name.endswith(SUFFIXES)


def export_path(path: AnyPlace) -> AnyPlace:
    """Return the path of a report's export: `run.sqlite` for `run.nsys-rep`."""
    return path.with_suffix(".sqlite")


def is_exported(path: Place) -> bool:
    """Return whether an up-to-date export exists next to a report."""
    export: Place = export_path(path)
    return export.is_file() and export.stat().st_mtime_ns >= path.stat().st_mtime_ns


def redundant(path: Place) -> Place:
    """Return the redundant one of a report and its export: the report, or an outdated export."""
    return path if is_exported(path) else export_path(path)


def ensure_export(path: Path, directory: Path) -> Path:
    """Return the report's export; create it unless it is up to date.

    Args:
        path: The report, which is not changed.
        directory: Folder of the export, if that of the report is not writable.

    Raises:
        UnusableInputError: The report or nsys is missing, or nsys failed.
    """
    with convert_errors(path):
        target = export_path(path)
        if is_exported(path):
            return target
    writable = os.access(path.parent, os.W_OK)
    return _export(path, target if writable else directory / target.name)


def _export(path: Path, target: Path) -> Path:
    nsys, part = find_nsys(), target.with_name(f".{target.stem}.{locks.new_mark()}{_PART}")
    if nsys is None:
        raise UnusableInputError(
            f"{file_name(path)} is an Nsight Systems report, which needs nsys to open; nsys is not installed",
            hint=f"run nsys export --type=sqlite {path.name} elsewhere, then import {export_path(path).name}",
        )
    _delete_abandoned(target)
    command = [nsys, "export", "--type=sqlite", "--lazy=false", "--force-overwrite=true"]
    with write_atomically(target, temporary=part):
        done = subprocess.run(  # noqa: S603 (the tool the user installed)
            [*command, f"--output={part}", str(path)],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            errors="replace",
            check=False,
        )
        if done.returncode or not part.is_file():
            output = " ".join((done.stderr or done.stdout).split())[-_MAX_OUTPUT_CHARS:] or "no message"
            message = f"nsys could not export {file_name(path)} (exit code {done.returncode}): {output}"
            hint = f"export the report where it was recorded: nsys export --type=sqlite {path.name}"
            raise UnusableInputError(message, hint=hint)
    return target


def _delete_abandoned(target: Path) -> None:
    """Delete files of killed exports of the same report."""
    front = f".{target.stem}."
    for path in target.parent.iterdir():
        mark = path.name.removeprefix(front).removesuffix(_PART)
        if path.name == f"{front}{mark}{_PART}" and locks.is_dead(mark):
            path.unlink(missing_ok=True)


_MAGIC = b"SQLite format 3\0"


def is_nsys(path: Place) -> bool:
    """Return whether this reader reads a path: a SQLite database, a report, or a folder of tables."""
    match storage.kind(path):
        case storage.Kind.FOLDER:
            return is_parquet_export(path)
        case storage.Kind.FILE:
            return is_report(path) or is_sqlite(path)
        case _:
            return False


def is_sqlite(path: Place) -> bool:
    """Return whether a file starts like a SQLite database."""
    with convert_errors(path), path.open("rb") as file:
        return file.read(len(_MAGIC)) == _MAGIC


def is_parquet_export(path: Place) -> bool:
    """Return whether a folder contains the tables of an export."""
    try:
        inside = {file.name: file for file in path.glob(f"*{SUFFIX}")}
    except OSError:
        return False
    wanted = (inside.get(f"{table}{SUFFIX}") for table in TABLES | MARKS)
    return any(file is not None and storage.kind(file) is storage.Kind.FILE for file in wanted)
