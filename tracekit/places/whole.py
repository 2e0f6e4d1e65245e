"""Putting a file in place so that nobody ever sees half of it, on a disk as on object storage."""

from __future__ import annotations

import os
import secrets
import tempfile
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from .failures import reason
from .remote import RemoteError

if TYPE_CHECKING:
    from collections.abc import Iterator

    import pyarrow.fs as pafs

    from .remote import Place, RemotePath

_BLOCK = 8 << 20


@contextmanager
def put(place: Place) -> Iterator[Path]:
    """A file of this machine to write, which is put in place when it is written without an error.

    On a disk it is renamed from beside; on object storage it is sent as one object from the temporary folder.
    Writing the same place twice, even at once from two processes, leaves one of the two, whole.

    Args:
        place: Where it goes; the folder is made.

    Raises:
        OSError: It cannot be written or sent.

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
    """Send a file of this machine to object storage, where it is seen when all of it is there.

    Raises:
        OSError: It cannot be read or sent.
    """
    from pyarrow import fs as pafs

    # One call that nothing interrupts: a stream that is closed half-way would be seen.
    _copy(str(file), pafs.LocalFileSystem(), place.key, place.filesystem)


def move(file: Path, place: Place) -> None:
    """Put a file of this machine in place, which is renamed on the same disk and sent elsewhere.

    Raises:
        OSError: It cannot be.
    """
    if isinstance(place, Path):
        file.rename(place)
    else:
        send(file, place)
        file.unlink()


def fetch(place: Place, folder: Path) -> Path:
    """A place on this machine, where it may be read by what reads only such: itself, or a copy of it.

    Args:
        place: A file, or a folder of files.
        folder: An existing folder, which takes the copy of what lies on object storage.

    Raises:
        OSError: It cannot be read, or not be written here.
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
