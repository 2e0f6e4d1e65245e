"""Atomic writes to local and object storage, and downloads."""

from __future__ import annotations

import os
import secrets
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from tracekit.storage.filesystems import RemoteError, reason

if TYPE_CHECKING:
    import pyarrow.fs as pafs

    from tracekit.storage.remote import Place, RemotePath


_BLOCK = 8 << 20


@contextmanager
def put(place: Place) -> Iterator[Path]:
    """Write a file atomically: yields a temporary file, which is moved to its place at exit without an error.

    A local file is renamed from the same folder; on object storage it is uploaded as one object. Of
    concurrent writes to the same place, one wins.

    Args:
        place: Destination; its folder is created.

    Raises:
        OSError: The file cannot be written or uploaded.

    Example:
        >>> with put(Path("/tmp/tracekit-example.txt")) as file:  # doctest: +SKIP
        ...     _ = file.write_text("whole")
    """
    if isinstance(place, Path):
        with _beside(place) as file:
            yield file
    else:
        with tempfile.TemporaryDirectory(prefix="tracekit-put-") as folder:
            file = Path(folder) / "file"
            yield file
            send(file, place)


@contextmanager
def _beside(place: Path) -> Iterator[Path]:
    place.parent.mkdir(parents=True, exist_ok=True)
    temporary = place.with_name(f".{place.name}.{os.getpid()}-{secrets.token_hex(4)}")
    try:
        yield temporary
        temporary.replace(place)
    finally:
        temporary.unlink(missing_ok=True)


def send(file: Path, place: RemotePath) -> None:
    """Upload a local file to object storage atomically.

    Raises:
        OSError: The file cannot be read or uploaded.
    """
    from pyarrow import fs as pafs

    # One uninterruptible call: closing a stream early would publish a partial object.
    _copy(str(file), pafs.LocalFileSystem(), place.key, place.filesystem)


def move(file: Path, place: Place) -> None:
    """Move a local file: rename it on the same disk, else upload it.

    Raises:
        OSError: The file cannot be moved.
    """
    if isinstance(place, Path):
        file.rename(place)
    else:
        send(file, place)
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
    files = [one for one in place.iterdir() if one.is_file()] if place.is_dir() else []
    copy = folder / place.name
    for file in files:
        copy.mkdir(exist_ok=True)
        _bring(file, copy / file.name)
    if not files:
        _bring(place, copy)
    return copy


def _bring(place: RemotePath, target: Path) -> None:
    from pyarrow import fs as pafs

    _copy(place.key, place.filesystem, str(target), pafs.LocalFileSystem())


def _copy(source: str, here: pafs.FileSystem, target: str, there: pafs.FileSystem) -> None:
    from pyarrow import fs as pafs

    try:
        pafs.copy_files(
            source,
            target,
            source_filesystem=here,
            destination_filesystem=there,
            chunk_size=_BLOCK,
            use_threads=False,
        )
    except OSError as error:
        raise RemoteError(reason(error)) from error
