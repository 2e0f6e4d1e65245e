"""The scanner when it is ready: loaded at once where its machine code is there, else compiled meanwhile.

Compiling takes seconds. The reference has decoded a trace that is not large before a compiler would be done,
so only a large one has the scanner compiled, once on a machine; the reference decodes until that is done.
"""

from __future__ import annotations

import threading
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from tracekit.ingest.kineto.scan.scanner import Scanner

WORTH_COMPILING = 64 << 20
"""Bytes of a trace whose decoding takes longer than compiling."""


class Scanners:
    """A scanner for each thread, from the moment on at which they are ready."""

    def __init__(self) -> None:
        self._make: Callable[[], Scanner] | None = None
        self._mine = threading.local()
        self._thread = threading.Thread(target=self._load_quietly, name="tracekit-scanner")

    def start(self, *, compiling: bool) -> None:
        """Load the scanner; begin to compile it where that is needed, and asked for."""
        with suppress(Exception):  # whatever a machine may lack for this, the reference decodes the trace
            from tracekit.ingest.kineto.scan import native

            if native.is_compiled():
                self._load()
            elif compiling:
                self._thread.start()

    def _load_quietly(self) -> None:
        with suppress(Exception):
            self._load()

    def _load(self) -> None:
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
    """Scanners for traces of so many bytes."""
    found = Scanners()
    found.start(compiling=size >= WORTH_COMPILING)
    try:
        yield found
    finally:
        found.close()


def load() -> type[Scanner]:
    """The scanner, compiled now where it is not yet."""
    from tracekit.ingest.kineto.scan import native
    from tracekit.ingest.kineto.scan.scanner import Scanner

    native.load()
    return Scanner
