"""Figures of answer pages, without a browser."""

from __future__ import annotations

import re

import numpy as np
import pandas as pd
import pytest
from tracekit.analyses.lifetimes import BEFORE
from tracekit.dashboards.figures.axis import unpack
from tracekit.dashboards.figures.gaps import FULL, LESS, MAX_COLUMNS, UNKNOWN, launch_map, matrix, waves
from tracekit.dashboards.figures.lines import Dots, Limit, decades, points
from tracekit.dashboards.figures.memory import (
    EARLIER,
    MAX_POINTS,
    OTHERS,
    chunk_extremes,
    draw_lives,
    over_time,
    rates,
    roofs,
    sizes,
    stack_lives,
)
from tracekit.dashboards.figures.pictures import draw_picture
from tracekit.dashboards.figures.shares import MAX_BOXES, treemap
from tracekit.dashboards.figures.sweep import cumulative, group_bars
from tracekit.dashboards.pages.flame import MAX_ANCESTORS, flame_data, list_ancestors

from tracekit.schema import C

HOSTILE = "<script>x</script><b>"
KINDS = {"p": "#3b82c4", "q": "#8793a3"}


def test_extremes_keep_the_ends_and_every_least_and_largest_value() -> None:
    values = np.random.default_rng(3).normal(size=50_000)
    values[[17, 30_001]] = -99, 99
    at = chunk_extremes(values, np.arange(50_000.0))
    assert len(at) <= MAX_POINTS
    assert {0, 17, 30_001, 49_999} <= set(at.tolist())
    assert (np.diff(at) > 0).all()


def test_extremes_pass_over_missing_values() -> None:
    values = np.full(10_000, np.nan)
    values[5_000] = 1.0
    assert 5_000 in chunk_extremes(values, most=100)


def test_extremes_are_the_first_of_equal_chunks() -> None:
    values = np.array([0.0, 9, 1, 2, 3, 4, 5, 6, 7, 8])
    assert chunk_extremes(values, most=8).tolist() == [0, 1, 4, 5, 9]


def test_memory_over_time_leaves_out_what_was_not_recorded() -> None:
    frame = pd.DataFrame(
        {C.T_NS: [0, 1], "allocated": [0, 1024], "reserved": pd.array([pd.NA, pd.NA], "Int64")}
    )
    figure = over_time(frame)
    assert [trace["name"] for trace in figure["data"]] == ["allocated"]
    assert unpack(figure["data"][0]["y"]) == [0, 1]


def test_stacked_allocations_drop_when_one_below_is_freed_and_others_are_on_top() -> None:
    lives = pd.DataFrame(
        {
            C.START_NS: [0, 10],
            "life_ns": [20, 30],
            "size": [5, 7],
            "edge": ["", "end"],
            "op": ["mm", HOSTILE],
            C.MODULE: "net",
            "category": "unknown",
        }
    )
    over_time = pd.DataFrame({C.T_NS: [0, 10, 20, 40], "allocated": [6, 13, 8, 1]})
    over_time["largest"] = [5, 12, 7, 0]
    over_time["others"] = over_time["allocated"] - over_time["largest"]
    first, second, others = draw_lives(lives, over_time, "op", {})["data"]
    assert (first["x"][:2], first["y"][:2]) == ([0, 20], [0, 0])
    assert (second["x"][:4], second["y"][:4]) == ([10, 20, 20, 40], [5, 5, 0, 0])
    assert max(second["y"]) == 12
    assert others["y"][:8:2] == [6, 13, 8, 1]
    assert others["name"] == OTHERS
    assert EARLIER == BEFORE
    assert "<script" not in second["text"] + second["name"] + second["legendgroup"]


