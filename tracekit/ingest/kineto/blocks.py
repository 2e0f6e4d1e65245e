"""Gzip files made of blocks that tell their size (as bgzip writes them), inflated several at a time.

A block is a whole gzip member of at most 64 KB of text, whose header has its compressed size in a field named
BC (SAM/BAM specification, section 4.1): where the next one starts is known before this one is inflated.
"""

from __future__ import annotations

import struct
from collections import deque
from concurrent.futures import ThreadPoolExecutor
from itertools import islice
from typing import TYPE_CHECKING

import msgspec
from isal import isal_zlib
from isal.igzip_lib import IsalError

if TYPE_CHECKING:
    import io
    from collections.abc import Iterator
    from concurrent.futures import Future

_HEADER = struct.Struct("<4s5xBH2sHH")
"""Magic with the flag of a field, its length, and the field: name, length, the block's size less one."""
_MAGIC, _FIELD, _FIELD_BYTES = b"\x1f\x8b\x08\x04", b"BC", 2
HEADER_BYTES = _HEADER.size
_GZIP_FORMAT = 31  # zlib's window size for a gzip header and trailer
BLOCK_TEXT = 1 << 16
"""Bytes of text that a block has at most, by the specification; what has more is read as any other member."""
_GROUP = 1 << 20
"""Compressed bytes that a thread takes at a time."""
_BLOCKS = 512
"""Blocks that a thread takes at a time: 32 MiB of text at most, however few bytes they have."""


def block_bytes(header: bytes) -> int:
    """The size of the block that starts with this header; 0 when it is none.

    Example:
        >>> block_bytes(bytes.fromhex("1f8b08040000000000ff0600424302001b00"))
        28
    """
    if len(header) < HEADER_BYTES:
        return 0
    magic, _, extra, name, length, size = _HEADER.unpack_from(header)
    plain = extra == len(_FIELD) + 2 * _FIELD_BYTES  # the field is there alone
    return size + 1 if (magic, name, length) == (_MAGIC, _FIELD, _FIELD_BYTES) and plain else 0


def _groups(raw: io.BufferedReader) -> Iterator[bytes]:
    """Runs of whole blocks; ends where something else begins, with the file there."""
    group, blocks = bytearray(), 0
    while True:
        header = raw.read(HEADER_BYTES)
        block = header + raw.read(max(0, block_bytes(header) - HEADER_BYTES))
        if not block_bytes(header) or len(block) < block_bytes(header):
            raw.seek(-len(block), 1)
            break
        group += block
        blocks += 1
        if len(group) >= _GROUP or blocks >= _BLOCKS:
            yield bytes(group)
            group, blocks = bytearray(), 0
    if group:
        yield bytes(group)


class Inflated(msgspec.Struct, frozen=True):
    """A run of blocks.

    Attributes:
        text: What they inflate to, up to the first that is damaged.
        taken: Compressed bytes of those.
        left: Compressed bytes from that one on.
    """

    text: bytes
    taken: int
    left: int


def _inflated(group: bytes) -> Inflated:
    pieces, done = [], 0
    while done < len(group):
        size = block_bytes(group[done : done + HEADER_BYTES])
        try:
            pieces.append(_text_of(group[done : done + size]))
        except (IsalError, ValueError):  # type: ignore[misc]  # its stub forgets that it is one
            break
        done += size
    return Inflated(b"".join(pieces), done, len(group) - done)


def _text_of(block: bytes) -> bytes:
    """What a block inflates to.

    Raises:
        ValueError: More than a block holds, or something behind its text.
    """
    member = isal_zlib.decompressobj(wbits=_GZIP_FORMAT)
    text: bytes = member.decompress(block, BLOCK_TEXT + 1)
    if len(text) > BLOCK_TEXT or not member.eof or member.unused_data:
        raise ValueError("not a block as bgzip writes them")
    return text


def inflate(raw: io.BufferedReader, workers: int) -> Iterator[Inflated]:
    """Inflate blocks in order; ends where something else begins or is damaged, with the file there.

    Args:
        raw: The file, at a block; it must be one that can be read again.
        workers: Threads that inflate.
    """
    with ThreadPoolExecutor(workers, thread_name_prefix="tracekit-inflate") as threads:
        waiting: deque[tuple[int, Future[Inflated]]] = deque()
        groups = _groups(raw)
        while True:
            for group in islice(groups, workers - len(waiting)):
                waiting.append((len(group), threads.submit(_inflated, group)))
            if not waiting:
                return
            inflated = waiting.popleft()[1].result()
            yield inflated
            if inflated.left:
                raw.seek(-inflated.left - sum(size for size, _ in waiting), 1)
                return
