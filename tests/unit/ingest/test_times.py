from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from tracekit.ingest.kineto.columns import nanoseconds


def decimal_text(ns: int) -> bytes:
    sign, size = ("-", -ns) if ns < 0 else ("", ns)
    return f"{sign}{size // 1000}.{size % 1000:03d}".encode()


@given(st.lists(st.integers(-(2**61) + 1, 2**61 - 1)))
def test_no_digit_is_lost(values: list[int]) -> None:
    parsed, usable = nanoseconds([decimal_text(value) for value in values])
    assert parsed.tolist() == values
    assert usable.all()


def test_every_way_to_write_a_time() -> None:
    texts = [b"1712191111.5", b"17", b"1.7e3", b'"12.5"', b"0.00049", b"0.0005", b"0.0015"]
    parsed, usable = nanoseconds(texts)
    assert parsed.tolist() == [1712191111500, 17000, 1700000, 12500, 0, 0, 2]
    assert usable.all()


def test_what_is_not_a_time_is_marked() -> None:
    texts = [b"", b"null", b"true", b'"soon"', b"[1]", b"99999999999999999999999", b"1e400", b"5"]
    parsed, usable = nanoseconds(texts)
    assert usable.tolist() == [False] * 7 + [True]
    assert parsed[usable].tolist() == [5000]


def test_no_times_at_all() -> None:
    parsed, usable = nanoseconds([])
    assert parsed.dtype == np.int64
    assert len(parsed) == len(usable) == 0
