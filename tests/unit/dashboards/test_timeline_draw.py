"""Drawing against a loop over intervals and columns."""

from __future__ import annotations

from fractions import Fraction
from math import ceil
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tracekit.dashboards.timeline import read_columns, render, routes

from tests.tiers import examples
from tests.unit.dashboards.timeline_runs import index_of, lanes_run, unpacked

Spans = list[tuple[int, int]]


def disjoint(steps: list[tuple[int, int]]) -> Spans:
    """Intervals one after the other, from gaps and lengths; some touch, some have no length."""
    spans, at = [], 0
    for gap, length in steps:
        spans.append((at + gap, at + gap + length))
        at += gap + length
        if not gap and not length:
            at += 1
    return spans


lane = st.lists(st.tuples(st.integers(0, 4), st.integers(0, 6)), min_size=1, max_size=60).map(disjoint)


def touches(span: tuple[int, int], low: int, high: int) -> bool:
    start, end = span
    return start < high and (end > low or start >= low)


def expected(spans: Spans, window: read_columns.Window) -> dict[int, dict[str, Any]]:
    """What each column shows, by the contract."""
    edges = [window.start + c * (window.end - window.start) // window.width for c in range(window.width + 1)]
    found: dict[int, dict[str, Any]] = {}
    for column in range(window.width):
        low, high = edges[column], edges[column + 1]
        here = [span for span in spans if touches(span, low, high)]
        if not here:
            continue
        covered = sum(max(0, min(end, high) - max(start, low)) for start, end in here)
        busy = ceil(Fraction(255 * covered, high - low)) if high > low else 255
        most = max(here, key=lambda span: (span[1] - span[0], -spans.index(span)))
        found[column] = {"busy": max(1, busy), "count": len(here), "longest": most}
    return found


def drawn(
    lanes: list[Spans], window: read_columns.Window
) -> tuple[Any, dict[str, Any], list[dict[str, Any]]]:
    with TemporaryDirectory() as folder:
        index = index_of(lanes_run(Path(folder), *lanes))
        chosen = [one for one in index.lanes if one.track.stream >= 0]
        header, reported = unpacked(
            routes.pack(window, render.render_intervals(index, chosen, window), index.names.texts)
        )
    return index, header, reported


@pytest.fixture
def always_dense(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(render, "MAX_EXACT", 0)
    monkeypatch.setattr(render, "MAX_EXACT_LANE", 0)


@settings(max_examples=examples(60), deadline=None)
@given(st.lists(lane, min_size=1, max_size=3), st.integers(-5, 150), st.integers(1, 300), st.integers(1, 90))
def test_density_is_exact(lanes: list[Spans], start: int, length: int, width: int) -> None:
    window = read_columns.Window(start=start, end=start + length, width=width)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(render, "MAX_EXACT", 0)
        patch.setattr(render, "MAX_EXACT_LANE", 0)
        index, header, reported = drawn(lanes, window)
    for spans, one in zip(lanes, reported, strict=True):
        wanted = expected(spans, window)
        assert sorted(wanted) == one.get("column", [])
        if not wanted:
            continue
        assert one["busy"] == [wanted[column]["busy"] for column in one["column"]]
        assert one["count"] == [wanted[column]["count"] for column in one["column"]]
        at = index.position("device_intervals", np.array(one["row"]))
        assert [index.interval(int(place)) for place in at] == [
            wanted[column]["longest"] for column in one["column"]
        ]
        names = [header["names"][number] for number in one["name"]]
        assert names == [f"kernel {sum(wanted[column]['longest']) % 3}" for column in one["column"]]


@settings(max_examples=examples(40), deadline=None)
@given(st.lists(lane, min_size=1, max_size=3), st.integers(-5, 150), st.integers(1, 300))
def test_few_intervals_are_sent_as_they_are(lanes: list[Spans], start: int, length: int) -> None:
    window = read_columns.Window(start=start, end=start + length, width=10)
    _, header, reported = drawn(lanes, window)
    for spans, one in zip(lanes, reported, strict=True):
        wanted = [span for span in spans if touches(span, start, start + length)]
        assert one["mode"] == "exact"
        assert list(zip(one["start"], one["dur"], strict=True)) == [(a, b - a) for a, b in wanted]
        assert [header["names"][number] for number in one["name"]] == [
            f"kernel {(a + b) % 3}" for a, b in wanted
        ]


def test_only_lanes_with_much_to_show_become_columns(tmp_path: Path) -> None:
    crowd = [(10 * number, 10 * number + 5) for number in range(4_100)]
    index = index_of(lanes_run(tmp_path, crowd, [(0, 41_000)], [(7, 9), (50, 60)]))
    window = read_columns.Window(start=0, end=41_000, width=100)
    modes = [one.mode == "exact" for one in render.render_intervals(index, index.lanes, window)]
    assert modes == [False, True, True]
    near = read_columns.Window(start=0, end=20_000, width=100)
    assert all(one.mode == "exact" for one in render.render_intervals(index, index.lanes, near))


def test_lanes_come_in_the_order_asked_for(tmp_path: Path) -> None:
    index = index_of(lanes_run(tmp_path, [(0, 5)], [(1, 6)], [(2, 7)]))
    window = read_columns.Window(start=0, end=10, width=4)
    assert [one.lane for one in render.render_intervals(index, index.lanes[::-1], window)] == [2, 1, 0]


def test_columns_are_as_wide_as_whole_nanoseconds_allow() -> None:
    window = read_columns.Window(start=-7, end=10**18, width=8_192)
    edges = window.edges.tolist()
    assert edges == [-7 + column * (10**18 + 7) // 8_192 for column in range(8_193)]


@pytest.mark.usefixtures("always_dense")
def test_a_column_without_width_is_full_where_something_is() -> None:
    _, _, reported = drawn([[(0, 2)]], read_columns.Window(start=0, end=2, width=4))
    assert reported[0]["column"] == [1, 2, 3]  # the first, of no width, ends where the interval starts
    assert reported[0]["busy"] == [255, 255, 255]
