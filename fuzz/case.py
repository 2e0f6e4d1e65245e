"""One input: the files that a reader is given, and how it is kept as one small file."""

from __future__ import annotations

import io
import zipfile
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path

_TIME = (1980, 1, 1, 0, 0, 0)
"""Of every member, so that the same input gives the same bytes."""


@dataclass(frozen=True, kw_only=True)
class Case:
    """An input.

    Attributes:
        files: Content by relative path.
        main: What the reader is given: a path of `files`, or a folder of them.
        words: What is asked for besides: words of a command line.
    """

    files: dict[str, bytes]
    main: str
    words: tuple[str, ...] = ()

    @property
    def size(self) -> int:
        """Bytes of all files."""
        return sum(map(len, self.files.values()))

    def lay(self, folder: Path) -> Path:
        """Write the files; returns what the reader is given."""
        for name, content in self.files.items():
            path = folder / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(content)
        return folder / self.main

    def packed(self) -> bytes:
        """The input as one zip archive, which `unpacked` reads.

        Example:
            >>> case = Case(files={"a/b": b"c"}, main="a", words=("show",))
            >>> unpacked(case.packed()) == case
            True
        """
        stream = io.BytesIO()
        with zipfile.ZipFile(stream, "w", zipfile.ZIP_DEFLATED) as archive:
            archive.comment = "\n".join((self.main, *self.words)).encode()
            for name, content in sorted(self.files.items()):
                archive.writestr(zipfile.ZipInfo(name, _TIME), content, zipfile.ZIP_DEFLATED)
        return stream.getvalue()


def unpacked(content: bytes) -> Case:
    """The input that `Case.packed` has packed."""
    with zipfile.ZipFile(io.BytesIO(content)) as archive:
        main, *words = archive.comment.decode().split("\n")
        files = {name: archive.read(name) for name in archive.namelist()}
    return Case(files=files, main=main, words=tuple(words))
