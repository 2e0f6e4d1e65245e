"""Inputs that find new paths through the readers: atheris (libFuzzer) decides, by coverage, what is made.

    python -m fuzz.guided kineto [CORPUS] [-runs=N] [-max_total_time=SECONDS]

The random numbers that `make` asks for are taken from the fuzzer's bytes, so that it learns which lead on.
"""

from __future__ import annotations

import shutil
import sys
from pathlib import Path
from random import Random
from tempfile import TemporaryDirectory
from typing import Any

from tracekit.errors import MissingDependencyError

_FIRST, _LENGTH = 64, 2048


class Told(Random):
    """Random numbers that are told: bytes of the fuzzer's, zeros when there are none left.

    Example:
        >>> Told(b"").random()
        0.0
    """

    def __init__(self, told: bytes) -> None:
        self._told, self._at = told, 0
        super().__init__(0)

    def getrandbits(self, k: int, /) -> int:
        """So many bits of what is told."""
        size = (k + 7) // 8
        piece = self._told[self._at : self._at + size]
        self._at += size
        return int.from_bytes(piece.ljust(size, b"\0"), "little") & ((1 << k) - 1)

    def random(self) -> float:
        """A number from 0 up to, not including, 1."""
        return self.getrandbits(53) / (1 << 53)


def _beginning(folder: Path) -> str:
    """A corpus to begin with, where none is given: bytes of all kinds."""
    corpus = folder / "corpus"
    corpus.mkdir()
    for number in range(_FIRST):
        (corpus / str(number)).write_bytes(Random(number).randbytes(_LENGTH))
    return str(corpus)


def guide(arguments: list[str]) -> int:
    """Fuzz a reader until it fails or is told to stop; arguments are its name and libFuzzer's own.

    Raises:
        MissingDependencyError: atheris is not installed.
    """
    try:
        import atheris
    except ImportError as error:
        raise MissingDependencyError("atheris is not installed", hint="pip install atheris") from error
    name, *rest = arguments or ["kineto"]
    with atheris.instrument_imports(include=["tracekit.ingest", "tracekit.runs.meta", "tracekit.runs.store"]):
        from fuzz.readers import reader

        by = reader(name)
    with TemporaryDirectory(prefix="tracekit-fuzz-") as folder:
        place = Path(folder) / "input"
        begun = rest if any(not word.startswith("-") for word in rest) else [_beginning(Path(folder)), *rest]

        def one(told: bytes) -> None:
            shutil.rmtree(place, ignore_errors=True)
            place.mkdir()
            by.read(by.make(Told(told)), place)

        setup: Any = atheris.Setup
        setup([sys.argv[0], "-rss_limit_mb=4096", "-timeout=10", *begun], one)
        atheris.Fuzz()
    return 0


if __name__ == "__main__":
    sys.exit(guide(sys.argv[1:]))
