"""Totals and search against a loop over the intervals."""

from __future__ import annotations

from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from tracekit.dashboards.timeline import drawer, routes

from tests.tiers import examples
from tests.unit.dashboards.test_timeline_draw import Spans, lane, touches
from tests.unit.dashboards.timeline_runs import HOSTILE, index_of, lanes_run, training_run
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
        patch.setattr(drawer, "_STRIPE", 3 if small else 1 << 18)
        index = index_of(lanes_run(Path(folder), *lanes))
        rows, total = drawer.rows(index, drawer.totals(index, index.lanes, start, start + length))
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
    rows, _ = drawer.rows(index, drawer.totals(index, index.lanes, 0, long))
    assert sum(row["sum_ns"] for row in rows) == 3 * long


def found(index: Index, query: str, limit: int = 50) -> dict[str, Any]:
    start, end = index.span
    return drawer.search(index, drawer.totals(index, drawer.searched(index), start, end), query, limit)


def test_search_takes_any_case_and_the_heaviest_first(tmp_path: Path) -> None:
    index = index_of(training_run(tmp_path))
    reported = found(index, "ATEN::")
    assert [(one["name"], one["count"], one["sum_ns"]) for one in reported["names"]] == [
        ("aten::mm", 1, 380),
        ("aten::copy_", 1, 300),
    ]
    assert reported["names"][0]["first"]["row"] == 2
    assert found(index, "aten", limit=1)["total"] == 2


def test_search_tells_the_first_of_all_lanes(tmp_path: Path) -> None:
    index = index_of(lanes_run(tmp_path, [(9, 12), (30, 33)], [(3, 6), (12, 15)]))
    (reported,) = found(index, "kernel 0")["names"]
    assert (reported["count"], reported["first"][C.START_NS]) == (4, 3)


def test_search_finds_hostile_names_as_they_are_and_no_idle_time(tmp_path: Path) -> None:
    index = index_of(training_run(tmp_path))
    assert [one["name"] for one in found(index, "<SCRIPT>")["names"]] == [HOSTILE]
    assert found(index, "idle")["total"] == 0
    assert found(index, ".*")["total"] == 0


def test_stepping_goes_both_ways_and_ends(tmp_path: Path) -> None:
    index = index_of(lanes_run(tmp_path, [(0, 3), (5, 8), (10, 13)], [(1, 2)]))

    def start(**asked: Any) -> int | None:
        reported = drawer.step(index, index.lanes[:1] if "name" not in asked else index.lanes, **asked)
        return reported[C.START_NS] if reported else None

    assert [start(after=0), start(after=4), start(after=10)] == [5, 5, None]
    assert [start(before=10), start(before=5), start(before=0)] == [5, 0, None]
    assert [start(name="kernel 0", after=-1), start(name="kernel 0", after=0)] == [0, 1]
    assert [start(name="kernel 1", before=99), start(name="nothing", after=0)] == [5, None]


def test_the_csv_has_no_formulas(tmp_path: Path) -> None:
    index = index_of(training_run(tmp_path))
    rows, _ = drawer.rows(index, drawer.totals(index, index.lanes, *index.span))
    lines = routes.csv_text(rows).splitlines()
    assert lines[0] == "name,category,count,sum_ns,mean_ns,max_ns,max_table,max_row"
    assert len(lines) == len(rows) + 1
    assert not any(line.startswith(("=", '"=', "+", "-", "@")) for line in lines)
    assert any("'=cmd" in line for line in lines)
