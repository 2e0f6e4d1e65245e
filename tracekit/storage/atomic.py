"""Write files and folders atomically, locally and on object storage: they appear complete or not at all."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from tracekit.storage import locks
from tracekit.storage.remote import Place, copy_file

TEMPORARY = ".tmp-"
"""Prefix of names of temporary files and folders; the owner's mark follows."""


def temporary_path(folder: Path) -> Path:
    """Return a new path in a folder that is recognized as a leftover if this process is killed."""
    return folder / f"{TEMPORARY}{locks.new_mark()}"


@contextmanager
def write_atomically(path: Path, *, temporary: Path | None = None, durable: bool = False) -> Iterator[Path]:
    """Yield a temporary path, which is renamed to `path` at exit, or deleted after an error.

    Args:
        path: A file, which is replaced, or a folder, which must not exist or be empty.
        temporary: Path on the same disk; by default a new one in the same folder, which is created.
        durable: Flush the file to disk before it is renamed, so that it survives a crash of the machine.

    Raises:
        OSError: It cannot be written.

    Example:
        >>> with write_atomically(Path("/tmp/tracekit-example.txt")) as file:  # doctest: +SKIP
        ...     _ = file.write_text("whole")
    """
    if temporary is None:
        path.parent.mkdir(parents=True, exist_ok=True)
        temporary = temporary_path(path.parent)
    try:
        yield temporary
        if durable:
            with temporary.open("rb") as stream:
                os.fsync(stream.fileno())
        temporary.replace(path)
    finally:
        delete(temporary)  # nothing is there after the rename


def delete(path: Path) -> None:
    """Delete a folder or a file, ignoring errors; links are not followed."""
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path, ignore_errors=True)
    else:
        with suppress(OSError):
            path.unlink()


@contextmanager
def put(place: Place) -> Iterator[Path]:
    """Write a file atomically: yields a local file, which is renamed or uploaded to its place at exit.

    Of concurrent writes to the same place, one wins.

    Raises:
        OSError: The file cannot be written or uploaded.
    """
    if isinstance(place, Path):
        with write_atomically(place) as file:
            yield file
    else:
        with tempfile.TemporaryDirectory(prefix="tracekit-put-") as folder:
            file = Path(folder) / "file"  # object storage has no rename: only a complete file is uploaded
            yield file
            copy_file(file, place)


def move(file: Path, place: Place) -> None:
    """Move a local file atomically to a place, whose folder is created.

    Raises:
        OSError: The file cannot be moved or uploaded.
    """
    if isinstance(place, Path):
        with write_atomically(place) as target:
            shutil.move(file, target)
    else:
        copy_file(file, place)
        file.unlink()


def fetch(place: Place, folder: Path) -> Path:
    """Return a local path with the content of a place: itself, or a copy.

    Args:
        place: A file, or a folder of files.
        folder: Existing folder for copies from object storage.

    Raises:
        OSError: It cannot be read or copied.
    """
    if isinstance(place, Path):
        return place
    files = [path for path in place.iterdir() if path.is_file()] if place.is_dir() else []
    copy = folder / place.name
    for file in files:
        copy.mkdir(exist_ok=True)
        copy_file(file, copy / file.name)
    if not files:
        copy_file(place, copy)
    return copy
