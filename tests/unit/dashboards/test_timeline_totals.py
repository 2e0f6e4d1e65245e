"""Totals and search against a loop over the intervals."""

from __future__ import annotations

from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from tracekit.dashboards.timeline import details, routes, search

from tests.builders import kernel, make_run
from tests.tiers import examples
from tests.unit.dashboards.test_timeline_draw import Spans, lane, touches
from tests.unit.dashboards.timeline_runs import HOSTILE, index_of, lanes_run, training_run
from tracekit.errors import UnusableInputError
from tracekit.schema import C

if TYPE_CHECKING:
    from tracekit.dashboards.timeline.index import Index


def expected(lanes: list[Spans], start: int, end: int) -> dict[str, tuple[int, int, int]]:
    """Count, sum and maximum of the parts in the range, by name."""
    found: dict[str, list[int]] = {}
    for low, high in (span for spans in lanes for span in spans if touches(span, start, end)):
        part = max(0, min(high, end) - max(low, start))
        found.setdefault(f"kernel {(low + high) % 3}", []).append(part)
    return {name: (len(parts), sum(parts), max(parts)) for name, parts in found.items()}


@settings(max_examples=examples(60), deadline=None)
@given(st.lists(lane, min_size=1, max_size=3), st.integers(-5, 150), st.integers(1, 300), st.booleans())
@example([[(0, 10), (20, 30)]], 10, 10, False)  # intervals that only touch the range
def test_totals_are_those_of_the_parts_in_the_range(
    lanes: list[Spans], start: int, length: int, small: bool
) -> None:
    with TemporaryDirectory() as folder, pytest.MonkeyPatch.context() as patch:
        patch.setattr(details, "_STRIPE", 3 if small else 1 << 18)
        index = index_of(lanes_run(Path(folder), *lanes))
        rows, total = details.rows(index, details.totals(index, index.lanes, start, start + length))
    wanted = expected(lanes, start, start + length)
    assert {row["name"]: (row["count"], row["sum_ns"], row["max_ns"]) for row in rows} == wanted
    assert total == len(wanted)
    assert [row["sum_ns"] for row in rows] == sorted((row["sum_ns"] for row in rows), reverse=True)
    for row in rows:
        longest = row["max"]
        part = min(longest["end_ns"], start + length) - max(longest[C.START_NS], start)
        assert (longest["name"], max(0, part)) == (row["name"], row["max_ns"])
        assert row["mean_ns"] == row["sum_ns"] / row["count"]


def test_sums_are_exact_beyond_floats(tmp_path: Path) -> None:
    long = 2**53 + 1
    index = index_of(lanes_run(tmp_path, [(0, long)], [(0, long)], [(0, long)]))
    rows, _ = details.rows(index, details.totals(index, index.lanes, 0, long))
    assert sum(row["sum_ns"] for row in rows) == 3 * long


def found(index: Index, query: str, limit: int = 50, mode: str = search.TEXT) -> dict[str, Any]:
    start, end = index.span
    wanted = search.Query(text=query, mode=mode)
    return search.find_names(index, details.totals(index, wanted.lanes(index), start, end), wanted, limit)


def test_search_takes_any_case_and_the_heaviest_first(tmp_path: Path) -> None:
    index = index_of(training_run(tmp_path))
    reported = found(index, "ATEN::")
    assert [(one["name"], one["count"], one["sum_ns"]) for one in reported["names"]] == [
        ("aten::mm", 1, 380),
        ("aten::copy_", 1, 300),
    ]
    assert reported["names"][0]["first"]["row"] == 2
    assert (found(index, "aten", limit=1)["total"], reported["count"]) == (2, 2)


def test_search_tells_the_first_of_all_lanes(tmp_path: Path) -> None:
    index = index_of(lanes_run(tmp_path, [(9, 12), (30, 33)], [(3, 6), (12, 15)]))
    (reported,) = found(index, "kernel 0")["names"]
    assert (reported["count"], reported["first"][C.START_NS]) == (4, 3)


def test_search_finds_hostile_names_as_they_are_and_no_idle_time(tmp_path: Path) -> None:
    index = index_of(training_run(tmp_path))
    assert [one["name"] for one in found(index, "<SCRIPT>")["names"]] == [HOSTILE]
    assert found(index, "idle")["total"] == 0
    assert found(index, ".*")["total"] == 0


def test_search_by_expression_and_whole_name(tmp_path: Path) -> None:
    index = index_of(training_run(tmp_path))
    expected_names = ["cudaLaunchKernel", "cudaMemcpyAsync"]
    assert sorted(found(index, "^CUDA.*(kernel|async)$", mode=search.REGEX)["matched"]) == expected_names
    assert found(index, "aten::mm", mode=search.NAME)["count"] == 1
    assert found(index, "aten", mode=search.NAME)["count"] == 0
    with pytest.raises(UnusableInputError, match="not a regular expression"):
        found(index, "(", mode=search.REGEX)
    with pytest.raises(UnusableInputError, match="no search by lane"):
        found(index, "x", mode="lane")


