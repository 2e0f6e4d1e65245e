from __future__ import annotations

import re
from dataclasses import replace
from typing import Any

import pandas as pd
import pytest
from tracekit.dashboards.figures.axis import COLORWAY, TOTAL
from tracekit.dashboards.figures.bars import bars, compare_bars, compose_bars, histogram, vertical_line
from tracekit.dashboards.figures.lines import Dots, heatmap, lines, points
from tracekit.dashboards.figures.pictures import draw_picture
from tracekit.dashboards.figures.shares import by_step
from tracekit.dashboards.figures.standard import MAX_BARS, choose_figure, first_figure, result_figure
from tracekit.dashboards.figures.sweep import Commit, draw_effects, over_commits

from tests.unit.experiments.tried.test_trial_log import trial
from tracekit.analysis import Column, Result, TableSpec, get
from tracekit.experiments.trial_model import Status
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


def test_what_is_the_same_in_all_rows_is_drawn_last() -> None:
    window, cost = Column("window_ns", "ns", "length"), Column("cost_ns", "ns", "cost")
    varying = drawn(NAME, window, cost, COUNT, rows=[("a", 7, 5, 1), ("b", 9, 5, 2)])
    assert varying.figure["data"][0]["x"] == [2, 1]
    assert drawn(NAME, cost, rows=[("a", 5), ("b", 5)]).figure["data"][0]["x"] == [5, 5]


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


def test_equal_names_are_told_apart_by_their_start_and_missing_ones_name_nothing() -> None:
    start = Column(C.START_NS, "ns", "when")
    found = drawn(NAME, TIME, start, rows=[("sync", 9, 2_000), ("sync", 5, 1_000)])
    assert found.figure["layout"]["yaxis"]["ticktext"] == ["sync · 2.00 µs", "sync · 1.00 µs"]
    found = drawn(RANK, NAME, TIME, rows=[(0, "", 2), (1, "", 1)])
    assert found.figure["layout"]["yaxis"]["ticktext"] == ["rank 0", "rank 1"]


def test_devices_are_compared_by_what_they_did_not_by_the_window() -> None:
    rows = [
        {
            C.RANK: 0,
            C.DEVICE: 0,
            "window_ns": 10,
            "active_ns": 7,
            "movement_ns": 0,
            "graph_ns": 0,
            "idle_ns": 3,
        }
    ]
    found = result_figure(get("gpu_breakdown"), Result({"whole": pd.DataFrame(rows)}))
    assert found
    assert {trace["name"]: trace["x"] for trace in found.figure["data"]} == {
        "active": [70],
        "data movement": [0],
        "idle": [30],
    }
    window = Column("window_ns", "ns", "length of the window")
    assert drawn(NAME, window, TIME, rows=[("a", 9, 2), ("b", 9, 1)]).figure["data"][0]["x"] == [2, 1]


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


def test_only_the_first_part_of_a_long_name_is_cut() -> None:
    names = ["kernel<&> of a long name (compute)", f"{'k' * 40}{'x' * 40}"]
    picture = draw_picture(compose_bars(names, {"busy": [2, 1]}, "ns"), label="")
    assert "<span>kernel&lt;&amp;&gt; of a long </span><span>name (compute)</span>" in picture
    assert re.search(r"<span>k+…</span><span>x+</span>", picture)


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
    named = compose_bars(["a"], {"ops": [1], "outside": [2], "threads": [3]}, "ns", colors=["#111", "#222"])
    looks = [(trace["marker"]["color"], "pattern" in trace["marker"]) for trace in named["data"]]
    assert looks == [("#111", False), ("#222", False), ("#111", True)]


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


def test_heatmaps_have_a_cell_for_each_known_value_on_the_scale_of_plotly() -> None:
    figure = heatmap(["rank 0", "rank 1"], ["a", "b", "<c>"], [[0, None, 500], [1_000, 250, 0]], "ns")
    picture = draw_picture(figure, label="")
    cells = re.findall(r'<rect x="(\d)" y="(\d)" [^>]*fill="([^"]*)" data-tip="([^"]*)"', picture)
    ends = [color for _, color in (figure["data"][0]["colorscale"][at] for at in (0, -1))]
    assert [(x, y) for x, y, *_ in cells] == [("0", "0"), ("2", "0"), ("0", "1"), ("1", "1"), ("2", "1")]
    assert [cells[0][2], cells[2][2]] == ends
    assert cells[1][3] == "rank 0\n&lt;c&gt;: 500 ns"
    assert re.findall(r'<b style="left:([\d.]+)%', picture)[:2] == ["16.667", "83.333"]
    assert re.findall(r"<span>([\d.]+)</span>", picture) == ["0", "1"]  # us, the ends of the scale
    assert [tick["bottom"] for tick in marks(picture, "tk-plot-grid")] == []
    assert "tk-plot-small" not in picture
    longer = heatmap(["rank 0"], list("abcde"), [[15_090_000] * 5], "ns")
    assert "tk-plot-small" in draw_picture(longer, label="")  # values would overlap on a phone


