from __future__ import annotations

import pytest
from tracekit.dashboards.components import charts
from tracekit.dashboards.figures.axis import hover_name, pack, shorten_label, unpack
from tracekit.dashboards.figures.bars import bars, compare_bars, histogram, stack_bars
from tracekit.dashboards.figures.lines import heatmap, lines, strips, with_colors

HOSTILE = "<script>alert(1)</script><b>bold</b>"


def strings(value: object) -> list[str]:
    if isinstance(value, str):
        return [value]
    if isinstance(value, dict):
        value = list(value.values())
    return [text for one in value for text in strings(one)] if isinstance(value, list) else []


FIGURES = {
    "bars": bars([HOSTILE], [1], "ns", title=HOSTILE),
    "stacked": stack_bars([HOSTILE], {HOSTILE: [1]}, "ns", title=HOSTILE),
    "lines": lines([1], {HOSTILE: [1]}, "ns", title=HOSTILE, x_title=HOSTILE),
    "many": lines([0] * 3000, {HOSTILE: [1] * 3000}, "ns", title=HOSTILE),
    "histogram": histogram([0], [1], {HOSTILE: [1]}, bin_unit="bytes", title=HOSTILE, x_title=HOSTILE),
    "strips": strips([f"A · {HOSTILE}"], [[1, 2]], "ns", ["#111"], title=HOSTILE),
    "compared": compare_bars([HOSTILE], {f"B · {HOSTILE}": [1]}, "ns", ["#111"], title=HOSTILE),
    "heatmap": heatmap([HOSTILE], [HOSTILE], [[1]], "ns", title=HOSTILE, row_title=HOSTILE),
}


@pytest.mark.parametrize("name", FIGURES)
def test_names_of_traces_are_no_markup(name: str) -> None:
    found = [text for text in strings(FIGURES[name]) if "<script" in text or "<b>" in text]
    assert found == []


def test_control_characters_are_spelled_out() -> None:
    assert shorten_label("a\u202eb") == "a\\u202eb"
    assert hover_name("a\x1bb") == "a\\x1bb"


def test_a_whole_axis_has_one_scale_and_each_point_its_exact_text() -> None:
    trace = lines([1, 2], {"host": [1_500_000, 900]}, "ns", x_title="step")["data"][0]
    assert trace["y"] == [1.5, 0.0009]
    assert trace["hovertext"] == ["host<br>step 1: 1.50 ms", "host<br>step 2: 900 ns"]


def test_missing_values_are_gaps() -> None:
    assert lines([1, 2], {"host": [None, 2]}, "count")["data"][0]["y"] == [None, 2]
    assert unpack(pack([None, *range(500)]))[:3] == [None, 0.0, 1.0]


def test_runs_over_each_other_differ_in_color_and_shape() -> None:
    series = {"A": [1.0, 2.0], "B": [2.0, 1.0]}
    drawn = with_colors(lines([1, 2], series, "ns"), ["#111", "#222"])["data"]
    assert [trace["line"]["color"] for trace in drawn] == ["#111", "#222"]
    assert len({trace["marker"]["symbol"] for trace in drawn}) == 2
    names, colors = ["A · old", "B · none", "C · new"], ["#1", "#2", "#3"]
    figure = strips(names, [[4, 2], [], [6]], "ns", colors, title="step")
    *runs, medians = figure["data"]
    assert [trace["x"] for trace in runs] == [[4, 2], [], [6]]
    assert [round(y) for trace in runs for y in trace["y"]] == [0, 0, -2]
    assert (medians["x"], medians["y"]) == ([3, 6], [0, -2])
    assert figure["layout"]["yaxis"]["ticktext"] == ["A", "B", "C"]


def test_bars_of_runs_name_them_and_leave_out_what_is_unknown() -> None:
    series = {"B · new": [0.5, None], "C · newer": [-0.25, 0.1]}
    drawn = compare_bars(["step", "peak"], series, "share", ["#1", "#2"])["data"]
    assert [trace["x"] for trace in drawn] == [[50], [-25, 10]]
    assert [trace["y"] for trace in drawn] == [[0], [0, 1]]
    assert [trace["text"] for trace in drawn] == [["B +50.0%"], ["C −25.0%", "C +10.0%"]]


def test_steps_have_whole_ticks() -> None:
    assert lines([3, 4], {"a": [1, 2]}, "ns")["layout"]["xaxis"]["tickvals"] == [3, 4]
    assert "tickvals" not in lines([0.5, 1.5], {"a": [1, 2]}, "ns")["layout"]["xaxis"]


def test_very_many_points_travel_as_bytes() -> None:
    trace = FIGURES["many"]["data"][0]
    assert trace["type"] == "scattergl"
    assert isinstance(trace["y"], dict)
    assert "hovertext" not in trace


def test_few_counts_have_whole_ticks() -> None:
    few, many = (histogram([0], [1], {"copies": [n]}, bin_unit="bytes")["layout"]["yaxis"] for n in (2, 200))
    assert (few.get("dtick"), many.get("dtick")) == (1, None)


def test_bins_are_named_by_their_bounds() -> None:
    figure = histogram([0, None], [1024, None], {"copies": [3, 1]}, bin_unit="bytes")
    assert figure["layout"]["xaxis"]["ticktext"] == ["0 B to 1.00 KiB", "unknown"]
    assert figure["data"][0]["y"] == [3, 1]


def test_missing_values_are_empty_cells_of_a_heatmap() -> None:
    trace = heatmap(["a"], ["b", "c"], [[-2_000, None]], "ns")["data"][0]
    assert trace["z"] == [[-2.0, None]]
    assert trace["text"] == [["−2.00 µs", "–"]]


def test_settings_of_a_figure_take_precedence_over_the_theme() -> None:
    themed = charts.with_theme({"data": [], "layout": {"height": 100}}, dark=True)
    assert themed["layout"]["height"] == 100
