"""Uploaded files: slices are appended in the store's dot folder, under safe names."""

from __future__ import annotations

import os
import re
import shutil
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from tracekit import owners
from tracekit.errors import UnusableInputError

if TYPE_CHECKING:
    from pathlib import Path
    from typing import BinaryIO

    from tracekit.store import Store

FOLDER = ".uploads"
_PIECE = 1 << 20
_UNSAFE = re.compile(r"[^A-Za-z0-9._+=-]+")


def safe(name: str) -> str:
    r"""Return a safe file name without folders.

    Example:
        >>> safe("../../etc/passwd"), safe("C:\\x\\rank 0.json.gz"), safe("..")
        ('passwd', 'rank_0.json.gz', 'trace')
    """
    last = re.split(r"[/\\]", name)[-1]
    return _UNSAFE.sub("_", last).lstrip(".-_")[-120:] or "trace"


@dataclass
class Upload:
    """Files of one import.

    Attributes:
        store: Store whose dot folder temporarily contains them.
        id: Id of the import; starts with the id of this process.
        limit: Maximum bytes of all files.
        received: Bytes received.
    """

    store: Store
    id: str
    limit: int
    received: int = 0
    _files: dict[str, Path] = field(default_factory=dict)

    @property
    def files(self) -> list[Path]:
        """The files, in order of their first slice."""
        return list(self._files.values())

    @property
    def folder(self) -> Path:
        """Folder of the files."""
        return self.store.beside / FOLDER / self.id

    def append(self, name: str, *, offset: int, size: int, body: BinaryIO) -> None:
        """Append a slice to a file.

        Args:
            name: Name of the file.
            offset: Offset of the slice.
            size: Size of the complete file.
            body: The slice.

        Raises:
            UnusableInputError: It is too large, out of order, or cannot be written.
        """
        self._check(self.received + size - offset)
        with self.store.writing():
            path = self._file(name)
            if offset != (path.stat().st_size if path.exists() else 0):
                raise UnusableInputError(f"part of {name[:200]} is missing", hint="drop the file again")
            with path.open("ab") as file:
                while piece := body.read(_PIECE):
                    self.received += len(piece)
                    self._check(self.received)  # the declared size may be wrong
                    file.write(piece)

    def discard(self) -> None:
        """Delete the files."""
        shutil.rmtree(self.folder, ignore_errors=True)

    def shown(self, message: str) -> str:
        """Remove the temporary folder from a message."""
        return re.sub(re.escape(f"{self.folder}{os.sep}") + r"\d+/", "", message)

    def _check(self, wanted: int) -> None:
        if wanted > self.limit:
            raise UnusableInputError(
                f"the traces are larger than the upload limit of {self.limit / (1 << 30):.3g} GiB",
                hint="use `tracekit import PATH`, or start `tracekit dashboard` with a larger --upload-limit",
            )

    def _file(self, name: str) -> Path:
        if name not in self._files:
            parent = self.store.folder(FOLDER)
            _sweep(parent)
            place = self.folder / str(len(self._files))  # two files may have the same name
            place.mkdir(parents=True)
            self._files[name] = place / safe(name)
        return self._files[name]


def _sweep(parent: Path) -> None:
    """Delete uploads of servers that no longer run."""
    for entry in parent.iterdir():
        if owners.is_dead(entry.name):
            shutil.rmtree(entry, ignore_errors=True)
