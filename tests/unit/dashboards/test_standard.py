from __future__ import annotations

from typing import Any

import pandas as pd
from tracekit.dashboards.figures.standard import MAX_BARS, choose_figure, first_figure
from tracekit.dashboards.figures.svg import svg

from tracekit.analysis import Column, TableSpec
from tracekit.schema import C

NAME = Column("op", "", "name of the op")
COUNT = Column("count", "count", "how many")
TIME = Column("sum_ns", "ns", "how long.")
STEP = Column(C.STEP, "", "number of the step")
RANK = Column(C.RANK, "", "rank")


def drawn(*columns: Column, rows: list[tuple[Any, ...]]) -> Any:
    spec = TableSpec("t", "The table", columns)
    return choose_figure(spec, pd.DataFrame(rows, columns=[column.name for column in columns]))


def test_time_tells_more_than_counts_and_the_largest_stands_first() -> None:
    found = drawn(NAME, COUNT, TIME, rows=[("a", 9, 1_000), ("b", 1, 3_000)])
    assert found.figure["data"][0]["x"] == [3.0, 1.0]
    assert found.figure["layout"]["yaxis"]["ticktext"] == ["b", "a"]
    assert found.caption == "The table: sum, how long."


def test_only_the_largest_are_drawn_and_the_caption_says_so() -> None:
    found = drawn(NAME, TIME, rows=[(f"op{at}", at + 1) for at in range(40)])
    assert len(found.figure["data"][0]["x"]) == MAX_BARS
    assert found.caption == "The table, 15 largest of 40: sum, how long."


def test_steps_are_lines_one_for_each_rank() -> None:
    found = drawn(RANK, STEP, TIME, rows=[(0, 1, 10), (0, 2, 20), (1, 1, 30), (1, 2, None)])
    assert [(one["name"], one["y"]) for one in found.figure["data"]] == [
        ("rank 0", [10, 20]),
        ("rank 1", [30, None]),
    ]


def test_bounds_make_a_histogram_of_one_device() -> None:
    bounds = (Column("from_bytes", "bytes", ""), Column("to_bytes", "bytes", ""))
    rows = [(0, 0, 1024, 3), (0, 1024, 2048, 4), (1, 0, 1024, 5)]
    found = drawn(RANK, *bounds, COUNT, rows=rows)
    assert found.figure["data"][0]["y"] == [3, 4]
    assert found.caption == "The table, rank 0 only."


def test_nothing_is_drawn_of_what_cannot_be_compared() -> None:
    assert drawn(NAME, TIME, rows=[("a", 1)]) is None
    assert drawn(NAME, TIME, rows=[("a", 0), ("b", None)]) is None
    assert drawn(TIME, rows=[(1,), (2,)]) is None


def test_a_table_of_hardly_any_rows_gives_way() -> None:
    small, large = (TableSpec(name, name, (NAME, TIME)) for name in ("small", "large"))
    frames = {
        "small": pd.DataFrame({"op": ["a", "b"], "sum_ns": [1, 2]}),
        "large": pd.DataFrame({"op": ["a", "b", "c"], "sum_ns": [1, 2, 3]}),
    }
    found = first_figure((small, large), frames)
    assert found
    assert found.caption.startswith("large")
    assert first_figure((small,), frames)


def test_still_pictures_hold_every_bar_and_escape_names() -> None:
    found = drawn(NAME, TIME, rows=[("<script>x</script>", 1), ("b & c", 2)])
    picture = svg(found.figure, label='a "label"')
    assert picture.count("<rect") == 2
    assert "<script" not in picture
    assert "&lt;script&gt;" in picture
    assert "b &amp; c" in picture
    assert 'aria-label="a &quot;label&quot;"' in picture


def test_still_pictures_of_lines_and_columns() -> None:
    lines = drawn(RANK, STEP, TIME, rows=[(0, 1, 10), (0, 2, 20), (1, 1, 30), (1, 2, 40)])
    assert svg(lines.figure, label="").count("<polyline") == 2
    bounds = (Column("from_bytes", "bytes", ""), Column("to_bytes", "bytes", ""))
    columns = drawn(*bounds, COUNT, rows=[(0, 1024, 3), (1024, 2048, 4)])
    assert svg(columns.figure, label="").count("<rect") == 2
