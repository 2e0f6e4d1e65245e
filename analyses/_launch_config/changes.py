"""Rules of changed launch configurations, and the table of changes."""

from __future__ import annotations

from tracekit.analysis import Column, Rule, TableSpec

from .configs import BLOCK, FAMILY, GRID, OP

DIFFERENT_WORK, ANOTHER, UNDECIDED = "different work", "same work", "unknown"

RULES = (
    Rule(
        "launch_work_differs",
        states=(
            "two runs compared: the grids of one op and kernel family differ by exactly the ratio of an "
            "input's elements or of the batch sizes, and the kernels take at least 1% of either run's steps"
        ),
        why="a grid that grows with the number of elements indicates more work, not a worse configuration",
    ),
    Rule(
        "launch_config_changed",
        states=(
            "two runs compared: one op and kernel family with the same input shapes has another grid or "
            "block, and takes at least 1% of either run's steps"
        ),
        why="the work is the same, so a change in time is not caused by the amount of work",
    ),
)

CHANGES = TableSpec(
    "changes",
    "Launch configurations that differ",
    (
        Column(OP, "", "innermost op that launched it"),
        Column("verdict", "", "different work; same work (with another configuration); or unknown"),
        Column("base_launch", "id", "grid and block in base"),
        Column("head_launch", "id", "grid and block in head"),
        Column("time_ratio", "×", "median duration of head over base"),
        Column("base_median_ns", "ns", "lower median of the durations in base"),
        Column("head_median_ns", "ns", "lower median of the durations in head"),
        Column("work_ratio", "×", "elements of head over base, missing if unknown"),
        Column("grid_ratio", "×", "blocks of head over base"),
        *(
            Column(f"{which}_{name}", "count", f"{name.replace('_', ' in ')} in {which}")
            for which in ("base", "head")
            for name in (*GRID, *BLOCK)
        ),
        Column(FAMILY, "", "canonical name of the kernel"),
        Column("base_launches", "count", "launches in base"),
        Column("head_launches", "count", "launches in head"),
        Column("base_total_ns", "ns", "Σ of durations in base"),
        Column("head_total_ns", "ns", "Σ of durations in head"),
        Column("reason", "", "reason of the verdict"),
        Column("base_shapes", "", "input shapes in base; empty if not recorded"),
        Column("head_shapes", "", "input shapes in head; empty if not recorded"),
        Column("base_first", "", "row of the first launch in base's device_intervals"),
        Column("head_first", "", "row of the first launch in head's device_intervals"),
    ),
)
