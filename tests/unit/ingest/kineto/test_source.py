"""Gzip in blocks (bgzip): read like plain gzip, also if damaged."""

from __future__ import annotations

import gzip
import struct
import zlib
from typing import TYPE_CHECKING

import pytest

from tracekit.ingest.kineto.source import open_trace

if TYPE_CHECKING:
    from pathlib import Path

TEXT = b"".join(b'{"ph": "X", "ts": %d}, ' % number for number in range(200_000))


def block(text: bytes) -> bytes:
    """A block as the SAM/BAM specification has it."""
    body = zlib.compress(text, wbits=-15)
    size = 18 + len(body) + 8
    header = b"\x1f\x8b\x08\x04" + bytes(4) + b"\x00\xff" + struct.pack("<H2sHH", 6, b"BC", 2, size - 1)
    return header + body + struct.pack("<II", zlib.crc32(text), len(text))


def blocked(text: bytes, *, size: int = 60_000) -> bytes:
    return b"".join(block(text[start : start + size]) for start in range(0, len(text), size)) + block(b"")


def test_blocks_are_valid_gzip() -> None:
    assert gzip.decompress(blocked(TEXT)) == TEXT


@pytest.mark.parametrize(
    "after", [b"", gzip.compress(b"more", mtime=0), bytes(100)], ids=["nothing", "gzip", "zeros"]
)
def test_a_blocked_trace_reads_like_plain_gzip(after: bytes, tmp_path: Path) -> None:
    path = tmp_path / "trace.json.gz"
    path.write_bytes(blocked(TEXT) + after)
    with open_trace(path) as stream:
        read = b"".join(iter(lambda: stream.read(70_001), b""))
    assert read == TEXT + (b"more" if after.startswith(b"\x1f") else b"")
    assert stream.damage == ""


def test_text_before_damage_is_read(tmp_path: Path) -> None:
    content = blocked(TEXT)
    path = tmp_path / "trace.json.gz"
    path.write_bytes(content[: len(content) // 2])
    with open_trace(path) as stream:
        read = b"".join(iter(lambda: stream.read(1 << 20), b""))
    assert read
    assert TEXT.startswith(read)
    assert len(read) > len(TEXT) // 3
    assert "ends early" in stream.damage
