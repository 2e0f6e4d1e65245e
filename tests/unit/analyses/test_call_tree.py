from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from tracekit.analyses.call_tree import NO_CALLS, PROFILED, UNPROFILED
from tracekit.analyses.shared.common import UNLINKED

from tests.builders import host, kernel, make_run
from tracekit.analysis import analyze
from tracekit.schema import C, HostKind

if TYPE_CHECKING:
    from pathlib import Path

    import pandas as pd

    from tracekit.runs.run import Run


def _steps(path: Path, **more: Any) -> Run:
    """Two steps of one annotation around an op, whose child launches, and a launch outside of ops."""
    rows = []
    for number, at in enumerate((0, 1000)):
        first = len(rows)
        rows += [
            host(f"Step#{number}", at, at + 100, kind=HostKind.ANNOTATION),
            host("conv", at + 10, at + 60, parent_row=first, depth=1),
            host("frame", at + 15, at + 50, kind=HostKind.PYTHON, parent_row=first + 1, depth=2),
            host("inner", at + 20, at + 40, parent_row=first + 2, depth=3),
            host("launch", at + 70, at + 80, kind=HostKind.RUNTIME, parent_row=first, depth=1),
        ]
    return make_run(path, host_intervals=rows, **more)


def _nodes(run: Run) -> pd.DataFrame:
    return analyze(run, "call_tree").tables["nodes"].set_index(C.NAME)


def test_equal_paths_are_one_node_whatever_the_step(tmp_path: Path) -> None:
    nodes = _nodes(_steps(tmp_path))
    assert nodes.index.tolist() == ["Step", "conv", "inner"]
    assert nodes["calls"].tolist() == [2, 2, 2]
    assert nodes["host_total_ns"].tolist() == [200, 100, 40]
    assert nodes["host_self_ns"].tolist() == [100, 60, 40]
    assert nodes["parent"].tolist()[1:] == [0, 1]


def test_device_time_stays_with_the_innermost_and_climbs(tmp_path: Path) -> None:
    launched = [kernel(50, 55, op_row=3, launch_row=3), kernel(90, 97, op_row=None, launch_row=4)]
    nodes = _nodes(_steps(tmp_path, device_intervals=launched))
    assert nodes["device_self_ns"].tolist() == [7, 0, 5]
    assert nodes["device_total_ns"].tolist() == [12, 5, 5]


def test_self_times_sum_to_the_roots(tmp_path: Path) -> None:
    launched = [kernel(50, 55, op_row=3), kernel(60, 90, op_row=6)]
    nodes = _nodes(_steps(tmp_path, device_intervals=launched))
    roots = nodes[nodes["parent"].isna()]
    for side in ("host", "device"):
        assert nodes[f"{side}_self_ns"].sum() == roots[f"{side}_total_ns"].sum()


def test_python_calls_take_the_place_of_annotations(tmp_path: Path) -> None:
    launched = [kernel(50, 55, op_row=3, launch_row=3)]
    stacks = analyze(_steps(tmp_path, device_intervals=launched), "call_tree").tables["stacks"]
    columns = [C.NAME, "parent", "calls", "host_self_ns", "device_total_ns"]
    assert stacks[columns].fillna(-1).to_numpy().tolist() == [
        ["conv", -1, 2, 100 - 70, 5],
        ["frame", 0, 2, 70 - 40, 5],
        ["inner", 1, 2, 40, 5],
    ]


def test_ranks_have_roots_of_their_own(tmp_path: Path) -> None:
    rows = [host("mul", 0, 10), host("mul", 0, 30, rank=1)]
    table = analyze(make_run(tmp_path, host_intervals=rows), "call_tree").tables["nodes"]
    assert table[[C.RANK, "host_total_ns"]].to_numpy().tolist() == [[0, 10], [1, 30]]


def test_what_is_linked_to_nothing_is_said(tmp_path: Path) -> None:
    launched = [kernel(50, 60, op_row=3), kernel(60, 70, op_row=None)]
    assert analyze(_steps(tmp_path / "a", device_intervals=launched), "call_tree").notes == (
        "50.0% of the device time is not linked to an op or annotation",
    )
    unlinked = analyze(_steps(tmp_path / "b", device_intervals=[kernel(0, 5, op_row=None)]), "call_tree")
    assert unlinked.notes == (UNLINKED,)
    assert unlinked.tables["nodes"]["device_self_ns"].isna().all()


@pytest.mark.parametrize("kind", [HostKind.RUNTIME, HostKind.PYTHON])
def test_without_ops_it_says_so(tmp_path: Path, kind: HostKind) -> None:
    run = make_run(tmp_path, host_intervals=[host("call", 0, 10, kind=kind)])
    assert analyze(run, "call_tree").notes == (NO_CALLS,)


def test_samples_of_profiled_steps_and_of_others_have_roots_of_their_own(tmp_path: Path) -> None:
    taken = [(10, "b;a", 1), (20, "a", 1), (30, "b;a", None), (500, "c;a", 0), (505, "c;a", 0)]
    samples = [
        {C.T_NS: t_ns, C.RANK: 0, C.TID: 1, C.STACK: stack, C.SOURCE_LINES: "", C.PROFILED: profiled}
        for t_ns, stack, profiled in taken
    ]
    nodes = analyze(_steps(tmp_path, host_samples=samples), "call_tree").tables["samples"]
    assert nodes[[C.NAME, "calls", "host_self_ns", "host_total_ns"]].to_numpy().tolist() == [
        [PROFILED, 3, 0, 30],
        ["a", 3, 10, 30],
        ["b", 2, 20, 20],
        [UNPROFILED, 2, 0, 10],
        ["a", 2, 0, 10],
        ["c", 2, 10, 10],
    ]
    assert nodes["parent"].fillna(-1).tolist() == [-1, 0, 1, -1, 3, 4]