def test_limits_are_in_each_row_of_bars() -> None:
    figure = bars(["a", "b"], [0.5, 2.0], "share")
    figure["layout"]["shapes"] = [vertical_line(100)]
    assert [limit["left"] for limit in marks(draw_picture(figure, label=""), "tk-plot-limit")] == [
        "50.000%"
    ] * 2


def test_negative_bars_are_on_the_other_side_of_zero_with_their_text() -> None:
    series = {"B · b": [-0.5, 1.5], "C · c": [None, 0.5]}
    picture = draw_picture(compare_bars(["a", "<b>"], series, "share", ["#1", "#2"]), label="")
    assert [(bar["left"], bar["width"]) for bar in marks(picture, "tk-plot-bar")] == [
        ("0.000%", "25.000%"),  # from -50% to 0 on an axis that ends at 150%
        ("25.000%", "75.000%"),
        ("25.000%", "25.000%"),
    ]
    values = re.findall(r'tk-plot-value" style="([^"]*)">([^<]*)', picture)
    assert values == [
        ("right:100.000%", "B −50.0%"),
        ("left:100.000%", "B +150.0%"),
        ("left:50.000%", "C +50.0%"),
    ]
    assert picture.count('class="tk-plot-track"') == 3  # one below the other for what has both
    assert [limit["left"] for limit in marks(picture, "tk-plot-limit")] == ["25.000%"] * 3  # zero


def test_whiskers_are_between_their_ends_in_rows_and_over_positions() -> None:
    picture = draw_picture(draw_effects([replace(trial("r", Status.HELPS, 0.8), ci95=(0.7, 0.9))]), label="")
    (whisker,) = marks(picture, "tk-plot-whisker")
    assert [float(whisker[side].rstrip("%")) for side in ("left", "width")] == pytest.approx(
        [100 * 0.04 / 1.08, 66.667 / 1.08], abs=0.01
    )
    error = {"array": [2.0, 0.0], "arrayminus": [0.0, 1.0]}
    line = {"type": "scatter", "mode": "markers", "x": [0, 1], "y": [4.0, 8.0], "error_y": error}
    axes = {"xaxis": {"range": [0, 1]}, "yaxis": {"range": [0, 10]}}
    rods = marks(draw_picture({"data": [line], "layout": axes}, label=""), "tk-plot-rod")
    assert [(rod["bottom"], rod["height"]) for rod in rods] == [
        ("40.000%", "20.000%"),
        ("70.000%", "10.000%"),
    ]


def test_a_history_has_links_steps_and_marks_without_plotly() -> None:
    def commit(name: str, value: float, level: float, mark: str = "") -> Commit:
        return Commit(
            name, "<i>", (value,), value, (f"/overview?run={name}&a=1",), ("#123456",), mark=mark, level=level
        )

    commits = [commit("a", 1, 1), commit("b", 3, 3, "▲ +200%")]
    picture = draw_picture(over_commits(commits, "ns", title="step"), label="")
    links = re.findall(
        r'<a class="tk-go [^"]*" style="background-color:#123456;[^>]* href="([^"]*)"', picture
    )
    assert links == ["/overview?run=a&amp;a=1", "/overview?run=b&amp;a=1"]
    assert 'tk-plot-note" style="left:50.000%">▲ +200%<' in picture
    assert [limit["left"] for limit in marks(picture, "tk-plot-limit")] == ["50.000%"]
    *_, levels = re.findall(r'<polyline points="([^"]*)"', picture)
    (_, *turn, _) = (corner.split(",") for corner in levels.split())
    assert [x for x, _ in turn] == ["500.0", "500.0"]  # half of the way from one commit to the next


def test_names_in_place_of_numbers_have_a_place_each() -> None:
    traces = [
        {"type": "bar", "orientation": "h", "name": "train", "y": ["a", "b"], "x": [1, 2]},
        {"type": "bar", "orientation": "h", "name": "infer", "y": ["b", "<c>"], "x": [2, 1]},
    ]
    picture = draw_picture({"data": traces, "layout": {"xaxis": {}, "yaxis": {}}}, label="")
    assert re.findall(r'tk-plot-name"[^>]*>([^<]*)', picture) == ["a", "b", "&lt;c&gt;"]
    assert len(marks(picture, "tk-plot-bar")) == 4
    line = lines([1, 2], {"a": [1, 2]}, "ns")
    named = {"data": [line["data"][0] | {"x": ["8", "unknown"]}], "layout": line["layout"]}
    foot = re.search(r'tk-plot-foot">(.*?)</div>', draw_picture(named, label=""))
    assert foot
    assert re.findall(r">([^<]+)<", foot[1]) == ["8", "unknown"]


def test_what_only_plotly_draws_has_no_picture() -> None:
    line = lines([1, 2], {"a": [1, 2]}, "ns")
    assert draw_picture(line, label="")
    filled = line["data"][0] | {"fill": "tozeroy"}
    assert not draw_picture({"data": [filled], "layout": line["layout"]}, label="")
    slanted = {"yref": "paper", "x0": 0, "x1": 1}
    assert not draw_picture(
        {"data": line["data"], "layout": line["layout"] | {"shapes": [slanted]}}, label=""
    )
    assert not draw_picture(heatmap(["a"], ["b"], [[None]], "ns"), label="")
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
