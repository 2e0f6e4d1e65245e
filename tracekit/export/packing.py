"""Compression of a stream as it is made."""

from __future__ import annotations

from typing import TYPE_CHECKING

from isal import isal_zlib

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

_GZIP = 31
"""Window bits that ask for a gzip header."""


def gzipped(pieces: Iterable[bytes]) -> Iterator[bytes]:
    """The pieces as one gzip file.

    Example:
        >>> import gzip
        >>> gzip.decompress(b"".join(gzipped([b"a", b"b"])))
        b'ab'
    """
    packer = isal_zlib.compressobj(1, isal_zlib.DEFLATED, _GZIP)
    for piece in pieces:
        packed = packer.compress(piece)
        if packed:
            yield packed
    yield packer.flush()
