"""Load the compiled code where it is cached, else compile it in a separate process while the import runs.

Compiling takes seconds, once per machine; the reference decoder decodes until it is done. The separate
process takes no time from this one's threads, nobody waits for it, and it can be killed at any moment. This
module loads neither Numba nor LLVM until they are needed.
"""

from __future__ import annotations

import json
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING

import numpy as np

from tracekit.ingest.link.nesting import Ints, Nest, nest_rows

if TYPE_CHECKING:
    from tracekit.ingest.kineto.scan.scanner import Scanner


WORTH_COMPILING = 64 << 20
"""Bytes of a trace from which on the decoder is compiled: further traces as large are likely to follow."""
COMPILE = """
import json, sys
sys.path[:] = json.loads(sys.argv[1])
from tracekit.ingest.kineto.scan import native
native.compiled()
"""


class Scanners:
    """One scanner per thread, once the compiled code is available.

    Args:
        make: Creates a thread's scanner; without it, none has one until `start` has loaded the compiled code.
    """

    def __init__(self, make: Callable[[], Scanner] | None = None) -> None:
        self._make = make
        self._local = threading.local()
        self._compiler: subprocess.Popen[bytes] | None = None
        self._lock = threading.Lock()

    def start(self, *, compiling: bool) -> None:
        """Load the compiled code; if there is none, start to compile it where asked for and cacheable."""
        with suppress(Exception):  # whatever a machine may lack for this, the reference decodes the trace
            from tracekit.ingest.kineto.scan import native

            if native.is_compiled():
                self._make = load()
            elif compiling and native.can_be_kept():
                self._compiler = _start_compiler()

    def mine(self) -> Scanner | None:
        """Return this thread's scanner; None as long as the compiled code is not available."""
        if self._compiler:
            self._poll_compiler()
        if self._make and not hasattr(self._local, "scanner"):
            self._local.scanner = self._make()
        return getattr(self._local, "scanner", None)

    def nest(self) -> Nest:
        """Return what finds nesting: compiled if the scanners are."""
        return nest_rows if self._make is None else nest()

    def _poll_compiler(self) -> None:
        """Load the compiled code once the compiler has ended; one that failed is not started again."""
        with self._lock:
            if self._compiler and self._compiler.poll() is not None:
                self._compiler = None
                self.start(compiling=False)

    def wait(self) -> None:
        """Wait for the compiler."""
        if compiler := self._compiler:
            compiler.wait()

    def leave(self) -> None:
        """Let the compiler finish in the background, for the next trace."""
        if self._compiler:
            threading.Thread(target=self.wait, name="tracekit-compiler", daemon=True).start()

    def close(self) -> None:
        """Kill the compiler if it is still running."""
        if compiler := self._compiler:
            compiler.kill()
            compiler.wait()


def _start_compiler() -> subprocess.Popen[bytes]:
    return subprocess.Popen(  # noqa: S603 (our own code)
        [sys.executable, "-c", COMPILE, json.dumps(sys.path)],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,  # Ctrl-C is the parent's to handle, from the first moment on
    )


@contextmanager
def scanners(size: int) -> Iterator[Scanners]:
    """Provide scanners for a trace of so many bytes; the compiler outlives a successful import only."""
    started = Scanners()
    try:
        if size:
            started.start(compiling=size >= WORTH_COMPILING)
        yield started
    except BaseException:
        started.close()
        raise
    started.leave()


def load() -> type[Scanner]:
    """Load the scanner, compiling it now if it is not cached."""
    from tracekit.ingest.kineto.scan import native
    from tracekit.ingest.kineto.scan.scanner import Scanner

    native.load()
    return Scanner


def nest() -> Nest:
    """Return what finds nesting in this process: compiled if the compiled code is cached."""
    with suppress(Exception):
        from tracekit.ingest.kineto.scan import native

        if native.is_compiled():
            return CompiledNest()
    return nest_rows


class CompiledNest:
    """The compiled `nesting.nest_rows`: row by row, several times faster than by pointer jumping."""

    def __init__(self) -> None:
        from tracekit.ingest.kineto.scan import native

        self._code = native.load()

    def __reduce__(self) -> tuple[Callable[[], Nest], tuple[()]]:
        """Let another process use its own compiled code, or none."""
        return nest, ()

    def __call__(
        self, thread: Ints, start: Ints, end: Ints, known_depths: Ints, values: Sequence[Ints]
    ) -> tuple[Ints, Ints, list[Ints]]:
        """See `nesting.nest_rows`."""
        count = len(thread)
        parent, depth = np.empty(count, np.int64), np.empty(count, np.int64)
        depth[: len(known_depths)] = known_depths
        latest = np.full(int(thread.max(initial=-1)) + 1, -1)
        # Kept in a variable: the compiled code gets addresses, which keep no array alive.
        columns = [np.ascontiguousarray(column, np.int64) for column in (thread, start, end)]
        addresses = [column.ctypes.data for column in (*columns, parent, depth, latest)]
        self._code.nest(count, len(known_depths), *addresses)
        return parent, depth, [self._inherited(parent, column) for column in values]

    def _inherited(self, parent: Ints, column: Ints) -> Ints:
        values = np.ascontiguousarray(column, np.int64)
        self._code.inherit(len(values), parent.ctypes.data, values.ctypes.data)
        return values
