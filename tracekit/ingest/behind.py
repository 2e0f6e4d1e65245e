"""Work that is done in order in one other thread, beside what makes it."""

from __future__ import annotations

import queue
import threading
from typing import TYPE_CHECKING, Self

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import TracebackType

    Work = Callable[[], None]


class Behind:
    """Does pieces of work one after the other; who hands them over is at most `ahead` of it.

    The thread starts with the first piece. An error ends the work, and is raised where the next piece is
    handed over, or at the end.

    Example:
        >>> done = []
        >>> with Behind() as behind:
        ...     behind.do(lambda: done.append("first"))
        ...     behind.do(lambda: done.append("second"))
        >>> done
        ['first', 'second']
    """

    def __init__(self, *, ahead: int = 3) -> None:
        self._pieces: queue.Queue[Work | None] = queue.Queue(ahead)
        self._error: BaseException | None = None
        self._stopped = False
        self._thread = threading.Thread(target=self._run, name="tracekit-writer", daemon=True)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, _trace: TracebackType | None
    ) -> None:
        if error is not None:
            self.stop()
        if self._thread.is_alive():
            self._pieces.put(None)
            self._thread.join()
        if not self._stopped:
            self._check()

    def do(self, work: Work) -> None:
        """Hand over the next piece."""
        self._check()
        if not self._thread.is_alive():
            self._thread.start()
        self._pieces.put(work)

    def stop(self) -> None:
        """Leave what waits undone, whatever became of the piece that is being done."""
        self._stopped = True

    def _check(self) -> None:
        if self._error is not None:
            raise self._error

    def _run(self) -> None:
        while (work := self._pieces.get()) is not None:
            if self._stopped or self._error is not None:
                continue
            try:
                work()
            except BaseException as error:
                self._error = error
            del work
