"""Columns of whatever values a trace contains, and its times."""

from __future__ import annotations

from typing import Any

import msgspec
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tracekit.ingest.kineto import columns
from tracekit.ingest.kineto.columns import nanoseconds
from tracekit.schema import HostKind

anything = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=2),
    max_leaves=4,
)


@given(st.lists(anything))
def test_any_json_value_converts_to_a_column(values: list[Any]) -> None:
    """A trace may hold any JSON in any place; none of it may stop an import."""
    found = [build(values) for build in (columns.integers, columns.thread_ids, columns.floats)]
    for column in [*found, *columns.triples(values)]:
        assert column.values.shape == (len(values),)
        assert column.missing is None or column.missing.shape == (len(values),)
    codes, texts = columns.texts(values)
    assert [code >= 0 for code in codes] == [value is not None for value in values]
    assert codes.max(initial=-1) == len(texts) - 1


@given(st.lists(st.none() | st.integers(-(2**63), 2**63 - 1)))
def test_integers_are_kept_exactly(values: list[int | None]) -> None:
    found, missing = columns.integers(values)
    assert missing is not None
    assert [None if absent else value for value, absent in zip(found, missing, strict=True)] == values


def test_lists_instead_of_ids_do_not_shift_other_rows() -> None:
    assert columns.thread_ids([[1, 2], [3, 4]]).values.tolist() == [1, 3]


@pytest.mark.parametrize(
    ("name", "ends"),
    [
        ("Memcpy DtoH (Device -> Pinned)", ("D2H", "device", "pinned")),
        ("CopyHostToDevice", ("H2D", "unknown", "unknown")),
        ("Memcpy HtoA (Pinned -> Array)", ("H2D", "pinned", "array")),
        ("Memcpy AtoA (Array -> Array)", ("D2D", "array", "array")),
        ("Memcpy PtoP (Device -> Device)", ("P2P", "device", "device")),
        ("zeCommandListAppendMemoryCopy(M2D)", ("H2D", "pageable", "device")),
        ("zeCommandListAppendMemoryCopy(D2M)", ("D2H", "device", "pageable")),
        ("zeCommandListAppendMemoryCopy(H2D)", ("H2D", "pinned", "device")),
        ("zeCommandListAppendMemoryCopy(D2S)", ("unknown", "device", "unified")),
        ("copy", ("unknown", "unknown", "unknown")),
    ],
)
def test_the_name_of_a_copy_has_its_direction_and_its_ends(name: str, ends: tuple[str, str, str]) -> None:
    assert tuple(map(str, columns.copy_ends(name))) == ends


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        *((f"{maker}{what}Synchronize", "sync") for maker in ("cuda", "hip") for what in ("Device", "Event")),
        *((name, "sync") for name in ("cudaStreamSynchronize", "cuCtxSynchronize", "synchronizeStream")),
        *((name, "runtime") for name in ("cudaEventRecord", "cudaStreamWaitEvent", "synchronizeAll")),
    ],
)
def test_calls_that_block_are_waits(name: str, kind: str) -> None:
    assert columns.host_kind(HostKind.RUNTIME, name) == kind
    assert columns.host_kind(HostKind.OP, name) == "op"


def test_white_space_in_shapes_is_normalized() -> None:
    raw = [msgspec.Raw(text) for text in (b"[[1, 2],\n []]", b"[[1,2],[]]", b"")]
    codes, texts = columns.json_texts(raw)
    assert [texts[code] if code >= 0 else None for code in codes] == [b"[[1,2],[]]"] * 2 + [None]


def decimal_text(ns: int) -> bytes:
    sign, size = ("-", -ns) if ns < 0 else ("", ns)
    return f"{sign}{size // 1000}.{size % 1000:03d}".encode()


@given(st.lists(st.integers(-(2**61) + 1, 2**61 - 1)))
def test_times_are_parsed_exactly(values: list[int]) -> None:
    parsed, usable = nanoseconds([decimal_text(value) for value in values])
    assert parsed.tolist() == values
    assert usable.all()


def test_times_in_any_notation() -> None:
    texts = [b"1712191111.5", b"17", b"1.7e3", b'"12.5"', b"0.00049", b"0.0005", b"0.0015"]
    parsed, usable = nanoseconds(texts)
    assert parsed.tolist() == [1712191111500, 17000, 1700000, 12500, 0, 0, 2]
    assert usable.all()


def test_invalid_times_are_masked() -> None:
    texts = [b"", b"null", b"true", b'"soon"', b"[1]", b"99999999999999999999999", b"1e400", b"5"]
    parsed, usable = nanoseconds(texts)
    assert usable.tolist() == [False] * 7 + [True]
    assert parsed[usable].tolist() == [5000]


def test_times_of_no_events() -> None:
    parsed, usable = nanoseconds([])
    assert parsed.dtype == np.int64
    assert len(parsed) == len(usable) == 0


def test_threads_and_triples_of_any_form() -> None:
    assert columns.thread_ids([12, "stream 7", None]).values.tolist() == [12, 7, 0]
    assert [axis.values.tolist() for axis in columns.triples([[1, 2, 3], None])] == [
        [1, -1],
        [2, -1],
        [3, -1],
    ]
