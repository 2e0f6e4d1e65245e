"""Fuzz input: the files given to a reader, saved as one zip archive."""

from __future__ import annotations

import io
import zipfile
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path

_TIME = (1980, 1, 1, 0, 0, 0)
"""Time of every member, so that equal inputs have equal bytes."""


@dataclass(frozen=True, kw_only=True)
class Case:
    """An input.

    Attributes:
        files: Content by relative path.
        main: Path given to the reader: one of `files`, or a folder of them.
        words: Further arguments.
    """

    files: dict[str, bytes]
    main: str
    words: tuple[str, ...] = ()

    @property
    def size(self) -> int:
        """Bytes of all files."""
        return sum(map(len, self.files.values()))

    def write(self, folder: Path) -> Path:
        """Write the files; returns the path given to the reader."""
        for name, content in self.files.items():
            path = folder / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(content)
        return folder / self.main

    def pack(self) -> bytes:
        """Pack the input into a zip archive; inverse of `unpack`.

        Example:
            >>> case = Case(files={"a/b": b"c"}, main="a", words=("show",))
            >>> unpack(case.pack()) == case
            True
        """
        stream = io.BytesIO()
        with zipfile.ZipFile(stream, "w", zipfile.ZIP_DEFLATED) as archive:
            archive.comment = "\n".join((self.main, *self.words)).encode()
            for name, content in sorted(self.files.items()):
                archive.writestr(zipfile.ZipInfo(name, _TIME), content, zipfile.ZIP_DEFLATED)
        return stream.getvalue()


def unpack(content: bytes) -> Case:
    """Unpack an input packed by `Case.pack`."""
    with zipfile.ZipFile(io.BytesIO(content)) as archive:
        main, *words = archive.comment.decode().split("\n")
        files = {name: archive.read(name) for name in archive.namelist()}
    return Case(files=files, main=main, words=tuple(words))
