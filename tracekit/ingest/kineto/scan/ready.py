"""The scanner when it is ready: compiled once for a machine, loaded in the background, never waited for.

Compiling takes seconds and is kept in the user's cache folder, by the content of the files that are compiled
(Numba itself only looks at the file of the function that is called). A trace that is not large is decoded by
the reference before a compiler would be done, so for such a one the scanner is loaded, but not compiled.
"""

from __future__ import annotations

import hashlib
import importlib
import os
import sys
import threading
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from tracekit.ingest.kineto.scan.scanner import Scanner

WORTH_COMPILING = 160 << 20
"""Bytes of text (of which a gzipped trace has about a tenth) whose decoding takes longer than compiling."""
_KEPT = "*.nbi"


def cache() -> Path:
    """Where compiled code is kept: a folder for each version of the scanner and of what compiles it."""
    root = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    digest = hashlib.sha256(sys.version.encode())
    for file in sorted(Path(__file__).parent.glob("*.py")):
        digest.update(file.read_bytes())
    return root / "tracekit" / "scan" / digest.hexdigest()[:16]


def is_compiled() -> bool:
    """Whether the scanner only needs to be loaded."""
    return any(cache().rglob(_KEPT))


class Scanners:
    """A scanner for each thread, from the moment on at which they are ready."""

    def __init__(self) -> None:
        self._make: Callable[[], Scanner] | None = None
        self._mine = threading.local()
        self._thread = threading.Thread(target=self._load, name="tracekit-scanner")

    def start(self, *, compiling: bool) -> None:
        """Begin to load, and to compile where that is asked for and needed."""
        if compiling or is_compiled():
            self._thread.start()

    def _load(self) -> None:
        with suppress(Exception):  # whatever a compiler may lack here, the reference decodes the trace
            self.use(load())

    def use(self, make: Callable[[], Scanner]) -> None:
        """Give every thread that asks from now on a scanner of its own."""
        self._make = make

    def mine(self) -> Scanner | None:
        """This thread's scanner; None as long as there is none."""
        if self._make and not hasattr(self._mine, "scanner"):
            self._mine.scanner = self._make()
        return getattr(self._mine, "scanner", None)

    def close(self) -> None:
        """Wait until nothing runs in the background."""
        if self._thread.ident is not None:
            self._thread.join()


@contextmanager
def scanners(size: int) -> Iterator[Scanners]:
    """Scanners for traces of so many bytes; none where that is 0."""
    found = Scanners()
    if size:
        found.start(compiling=size >= WORTH_COMPILING)
    try:
        yield found
    finally:
        found.close()


def load() -> type[Scanner]:
    """The scanner, compiled now where it is not yet."""
    from numba import config

    module = importlib.import_module("tracekit.ingest.kineto.scan.scanner")
    before, config.CACHE_DIR = config.CACHE_DIR, str(cache())
    try:
        module.scan.enable_caching()
    finally:
        config.CACHE_DIR = before  # a program's own functions are kept where it wants them
    module.warm()
    made: type[Scanner] = module.Scanner
    return made
