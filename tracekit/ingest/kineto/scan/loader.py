"""The scanner when it is ready: loaded at once where its machine code is there, else compiled meanwhile.

Compiling takes seconds, once on a machine; the reference decodes until that is done. A process of its own
compiles: it takes nothing from this one's threads, nobody waits for it, and it can be ended at any moment.
"""

from __future__ import annotations

import json
import subprocess
import sys
import threading
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING

from tracekit.ingest.nesting import Jumping

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from tracekit.ingest.kineto.scan.scanner import Scanner
    from tracekit.ingest.nesting import Nest

WORTH_COMPILING = 64 << 20
"""Bytes of a trace that has the scanner compiled: who has one so large will have another."""
COMPILE = """
import json, sys
sys.path[:] = json.loads(sys.argv[1])
from tracekit.ingest.kineto.scan import native
native.compiled()
"""


class Scanners:
    """A scanner for each thread, from the moment on at which they are ready."""

    def __init__(self) -> None:
        self._make: Callable[[], Scanner] | None = None
        self._mine = threading.local()
        self._compiler: subprocess.Popen[bytes] | None = None
        self._looking = threading.Lock()

    def start(self, *, compiling: bool) -> None:
        """Load the scanner; begin to compile it where that is needed, asked for, and can be kept."""
        with suppress(Exception):  # whatever a machine may lack for this, the reference decodes the trace
            from tracekit.ingest.kineto.scan import native

            if native.is_compiled():
                self.use(load())
            elif compiling and native.can_be_kept():
                self._compiler = _compiler()

    def use(self, make: Callable[[], Scanner]) -> None:
        """Give every thread that asks from now on a scanner of its own."""
        self._make = make

    def mine(self) -> Scanner | None:
        """This thread's scanner; None as long as there is none."""
        if self._compiler:
            self._look()
        if self._make and not hasattr(self._mine, "scanner"):
            self._mine.scanner = self._make()
        return getattr(self._mine, "scanner", None)

    def nest(self) -> Nest:
        """How nesting is found: by machine code where that is loaded."""
        return Jumping() if self._make is None else nest()

    def _look(self) -> None:
        """Load what is compiled meanwhile; what could not be compiled never will be."""
        with self._looking:
            if self._compiler and self._compiler.poll() is not None:
                self._compiler = None
                self.start(compiling=False)

    def wait(self) -> None:
        """Wait for the compiler."""
        if compiler := self._compiler:
            compiler.wait()

    def leave(self) -> None:
        """Let the compiler come to its end by itself; the next trace has what it makes."""
        if self._compiler:
            threading.Thread(target=self.wait, name="tracekit-compiler", daemon=True).start()

    def close(self) -> None:
        """End the compiler if it still runs."""
        if compiler := self._compiler:
            compiler.kill()
            compiler.wait()


def _compiler() -> subprocess.Popen[bytes]:
    return subprocess.Popen(  # noqa: S603 (our own code)
        [sys.executable, "-c", COMPILE, json.dumps(sys.path)],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,  # Ctrl-C is the parent's to handle, from the first moment on
    )


@contextmanager
def scanners(size: int) -> Iterator[Scanners]:
    """Scanners for so many bytes of text; a compiler outlives imports that are done, not those that fail."""
    found = Scanners()
    try:
        if size:
            found.start(compiling=size >= WORTH_COMPILING)
        yield found
    except BaseException:
        found.close()
        raise
    found.leave()


def nest() -> Nest:
    """How nesting is found in this process: by machine code where there is any already."""
    with suppress(Exception):
        from tracekit.ingest.kineto.scan import native
        from tracekit.ingest.kineto.scan.nest import CompiledNest

        if native.is_compiled():
            return CompiledNest()
    return Jumping()


def load() -> type[Scanner]:
    """The scanner, compiled now where it is not yet."""
    from tracekit.ingest.kineto.scan import native
    from tracekit.ingest.kineto.scan.scanner import Scanner

    native.load()
    return Scanner
