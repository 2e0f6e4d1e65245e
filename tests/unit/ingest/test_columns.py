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
    for build in (columns.integers, columns.lanes, columns.floats, columns.texts):
        assert len(build(values)) == len(values)
    assert [len(axis) for axis in columns.triples(values)] == [len(values)] * 3


@given(st.lists(st.none() | st.integers(-(2**63), 2**63 - 1)))
def test_integers_are_kept_exactly(values: list[int | None]) -> None:
    assert columns.integers(values).to_pylist() == values


def test_white_space_in_shapes_does_not_matter() -> None:
    raw = [msgspec.Raw(text) for text in (b"[[1, 2],\n []]", b"[[1,2],[]]", b"")]
    assert columns.json_texts(raw).to_pylist() == ["[[1,2],[]]", "[[1,2],[]]", None]
