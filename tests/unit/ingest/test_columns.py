from __future__ import annotations

from typing import Any

import msgspec
from hypothesis import given
from hypothesis import strategies as st

from tracekit.ingest.kineto import columns

anything = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=2),
    max_leaves=4,
)


@given(st.lists(anything))
def test_whatever_a_file_holds_becomes_a_column(values: list[Any]) -> None:
    """A trace may hold any JSON in any place; none of it may stop an import."""
    found = [build(values) for build in (columns.integers, columns.lanes, columns.floats)]
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


def test_lists_in_the_place_of_ids_are_no_ids_of_their_neighbors() -> None:
    assert columns.lanes([[1, 2], [3, 4]]).values.tolist() == [1, 3]


def test_white_space_in_shapes_does_not_matter() -> None:
    raw = [msgspec.Raw(text) for text in (b"[[1, 2],\n []]", b"[[1,2],[]]", b"")]
    codes, texts = columns.json_texts(raw)
    assert [texts[code] if code >= 0 else None for code in codes] == [b"[[1,2],[]]"] * 2 + [None]