def test_boxes_of_a_treemap_are_few_and_sum_to_the_family() -> None:
    ops = 2 * MAX_BOXES
    tree = pd.DataFrame(
        {
            "node": range(ops + 1),
            "parent": pd.array([None, *[0] * ops], dtype="Int64"),
            C.DEPTH: [0, *[1] * ops],
            C.NAME: ["family", *(f"{HOSTILE}{at}" for at in range(ops))],
            "host_self_ns": [ops * (ops + 1) // 2, *range(1, ops + 1)],
        }
    )
    (trace,) = treemap(tree, "host_self_ns", lambda name: f"/ops?op={name[-3:]}")["data"]
    assert len(trace["ids"]) <= MAX_BOXES
    whole, *boxes = trace["values"]
    assert sum(boxes) == whole == ops * (ops + 1) // 2
    assert trace["customdata"][1] == f"/ops?op={ops - 1}"
    assert trace["labels"][-1].endswith("other ops")
    assert not any("<script" in text for text in (*trace["labels"], *trace["hovertext"]))


def _nodes(*rows: tuple[int | None, str, int, int]) -> pd.DataFrame:
    parent, name, total, rank = zip(*rows, strict=True)
    return pd.DataFrame(
        {
            "node": range(len(rows)),
            "parent": pd.array(parent, dtype="Int64"),
            C.NAME: name,
            "calls": 1,
            "host_total_ns": total,
            "host_self_ns": total,
            "device_total_ns": pd.array([pd.NA] * len(rows), dtype="Int64"),
            "device_self_ns": pd.array([pd.NA] * len(rows), dtype="Int64"),
            C.RANK: rank,
        }
    )


def test_a_flame_has_the_whole_above_its_roots_and_each_name_once() -> None:
    data = flame_data(_nodes((None, "a", 100, 0), (None, "b", 50, 0), (0, "b", 30, 0)), "host")
    assert [data["names"][code] for code in data["name"]] == ["all", "a", "b", "b"]
    assert data["names"] == ["all", "a", "b"]
    assert data["parent"] == [-1, 0, 0, 1]
    assert data["total"] == [150, 100, 50, 30]


def test_a_flame_of_several_ranks_has_a_node_for_each() -> None:
    data = flame_data(_nodes((None, "a", 100, 1), (None, "a", 50, 4)), "host")
    assert [data["names"][code] for code in data["name"]] == ["all", "rank 1", "rank 4", "a", "a"]
    assert data["parent"] == [-1, 0, 0, 1, 2]
    assert data["total"] == [150, 100, 50, 100, 50]


def test_a_flame_leaves_out_what_is_too_narrow_and_says_how_many() -> None:
    nodes = _nodes((None, "a", 1_000, 0), (0, "b", 1, 0), (0, "c", 500, 0))
    data = flame_data(nodes, "host", finest=100)
    assert (len(data["parent"]), data["left"]) == (3, 1)
    assert flame_data(nodes, "device")["total"] == [0]


def test_a_path_has_the_innermost_ancestors() -> None:
    depth = MAX_ANCESTORS + 5
    nodes = _nodes(*((level - 1 if level else None, f"op{level}", 9, 0) for level in range(depth)))
    shallow, deep = list_ancestors(nodes, nodes.iloc[[2, depth - 1]])
    assert shallow == "op0 › op1"
    assert deep.split(" › ") == ["…", *(f"op{level}" for level in range(4, depth - 1))]


def test_sizes_of_copies_fill_the_empty_bins_and_keep_the_unknown() -> None:
    table = pd.DataFrame({"from_bytes": pd.array([256, 2048, pd.NA], dtype="Int64"), "copies": [2, 1, 5]})
    figure = sizes({"H2D": table})
    assert figure["data"][0]["y"] == [2, 0, 0, 1, 5]
    assert figure["layout"]["xaxis"]["ticktext"] == ["256 B", "512 B", "1 KiB", "2 KiB", "unknown"]


def test_rates_of_copies_stand_under_their_ceiling() -> None:
    table = pd.DataFrame(
        {
            "op": [HOSTILE, "x"],
            "bytes_each": pd.array([4096, pd.NA], dtype="Int64"),
            "memory": ["pinned", "pinned"],
            "copies": [3, 1],
            "sum_ns": [10, 1],
            "gb_per_s": [12.5, np.nan],
        }
    )
    figure = rates({"H2D": table}, {"H2D": 25.0})
    assert [trace["name"] for trace in figure["data"]] == ["H2D pinned", "H2D ceiling 25.00 GB/s"]
    assert figure["data"][0]["y"] == [12.5]
    assert "<script" not in str(figure)


def test_the_cumulative_curve_ends_at_the_whole() -> None:
    assert unpack(cumulative([0.5, 0.25, 0.25], ["a", "b", "c"], what="x")["data"][0]["y"])[-1] == 100


def test_the_cumulative_curve_of_few_items_has_no_tick_at_half_an_item() -> None:
    drawn = draw_picture(cumulative([0.8, 0.2], ["a", "b"], what="x"), label="share")
    foot = drawn.partition("tk-plot-foot")[2].partition("</div>")[0]
    assert re.findall(r">([\d.]+)<", foot) == ["0", "1", "2"]


def test_bars_of_groups_differ_in_pattern_too() -> None:
    figure = group_bars([HOSTILE, "b"], [2, 1], "ns", groups=["p", "q"], kinds=KINDS)
    shapes = [trace["marker"]["pattern"]["shape"] for trace in figure["data"]]
    assert len(set(shapes)) == 2
    assert [trace["marker"]["color"] for trace in figure["data"]] == [*KINDS.values()]
    assert "<script" not in str(figure)
    of_one = group_bars(["a"], [2], "ns", groups=["q"], kinds=KINDS)
    assert '<ul class="tk-plot-legend">' in draw_picture(of_one, label="")  # a pattern says nothing alone


def test_bars_of_groups_are_one_to_a_row_and_as_thick_as_each_other() -> None:
    figure = group_bars(list("abcd"), [4, 3, 2, 1], "ns", groups=["p", "q", "q", "q"], kinds=KINDS)
    assert sorted(place for trace in figure["data"] for place in trace["y"]) == [0, 1, 2, 3]
    assert {trace["width"] for trace in figure["data"]} == {0.75}


@pytest.mark.parametrize(("values", "first"), [([0.001, 100_000], "0.001"), ([4, 6], "2"), ([5], "2")])
def test_ticks_of_a_logarithmic_axis_stay_few(values: list[float], first: str) -> None:
    ticks = decades(values)["ticktext"]
    assert ticks[0] == first
    assert 2 <= len(ticks) <= 12
    assert decades([4, 60])["ticktext"] == ["2", "5", "10", "20", "50", "100"]
    assert decades([0.00002, 3_000])["ticktext"][0] == "0.00001"  # as the others, without an exponent


def test_points_bring_limits_after_kinds() -> None:
    figure = points([Dots("a", [1], [1], ["a"])], [Limit("l", [1, 2], [3, 3])], x_title="x", y_title="y")
    assert [trace["mode"] for trace in figure["data"]] == ["markers", "lines"]
    assert decades([]) == {}


def _configs() -> pd.DataFrame:
    return pd.DataFrame(
        {
            C.BLOCK_X: [128, 256, 64],
            C.BLOCK_Y: 1,
            C.BLOCK_Z: 1,
            "blocks": [10, 1000, 5],
            "waves": [0.5, 3.0, np.nan],
            "occupancy": [0.5, 1.0, np.nan],
            "resident_blocks": [8.0, 8.0, np.nan],
            "op": [HOSTILE, "b", ""],
            "family": ["f", "g", "h"],
            "grid": "(1, 1, 1)",
            "block": "(1, 1, 1)",
            "total_ns": [5, 10, 1],
            "share": [0.3, 0.6, 0.1],
        }
    )


def test_configurations_are_told_apart_by_their_waves() -> None:
    assert [trace["name"] for trace in launch_map(_configs())["data"]] == [FULL, LESS, UNKNOWN]
    assert "<script" not in str(launch_map(_configs()))


def test_without_occupancy_the_resident_blocks_are_shown() -> None:
    title = waves(_configs().assign(occupancy=np.nan))["layout"]["yaxis"]["title"]["text"]
    assert title == "resident blocks per SM"
    assert waves(_configs())["layout"]["yaxis"]["title"]["text"] == "occupancy (%)"


def test_roofs_bend_where_compute_takes_over() -> None:
    ops = pd.DataFrame(
        {
            "op": ["mm", HOSTILE],
            C.INPUT_SHAPES: "",
            "precision": "bf16",
            "bound": ["compute", "neither"],
            "tflops": [400.0, 1.0],
            "intensity": [1000.0, 10.0],
            "utilization": [0.5, np.nan],
            "device_ns": [100, 10],
            "peak_tflops": 1000.0,
            "peak_gb_per_s": 2000.0,
        }
    )
    figure = roofs(ops)
    roof = figure["data"][-1]
    assert roof["x"] == [5.0, 500.0, 2000.0]
    assert roof["y"] == [10.0, 1000.0, 1000.0]
    assert "<script" not in str(figure)


def test_waits_are_summed_by_step_where_collectives_are_many() -> None:
    count = MAX_COLUMNS + 1
    skew = pd.DataFrame(
        {
            "last_rank": pd.array([1] * count, dtype="Int64"),
            "collective": "all_reduce",
            "number": range(count),
            C.STEP: pd.array([0] * (count - 2) + [1, None], dtype="Int64"),
            "wait_ns": 1_000_000,
        }
    )
    figure, by = matrix(skew)
    assert by == "by step"
    assert list(figure["layout"]["xaxis"]["ticktext"]) == ["step 0", "step 1", "no step"]
    assert figure["data"][0]["z"] == [[MAX_COLUMNS - 1, 1.0, 1.0]]
    assert matrix(skew.head(2))[1] == "by collective"


def test_what_is_above_a_freed_allocation_drops_by_its_size() -> None:
    assert stack_lives([(0, 20, 5), (10, 30, 7)]) == [[(0, 0)], [(10, 5), (20, 0)]]