def test_search_by_category_has_idle_time_and_one_category_by_its_whole_name(tmp_path: Path) -> None:
    index = index_of(training_run(tmp_path))
    assert [one["name"] for one in found(index, "idle", mode=search.CATEGORY)["names"]] == ["idle"]
    assert [one["name"] for one in found(index, "OP", mode=search.CATEGORY)["names"]] == ["op"]
    assert {one["name"] for one in found(index, "cop", mode=search.CATEGORY)["names"]} == {"copy H2D"}


def walked(index: Index, text: str, *, by: int, longest: bool) -> list[tuple[int, int, int]]:
    """Place, start and duration of the matches, from outside of them, until the first comes again."""
    query = search.Query(text=text, mode=search.NAME)
    lanes, labels = query.lanes(index), query.labels(index)
    seen: list[tuple[int, int, int]] = []
    key, rows = (-(1 << 62), -1), set()
    while one := search.step(index, lanes, labels, key=key, by=by, longest=longest):
        interval = one["interval"]
        if interval is None or interval["row"] in rows:
            return seen
        rows.add(interval["row"])
        seen.append((one["place"], interval[C.START_NS], interval[C.DUR_NS]))
        at = int(index.position(interval["table"], np.array([interval["row"]]))[0])
        key = (-interval[C.DUR_NS] if longest else interval[C.START_NS], at)
    raise AssertionError


@settings(max_examples=examples(60), deadline=None)
@given(st.lists(lane, min_size=1, max_size=3), st.booleans())
@example([[(0, 3), (6, 9)], [(0, 3)], [(0, 12)]], True)  # the same start and duration in two lanes
def test_stepping_visits_every_match_once_in_order_and_wraps(lanes: list[Spans], longest: bool) -> None:
    with TemporaryDirectory() as folder:
        index = index_of(lanes_run(Path(folder), *lanes))
        forward = walked(index, "kernel 0", by=1, longest=longest)
        back = walked(index, "kernel 0", by=-1, longest=longest)
    spans = [(low, high - low) for part in lanes for low, high in part if (low + high) % 3 == 0]
    order = sorted(spans, key=lambda one: -one[1] if longest else one[0])
    assert [place for place, _, _ in forward] == list(range(1, len(spans) + 1))
    assert [(start, dur)[longest] for _, start, dur in forward] == [one[longest] for one in order]
    assert sorted(forward) == sorted(back)
    assert [place for place, _, _ in back] == list(range(len(spans), 0, -1))


def test_the_place_of_an_interval_that_does_not_match_is_none(tmp_path: Path) -> None:
    index = index_of(lanes_run(tmp_path, [(0, 3), (5, 8)]))
    query = search.Query(text="kernel 0", mode=search.NAME)
    at = int(index.position("device_intervals", np.array([1]))[0])
    reported = search.step(index, index.lanes, query.labels(index), key=(5, at), by=0)
    assert reported == {"total": 1, "place": None, "interval": None}


def test_the_next_on_a_stream_is_the_next_start_in_any_lane_of_it(tmp_path: Path) -> None:
    rows = [kernel(start, end, **{C.STREAM: 7}) for start, end in ((0, 10), (4, 20), (12, 15))]
    index = index_of(make_run(tmp_path, device_intervals=[*rows, kernel(1, 2, **{C.STREAM: 9})]))
    at = index.position("device_intervals", np.arange(4))
    found = [details.next_on_stream(index, int(one)) for one in at]
    assert [one and one["row"] for one in found] == [1, 2, None, None]


def test_categories_sum_what_their_names_do(tmp_path: Path) -> None:
    index = index_of(training_run(tmp_path))
    reported = details.by_category(index, details.totals(index, index.lanes, 200, 700), 500)
    by_name = {one["category"]: (one["count"], one["sum_ns"], one["share"]) for one in reported}
    assert by_name["gemm"] == (1, 100, 0.2)
    assert by_name["copy H2D"] == (1, 50, 0.1)
    assert by_name["idle"] == (1, 350, 0.7)
    assert by_name["op"] == (3, 500, 1.0)
    assert list(by_name)[:3] == ["gemm", "copy H2D", "other kernel"]
    assert list(by_name).index("idle") < list(by_name).index("op")


def test_the_csv_has_no_formulas(tmp_path: Path) -> None:
    index = index_of(training_run(tmp_path))
    rows, _ = details.rows(index, details.totals(index, index.lanes, *index.span))
    lines = routes.csv_text(rows).splitlines()
    assert lines[0] == "name,category,count,sum_ns,mean_ns,max_ns,max_table,max_row"
    assert len(lines) == len(rows) + 1
    assert not any(line.startswith(("=", '"=', "+", "-", "@")) for line in lines)
    assert any("'=cmd" in line for line in lines)
