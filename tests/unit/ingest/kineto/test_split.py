from __future__ import annotations

import io
import json
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from tracekit.errors import UnusableInputError
from tracekit.ingest.kineto.source import Stream
from tracekit.ingest.kineto.split import Buffers, chunks, likely_events, read_opening, take_apart

hostile = st.text(alphabet='},{["]\\ aü\n:0', max_size=12)
values = st.recursive(
    st.none() | st.integers() | hostile,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(hostile, inner, max_size=3),
    max_leaves=8,
)
event = st.dictionaries(hostile, values, min_size=1, max_size=4)


def stream(text: str) -> Stream:
    return Stream(io.BufferedReader(io.BytesIO(text.encode())))  # type: ignore[arg-type]


@given(st.lists(event, max_size=12), st.sampled_from([None, 1]), st.dictionaries(hostile, values, max_size=2))
def test_events_are_split_by_braces(
    events: list[dict[str, Any]], indent: int | None, after: dict[str, Any]
) -> None:
    text = json.dumps(events, indent=indent)[1:] + ", " + json.dumps({"after": after})[1:]
    pieces = take_apart(text.encode())
    assert pieces.ended
    assert [json.loads(piece) for piece in pieces.events] == events
    assert json.loads(b'{"events": [' + pieces.tail)["after"] == after


@given(st.lists(event, min_size=1, max_size=12), st.integers(1, 200))
@example([{"} ,{": None}], 1)
def test_chunks_contain_all_but_the_commas_between_events(events: list[dict[str, Any]], size: int) -> None:
    source = stream(json.dumps({"traceEvents": events}))
    opening = read_opening(source, "t")
    text = b",".join(bytes(text.view) for text in chunks(source, opening.rest, size=size))
    assert json.loads(b"[" + text.removesuffix(b"}")) == events


def test_members_before_the_events_may_look_like_them() -> None:
    decoy = {"note": '"traceEvents": [', "nested": {"traceEvents": [{"ph": "X"}]}, "list": [{}, {}]}
    source = stream(json.dumps({**decoy, "traceEvents": [{"ph": "M"}]}))
    assert read_opening(source, "t").rest == b'{"ph": "M"}]}'


names = st.sampled_from(["traceEvents", "before", '"traceEvents": [', '\\"traceEvents\\": ['])


@given(st.recursive(hostile | names, lambda inner: st.lists(inner) | st.dictionaries(names, inner)))
def test_events_are_those_of_the_top_level(before: Any) -> None:
    text = json.dumps({"before": {"traceEvents": [before]}, "traceEvents ": before, "traceEvents": [1]})
    assert read_opening(stream(text), "x").rest == b"1]}"


@pytest.mark.parametrize(
    "text", ["", " \n", "hello", "{}", '{"a": 1}', "[1, 2]", "3", '"x"', '{"traceEvents": 3}']
)
def test_other_text_is_refused(text: str) -> None:
    with pytest.raises(UnusableInputError, match=r"^t "):
        read_opening(stream(text), "t")


def test_a_mismatched_bracket_ends_the_search() -> None:
    pieces = take_apart(b'{"ph": "i"}, {"ph": "X", "args": {"a": 1}, {"ph": "X"}, {"ph": "i"}]')
    assert pieces.events == [b'{"ph": "i"}']
    assert pieces.tail.startswith(b'{"ph": "X", "args"')
    assert not pieces.ended


def test_an_unterminated_string_ends_the_search() -> None:
    pieces = take_apart(b'{"ph": "i"}, {"name": "a}, {')
    assert (pieces.events, pieces.tail) == ([b'{"ph": "i"}'], b'{"name": "a}, {')


def test_damaged_text_is_split_where_events_seem_to_start() -> None:
    text = b'{"ph": "X", "args": {"a": 1}, {"ph": "X", "name": "next"}, {"ph": "i"}'
    assert likely_events(text) == [
        b'{"ph": "X", "args": {"a": 1}',
        b' {"ph": "X", "name": "next"}',
        b' {"ph": "i"}',
    ]


def test_memory_of_finished_pieces_is_reused() -> None:
    source = stream("")
    buffers = Buffers()
    texts = [b'{"a": 1},{"b": [%d]}' % number * 1000 for number in range(5)]
    held = []
    for text in texts:
        (piece,) = chunks(source, text, size=1 << 20, buffers=buffers)
        assert bytes(piece.view) == text
        held.append(id(piece.buffer))
        buffers.give(piece.buffer)
    assert len(set(held)) == 1
