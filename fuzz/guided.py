"""Coverage-guided fuzzing with atheris (libFuzzer).

    python -m fuzz.guided kineto [CORPUS] [-runs=N] [-max_total_time=SECONDS]

The random numbers of `make` are taken from the fuzzer's bytes, so that it can search for new code paths.
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


class BytesRandom(Random):
    """Random numbers taken from given bytes, then zeros.

    Example:
        >>> BytesRandom(b"").random()
        0.0
    """

    def __init__(self, content: bytes) -> None:
        self._content, self._at = content, 0
        super().__init__(0)

    def getrandbits(self, k: int, /) -> int:
        """The next `k` bits."""
        size = (k + 7) // 8
        piece = self._content[self._at : self._at + size]
        self._at += size
        return int.from_bytes(piece.ljust(size, b"\0"), "little") & ((1 << k) - 1)

    def random(self) -> float:
        """A number in [0, 1)."""
        return self.getrandbits(53) / (1 << 53)


def _initial_corpus(folder: Path) -> str:
    """Write an initial corpus of random bytes."""
    corpus = folder / "corpus"
    corpus.mkdir()
    for number in range(_FIRST):
        (corpus / str(number)).write_bytes(Random(number).randbytes(_LENGTH))
    return str(corpus)


def guide(arguments: list[str]) -> int:
    """Fuzz a reader until it fails or is stopped; arguments are its name and libFuzzer's options.

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

        target = reader(name)
    with TemporaryDirectory(prefix="tracekit-fuzz-") as folder:
        input_folder = Path(folder) / "input"
        options = (
            rest if any(not word.startswith("-") for word in rest) else [_initial_corpus(Path(folder)), *rest]
        )

        def read_one(content: bytes) -> None:
            shutil.rmtree(input_folder, ignore_errors=True)
            input_folder.mkdir()
            target.read(target.make(BytesRandom(content)), input_folder)

        setup: Any = atheris.Setup
        setup([sys.argv[0], "-rss_limit_mb=4096", "-timeout=10", *options], read_one)
        atheris.Fuzz()
    return 0


if __name__ == "__main__":
    sys.exit(guide(sys.argv[1:]))
