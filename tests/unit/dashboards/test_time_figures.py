"""Figures of time: parts that sum to windows, causes of gaps, step times."""

from __future__ import annotations

import pandas as pd
import pytest
from tracekit.dashboards.figures import gaps, lines, shares

from tracekit.schema import C

MS = 1_000_000
BREAKDOWN = pd.DataFrame(
    {
        "window_ns": [10 * MS, 20 * MS],
        "active_ns": [6 * MS, 10 * MS],
        "movement_ns": [1 * MS, 0],
        "graph_ns": [0, 0],
        "idle_ns": [3 * MS, 10 * MS],
    }
)
GAPS = pd.DataFrame(
    {"cause": ["sync", "launch_bound", "launch_bound", "other"], "dur_ns": [4_000_000, 1_500, 2_500, 1_000]}
)


def test_the_parts_of_a_device_sum_to_its_window() -> None:
    figure, _ = shares.by_device(BREAKDOWN, ["device 0", "<b>device 1"])
    assert [trace["name"] for trace in figure["data"]] == ["active", "data movement", "idle"]
    for at in (0, 1):
        assert sum(trace["x"][at] for trace in figure["data"]) == pytest.approx(100)
    assert "1.00 ms" in figure["data"][1]["hovertext"][0]
    assert "<b>" not in str(figure)


def test_opaque_graphs_are_shown_where_there_are_any() -> None:
    figure, _ = shares.by_device(BREAKDOWN.assign(graph_ns=[1, 0]), ["a", "b"])
    assert "opaque graph" in [trace["name"] for trace in figure["data"]]


def test_the_parts_of_a_step_share_one_scale() -> None:
    figure = shares.by_step(BREAKDOWN, [7, 9])
    assert [trace["y"] for trace in figure["data"]] == [[6.0, 10.0], [1.0, 0.0], [3.0, 10.0]]
    assert figure["layout"]["yaxis"]["title"]["text"] == "window (ms)"
    assert figure["layout"]["xaxis"]["ticktext"] == ["7", "9"]


def test_many_steps_have_few_ticks() -> None:
    assert len(shares.step_axis(list(range(1_000)))["tickvals"]) <= 10
    assert shares.step_axis([7, 8])["ticktext"] == ["7", "8"]


def test_gaps_are_counted_by_length_and_cause() -> None:
    figure = gaps.lengths(GAPS)
    by_name = {trace["name"]: trace for trace in figure["data"]}
    assert list(by_name) == ["launch-bound", "synchronization", "other"]
    ticks = figure["layout"]["xaxis"]["ticktext"]
    assert ticks[:2] == ["1 µs", "2 µs"]
    assert by_name["synchronization"]["y"][ticks.index("2 ms")] == 4.0
    assert "1.50 µs in 1 gaps" in by_name["launch-bound"]["hovertext"][0]


def test_short_gaps_alone_make_one_bin() -> None:
    assert len(gaps.lengths(GAPS.iloc[3:])["data"][0]["x"]) == 1


def test_lengths_begin_with_the_bin_of_the_shortest_gap() -> None:
    longer = GAPS.assign(**{C.DUR_NS: [50_000 + at for at in range(len(GAPS))]})
    axis = gaps.lengths(longer)["layout"]["xaxis"]
    assert axis["ticktext"] == ["50 µs"]


def test_measures_that_are_equal_at_every_step_are_one_line() -> None:
    steps = pd.DataFrame(
        {
            C.RANK: [0, 0],
            C.STEP: [1, 2],
            "own_ns": [5, 6],
            "host_ns": [5, 6],
            "device_busy_ns": [1, 2],
            "warmup_outlier": [False, False],
        }
    )
    names = [trace["name"] for trace in lines.durations(steps)["data"]]
    assert names == ["after earlier steps and on the host", "device busy"]


CAUSES = pd.DataFrame(
    {
        "cause": ["sync", "launch_bound"],
        "idle_ns": [1 * MS, 3 * MS],
        "gaps": [1, 30],
        "share": [0.25, 0.75],
    }
)


def test_one_device_gets_a_bar_per_cause_the_longest_first() -> None:
    figure = gaps.by_cause(CAUSES, ["device 0", "device 0"])
    assert figure["layout"]["yaxis"]["ticktext"] == ["launch-bound", "synchronization"]
    assert {trace["name"]: trace["x"] for trace in figure["data"]} == {
        "launch-bound": [3.0],
        "synchronization": [1.0],
    }


def test_several_devices_get_a_bar_each() -> None:
    figure = gaps.by_cause(CAUSES, ["device 0", "device 1"])
    assert figure["layout"]["yaxis"]["ticktext"] == ["device 0", "device 1"]
    assert [trace["y"] for trace in figure["data"]] == [[1], [0]]


def steps(**more: object) -> pd.DataFrame:
    return pd.DataFrame(
        {
            "rank": [0, 0, 0],
            "step": [3, 4, 5],
            "own_ns": [9 * MS, 5 * MS, 5 * MS],
            "host_ns": [4 * MS] * 3,
            "device_busy_ns": pd.array([None] * 3, dtype="Int64"),
            "warmup_outlier": [True, False, False],
        }
        | more
    )


def test_a_warm_up_outlier_is_crossed_on_the_same_scale() -> None:
    figure = lines.durations(steps())
    assert [trace["name"] for trace in figure["data"]] == [
        "after earlier steps",
        "on the host",
        "warm-up outlier",
    ]
    assert figure["data"][0]["y"] == [9.0, 5.0, 5.0]
    assert (figure["data"][-1]["x"], figure["data"][-1]["y"]) == ([3], [9.0])


def test_several_ranks_get_a_line_each() -> None:
    figure = lines.durations(steps(rank=[0, 0, 1], step=[3, 4, 3], warmup_outlier=[False] * 3))
    assert {trace["name"]: trace["y"] for trace in figure["data"]} == {
        "rank 0": [9.0, 5.0],
        "rank 1": [5.0, None],
    }
