"""Reading a file on object storage from front to back: the next blocks are on their way while one is used."""

from __future__ import annotations

import io
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

from .failures import reason

if TYPE_CHECKING:
    from concurrent.futures import Future

    from .remote import RemotePath

BLOCK = 4 << 20
"""Bytes that one request brings."""
AHEAD = 4
"""Blocks asked for beyond the one in use: what is held is bounded by this."""


class RemoteFile(io.RawIOBase):
    """A file on object storage as Python reads files.

    Each block is one request for a range, whichever thread makes it. Reading somewhere else begins anew there;
    only reading on has blocks asked for in advance, so that a look at a head or a tail costs one request.
    """

    def __init__(self, path: RemotePath) -> None:
        super().__init__()
        self._file: Any = path.filesystem.open_input_file(path.key)
        self._size: int = self._file.size()
        self._at = 0
        self._blocks: dict[int, Future[bytes]] = {}
        self._last = -1
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
        number, skipped = divmod(self._at, BLOCK)
        try:
            block = self._block(number)
        except OSError as error:
            raise OSError(reason(error)) from error
        piece = memoryview(block)[skipped : skipped + len(room)]
        room[: len(piece)] = piece
        self._at += len(piece)
        return len(piece)

    def _block(self, number: int) -> bytes:
        ahead = AHEAD if self._reading_on(number) else 0
        wanted = range(number, min(number + ahead, (self._size - 1) // BLOCK) + 1)
        for old in self._blocks.keys() - set(wanted):
            self._blocks.pop(old).cancel()
        for one in wanted:
            if one not in self._blocks:
                self._blocks[one] = self._threads.submit(self._fetched, one)
        self._last = number
        return self._blocks[number].result()

    def _reading_on(self, number: int) -> bool:
        """Whether the block follows the one before, or is one of those asked for in advance."""
        return 0 < number <= self._last + 1 and (number == self._last + 1 or len(self._blocks) > 1)

    def _fetched(self, number: int) -> bytes:
        start = number * BLOCK
        content: bytes = self._file.read_at(min(BLOCK, self._size - start), start)
        return content

    def close(self) -> None:
        """Let the blocks go and close the file."""
        if not self.closed:
            self._threads.shutdown(wait=True, cancel_futures=True)
            self._blocks.clear()
            self._file.close()
        super().close()
