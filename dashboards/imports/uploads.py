"""Files on their way into the store: slices are appended in its dot folder, under safe names."""

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
    r"""A file name that is only a name: what could lead elsewhere is replaced.

    Example:
        >>> safe("../../etc/passwd"), safe("C:\\x\\rank 0.json.gz"), safe("..")
        ('passwd', 'rank_0.json.gz', 'trace')
    """
    last = re.split(r"[/\\]", name)[-1]
    return _UNSAFE.sub("_", last).lstrip(".-_")[-120:] or "trace"


@dataclass
class Upload:
    """The files of one import.

    Attributes:
        store: Whose dot folder holds them meanwhile.
        id: Names the import; begins with the id of this process.
        limit: Bytes at most, of all files.
        received: Bytes so far.
    """

    store: Store
    id: str
    limit: int
    received: int = 0
    _files: dict[str, Path] = field(default_factory=dict)

    @property
    def files(self) -> list[Path]:
        """The files, in the order in which they began."""
        return list(self._files.values())

    @property
    def folder(self) -> Path:
        """Where they are."""
        return self.store.beside / FOLDER / self.id

    def append(self, name: str, *, offset: int, size: int, body: BinaryIO) -> None:
        """Take a slice of a file.

        Args:
            name: The file; a new one begins it.
            offset: Bytes of it that came before.
            size: Bytes it will have.
            body: The slice.

        Raises:
            UnusableInputError: It is too large, does not fit what came before, or cannot be kept.
        """
        self._check(self.received + size - offset)
        with self.store.writing():
            path = self._file(name)
            if offset != (path.stat().st_size if path.exists() else 0):
                raise UnusableInputError(f"a part of {name[:200]} is missing", hint="drop the file again")
            with path.open("ab") as file:
                while piece := body.read(_PIECE):
                    self.received += len(piece)
                    self._check(self.received)  # whatever was said before
                    file.write(piece)

    def discard(self) -> None:
        """Delete the files."""
        shutil.rmtree(self.folder, ignore_errors=True)

    def shown(self, message: str) -> str:
        """A message about one of the files, without where it lies meanwhile."""
        return re.sub(re.escape(f"{self.folder}{os.sep}") + r"\d+/", "", message)

    def _check(self, wanted: int) -> None:
        if wanted > self.limit:
            raise UnusableInputError(
                f"traces of over {self.limit / (1 << 30):.3g} GiB are not taken here",
                hint="use `tracekit import PATH`, or start `tracekit dashboard` with a larger --upload-limit",
            )

    def _file(self, name: str) -> Path:
        if name not in self._files:
            parent = self.store.folder(FOLDER)
            _sweep(parent)
            place = self.folder / str(len(self._files))  # two files may have one name
            place.mkdir(parents=True)
            self._files[name] = place / safe(name)
        return self._files[name]


def _sweep(parent: Path) -> None:
    """Delete what servers that are gone have left."""
    for entry in parent.iterdir():
        if owners.is_dead(entry.name):
            shutil.rmtree(entry, ignore_errors=True)
