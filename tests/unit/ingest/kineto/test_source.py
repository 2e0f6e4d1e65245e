"""Gzip in blocks (bgzip): read like plain gzip, also if damaged."""

from __future__ import annotations

import gzip
import io
import struct
import zlib
from typing import TYPE_CHECKING, cast

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tracekit.ingest.kineto import source
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


def inflated(content: bytes, workers: int = 2) -> tuple[bytes, int]:
    """The text of the blocks, and how far the file was used."""
    raw = cast("io.BufferedReader", io.BufferedReader(io.BytesIO(content)))  # type: ignore[arg-type]
    text = b"".join(run.text for run in source.inflate(raw, workers))
    return text, raw.tell()


def test_blocks_are_valid_gzip() -> None:
    assert gzip.decompress(blocked(TEXT)) == TEXT


@pytest.mark.parametrize("group", [1, 100_000, 1 << 20])
def test_blocks_are_inflated_in_order(group: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(source, "_GROUP", group)
    assert inflated(blocked(TEXT)) == (TEXT, len(blocked(TEXT)))


@given(st.integers(0, 40), st.binary(min_size=1, max_size=40), st.integers(1, 4))
def test_the_file_is_left_after_the_last_block(count: int, after: bytes, workers: int) -> None:
    content = b"".join(block(b"%d" % number) for number in range(count))
    assert inflated(content + after, workers) == (b"".join(b"%d" % n for n in range(count)), len(content))


def test_the_file_is_left_at_a_damaged_block() -> None:
    content = bytearray(blocked(TEXT))
    good = len(blocked(TEXT[: 3 * 60_000])) - len(block(b""))
    content[good + 100] ^= 0xFF
    assert inflated(bytes(content)) == (TEXT[: 3 * 60_000], good)


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
