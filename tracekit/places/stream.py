"""Reading a file on object storage: the next blocks are on their way while one is used."""

from __future__ import annotations

import io
from collections import deque
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

from .failures import reason

if TYPE_CHECKING:
    from concurrent.futures import Future

    from .remote import RemotePath

ROOM = 256 << 10
"""Bytes of a request while it is not known whether reading goes on."""
BLOCK = 1 << 20
"""Bytes of a request once it does."""
AHEAD = 8
"""Requests under way then, at most, which bounds what is held; they grow in number as reading goes on."""
_LOOKING = 4
"""Reads that follow each other before reading is taken to go on."""


class RemoteFile(io.RawIOBase):
    """A file on object storage as Python reads files.

    A look at a head or a tail brings just that; reading on from there has the next blocks asked for in
    advance, each by a request of its own, whatever the size of the file.
    """

    def __init__(self, path: RemotePath) -> None:
        super().__init__()
        self._file: Any = path.filesystem.open_input_file(path.key)
        self._size: int = self._file.size()
        self._at = self._expected = self._streak = 0
        self._blocks: deque[Future[bytes]] = deque()
        self._next = self._used = 0
        self._threads = ThreadPoolExecutor(AHEAD, "tracekit-read")

    def readable(self) -> bool:
        """It is."""
        return True

    def seekable(self) -> bool:
        """It is."""
        return True

    def tell(self) -> int:
        """Where reading goes on."""
        return self._at

    def seek(self, offset: int, whence: int = io.SEEK_SET, /) -> int:
        """Go on reading elsewhere."""
        start = {io.SEEK_SET: 0, io.SEEK_CUR: self._at, io.SEEK_END: self._size}[whence]
        self._at = max(0, start + offset)
        return self._at

    def readinto(self, room: Any, /) -> int:
        """Read up to as much as there is room for; 0 only at the end.

        Raises:
            OSError: The service refuses, or stopped answering.
        """
        if self._at >= self._size:
            return 0
        try:
            piece = self._piece(len(room))
        except OSError as error:
            raise OSError(reason(error)) from error
        room[: len(piece)] = piece
        self._at = self._expected = self._at + len(piece)
        return len(piece)

    def _piece(self, most: int) -> memoryview:
        if self._at != self._expected:
            self._forget()
        self._streak += 1
        if self._streak <= _LOOKING:
            return memoryview(self._fetched(self._at, min(most, BLOCK)))
        if not self._blocks:
            self._next, self._used = self._at, 0
        self._ask()
        block = self._blocks[0].result()
        piece = memoryview(block)[self._used : self._used + most]
        self._used += len(piece)
        if self._used >= len(block):
            self._blocks.popleft()
            self._used = 0
        return piece

    def _ask(self) -> None:
        wanted = min(AHEAD, 1 + (self._streak - _LOOKING) // 4)
        while len(self._blocks) <= wanted and self._next < self._size:
            self._blocks.append(self._threads.submit(self._fetched, self._next, BLOCK))
            self._next += BLOCK

    def _fetched(self, start: int, most: int) -> bytes:
        content: bytes = self._file.read_at(min(most, self._size - start), start)
        return content

    def _forget(self) -> None:
        self._streak = 0
        while self._blocks:
            self._blocks.pop().cancel()

    def close(self) -> None:
        """Let the blocks go and close the file."""
        if not self.closed:
            self._forget()
            self._threads.shutdown(wait=True)
            self._file.close()
        super().close()
