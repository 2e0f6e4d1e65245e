"""Memory of the scanner: bounds of reads and writes, and full buffers."""

from __future__ import annotations

import ctypes
import mmap
from typing import TYPE_CHECKING

import numpy as np
import pytest

from tests.scans import agrees, scanner, text_of
from tests.unit.ingest.kineto.scan.events import EVENTS, OP, UNKNOWN, changed, text
from tracekit.ingest.kineto.scan import layout, loader, native
from tracekit.ingest.kineto.scan.layout import Interner, RowBuffers
from tracekit.ingest.kineto.split import ROOM

if TYPE_CHECKING:
    from collections.abc import Iterator

NO_ACCESS = 0
TAIL = 64
UNTOUCHED = 0x5A5A5A5A


@pytest.fixture
def guarded() -> Iterator[mmap.mmap]:
    """Memory after whose end nothing may be read: a read there ends the process."""
    size, page = 1 << 16, mmap.PAGESIZE
    memory = mmap.mmap(-1, size + page)
    start = ctypes.addressof(ctypes.c_char.from_buffer(memory))
    protect = ctypes.CDLL(None, use_errno=True).mprotect
    assert protect(ctypes.c_void_p(start + size), page, NO_ACCESS) == 0
    yield memory
    assert protect(ctypes.c_void_p(start + size), page, mmap.PROT_READ | mmap.PROT_WRITE) == 0


def test_no_read_beyond_the_padding_of_a_text(guarded: mmap.mmap) -> None:
    code, filled = native.load(), RowBuffers(1 << 12)
    interner, scratch = Interner(layout.PRESET_STRINGS, code.code_of), np.empty(layout.SCRATCH, np.int64)
    end = ctypes.addressof(ctypes.c_char.from_buffer(guarded)) + len(guarded) - mmap.PAGESIZE - ROOM
    whole = text(*EVENTS)
    ends = set()
    for length in range(len(whole) + 1):
        ctypes.memmove(end - length, whole[:length] + bytes(ROOM), length + ROOM)
        filled.clear()
        ends.add(code.scan(end - length, length, 0, interner.address, filled.address, scratch.ctypes.data))
    assert ends == {layout.DONE, layout.UNSUPPORTED}


@pytest.mark.parametrize("event", [b'{"ph":"X","cat":"q"}', b'{"ph":"C"}', b'{"ph":"X","cat":"cpu_op"}'])
def test_texts_of_tiny_events_exceed_the_buffers(event: bytes, monkeypatch: pytest.MonkeyPatch) -> None:
    """The bytes after each buffer must not change."""
    tails: list[np.ndarray] = []

    def roomier(columns: int, rows: int) -> np.ndarray:
        memory = np.full(columns * rows + TAIL, UNTOUCHED, np.int64)
        tails.append(memory[-TAIL:])
        return memory[:-TAIL].reshape(columns, rows)

    code, content = native.load(), text_of(b",".join([event] * 40))
    interner, scratch = Interner(layout.PRESET_STRINGS, code.code_of), np.empty(layout.SCRATCH, np.int64)
    monkeypatch.setattr(layout, "allocate", roomier)
    filled = RowBuffers(content.length)
    address = np.frombuffer(content.buffer, np.uint8).ctypes.data
    ended = code.scan(address, content.length, 0, interner.address, filled.address, scratch.ctypes.data)
    assert ended == layout.UNSUPPORTED
    assert len(tails) == layout.CAPACITY
    assert all((memory == UNTOUCHED).all() for memory in tails)


@pytest.mark.slow
def test_more_strings_than_fit_are_decoded() -> None:
    base = changed(UNKNOWN | {"args": {}, "cat": "cpu_op"})
    rows = (
        {"name": f"op {number} " + "x" * 80, "ts": number, "tid": number % 7} for number in range(120_000)
    )
    content = text(*({**base, **row} for row in rows))
    assert agrees(content, by=loader.load()())


def test_strings_of_a_refused_chunk_leave_space() -> None:
    mine = loader.load()()
    base = changed(UNKNOWN | {"args": {}, "cat": "cpu_op"})
    names = (f"op {number} " + "x" * 120 for number in range(58_000))
    assert mine.scan(text_of(text(*({**base, "name": name} for name in names)) + b",")) is None
    assert agrees(text(changed(OP, name="y" * (1 << 20))), by=mine)


def test_a_too_long_string_is_left_to_the_reference() -> None:
    content = text(changed(OP, name="x" * (9 << 20)))
    assert scanner().scan(text_of(content)) is None
