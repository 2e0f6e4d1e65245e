from __future__ import annotations

import re
from typing import Any

import pandas as pd
import pytest
from tracekit.dashboards.figures.axis import COLORWAY, TOTAL
from tracekit.dashboards.figures.bars import bars, compose_bars, histogram
from tracekit.dashboards.figures.lines import Dots, heatmap, lines, points
from tracekit.dashboards.figures.pictures import draw_picture
from tracekit.dashboards.figures.shares import by_step
from tracekit.dashboards.figures.standard import MAX_BARS, choose_figure, first_figure

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


def marks(picture: str, name: str) -> list[dict[str, str]]:
    """Style of each mark of a picture that has this class, by property."""
    styles = re.findall(rf'<(?:span|i) class="[^"]*\b{name}\b[^"]*" style="([^"]*)"', picture)
    return [dict(part.split(":", 1) for part in style.split(";")) for style in styles]


def test_pictures_hold_every_bar_and_escape_names() -> None:
    found = drawn(NAME, TIME, rows=[("<script>x</script>", 1), ("b & c", 2)])
    picture = draw_picture(found.figure, label='a "label"')
    assert [bar["width"] for bar in marks(picture, "tk-plot-bar")] == ["100.000%", "50.000%"]
    assert "<script" not in picture
    assert '<span class="tk-plot-name">&lt;script&gt;x&lt;/script&gt;</span>' in picture
    assert 'data-tip="b &amp; c\n2 ns"' in picture
    assert 'aria-label="a &quot;label&quot;"' in picture


def test_parts_of_a_bar_follow_each_other_in_their_colors() -> None:
    figure = compose_bars(["a", "b"], {"busy": [30, 20], "idle": [10, 0]}, "ns")
    busy, idle, *_ = bars = marks(draw_picture(figure, label=""), "tk-plot-bar")
    assert [(bar["left"], bar["width"]) for bar in bars] == [
        ("0.000%", "75.000%"),
        ("75.000%", "25.000%"),
        ("0.000%", "50.000%"),  # without a line of 1 px for what it has nothing of
    ]
    assert (busy["background-color"], idle["background-color"]) == (COLORWAY[0], TOTAL)
    assert draw_picture(figure, label="").count("<li>") == 2


def test_columns_are_stacked_or_beside_each_other() -> None:
    parts = {"window_ns": 10, "active_ns": 6, "movement_ns": 0, "graph_ns": 0, "idle_ns": 4}
    frame = pd.DataFrame([parts])
    stacked = marks(draw_picture(by_step(frame, [7]), label=""), "tk-plot-column")
    assert [(part["bottom"], part["height"]) for part in stacked] == [
        ("0.000%", "60.000%"),
        ("60.000%", "0.000%"),
        ("60.000%", "40.000%"),
    ]
    counts = histogram([0, 1024], [1024, 2048], {"H2D": [4, 2], "D2H": [1, 0]}, bin_unit="bytes")
    beside = marks(draw_picture(counts, label=""), "tk-plot-column")
    assert [(bar["left"], bar["height"]) for bar in beside] == [  # in the first two of four places
        ("1.000%", "100.000%"),
        ("26.000%", "50.000%"),
        ("12.500%", "25.000%"),
        ("37.500%", "0.000%"),
    ]


def test_lines_have_gaps_steps_and_a_text_at_each_point() -> None:
    figure = lines([0, 1, 2, 3], {"a": [1, None, 3, 3], "b": [0, 1, 2, 4]}, "ns", stepped=True)
    picture = draw_picture(figure, label="")
    paths = [path.split() for path in re.findall(r'<polyline points="([^"]*)"', picture)]
    assert [len(path) for path in paths] == [1, 3, 7]  # before the gap, after it, and without one
    (_, first), (_, corner), _ = (point.split(",") for point in paths[1])
    assert first == corner
    assert len(marks(picture, "tk-plot-dot")) == 7
    assert 'data-tip="b\n3: 4 ns"' in picture


def test_points_are_placed_by_the_logarithm() -> None:
    figure = points([Dots("a", [1, 10, 100], [5, 5, 5], ["x", "<b>", "z"])], x_title="x", y_title="y")
    left = [float(dot["left"].rstrip("%")) for dot in marks(draw_picture(figure, label=""), "tk-plot-dot")]
    assert left[1] == 50
    assert left[0] == pytest.approx(100 - left[2])
    assert 0 < left[0] < 5


def test_areas_are_shapes_with_their_text_and_hatched_ones_are_cut_out() -> None:
    def area(x: list[int], y: list[int], **more: Any) -> dict[str, Any]:
        shape = {"type": "scatter", "mode": "lines", "fill": "toself", "name": "a", "fillcolor": "#123456"}
        return {**shape, "x": x, "y": y, "showlegend": False, **more}

    below = area([0, 10, 10, 0], [0, 0, 5, 5], text="<b>", showlegend=True)
    above = area([0, 5, 5, 0], [5, 5, 10, 10], text="rest", fillpattern={"shape": "/"})
    axes = {"xaxis": {"range": [0, 10]}, "yaxis": {"range": [0, 10]}}
    picture = draw_picture({"data": [below, above], "layout": axes | {"showlegend": True}}, label="")
    corners = "0.0,1000.0 1000.0,1000.0 1000.0,500.0 0.0,500.0"
    assert f'<polygon points="{corners}" fill="#123456" data-tip="&lt;b&gt;"/>' in picture
    (cut,) = marks(picture, "tk-plot-cut tk-plot-hatched")
    assert cut["background-color"] == "#123456"
    assert cut["clip-path"] == "polygon(0.00% 50.00%,50.00% 50.00%,50.00% 0.00%,0.00% 0.00%)"
    assert 'data-tip="rest"' in picture
    assert picture.count("<li>") == 1


def test_what_only_plotly_draws_has_no_picture() -> None:
    line = lines([1, 2], {"a": [1, 2]}, "ns")
    assert draw_picture(line, label="")
    for trace in ({"error_y": {}}, {"customdata": ["/"]}, {"fill": "tozeroy"}):
        assert not draw_picture({"data": [line["data"][0] | trace], "layout": line["layout"]}, label="")
    assert not draw_picture({"data": line["data"], "layout": line["layout"] | {"shapes": [{}]}}, label="")
    assert not draw_picture(heatmap(["a"], ["b"], [[1]], "ns"), label="")
    assert not draw_picture(bars(["a"], [-1], "ns"), label="")
    assert not draw_picture(lines([], {"a": []}, "ns"), label="")


@pytest.mark.parametrize("values", [[0, 0], [5], [1e-9, 1e12], [None, 3]])
def test_ticks_are_within_the_axis_whatever_the_values(values: list[float | None]) -> None:
    figure = lines(list(range(len(values))), {"a": values}, "count")
    side = re.search(r'<div class="tk-plot-side">(.*?)</div>', draw_picture(figure, label=""))
    assert side
    places = [float(place) for place in re.findall(r"bottom:([\d.]+)%", side[1])]
    assert 1 <= len(places) <= 7
    assert places == sorted(places)
    assert 0 <= places[0] <= places[-1] <= 100
