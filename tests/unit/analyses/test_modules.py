from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from tracekit.analyses.modules import ARROW, MAX_PATH, NOT_IN_BOTH, OUTSIDE_NAME

from tests.builders import host, kernel, make_run, step
from tracekit.analysis import analyze, compare
from tracekit.diff import Options, diff
from tracekit.schema import C, HostKind

if TYPE_CHECKING:
    import pandas as pd

    from tests.shared_runs import SharedRuns
    from tracekit.runs.run import Run

SAMPLE = Path(__file__).parents[3] / "samples" / "recorded" / "gpt-train-stacks-cpu" / "trace.json.gz"
MAIN, ENGINE = 1, 2


def module(name: str, start: int, end: int, parent: int | None = None) -> dict[str, Any]:
    return host(f"nn.Module: {name}", start, end, kind=HostKind.PYTHON, parent_row=parent, tid=MAIN)


def forward(
    name: str, start: int, end: int, parent: int | None, sequence: int, **more: Any
) -> dict[str, Any]:
    return host(name, start, end, parent_row=parent, tid=MAIN, sequence=sequence, fwd_tid=0, **more)


def backward(name: str, start: int, end: int, sequence: int | None) -> dict[str, Any]:
    return host(name, start, end, tid=ENGINE, sequence=sequence, fwd_tid=1)


def network() -> list[dict[str, Any]]:
    """A module that calls two others, whose backward ops run on another thread, and an optimizer."""
    return [
        module("Net_0", 0, 100),  # 0
        module("Linear_0", 10, 40, 0),  # 1
        forward("aten::linear", 12, 38, 1, 5),  # 2
        forward("aten::mm", 14, 34, 2, 5),  # 3
        module("Linear_1", 50, 90, 0),  # 4
        forward("aten::mm", 52, 82, 4, 6),  # 5
        forward("aten::add", 92, 96, 0, 7),  # 6
        backward("AddBackward0", 200, 203, 7),  # 7
        backward("MmBackward0", 210, 230, 6),  # 8
        host("aten::t", 215, 220, tid=ENGINE, parent_row=8),  # 9
        backward("MmBackward0", 240, 290, 5),  # 10
        backward("AccumulateGrad", 300, 310, None),  # 11
        host("Optimizer.step", 400, 407, tid=MAIN),  # 12
        host("cudaLaunchKernel", 410, 411, kind=HostKind.RUNTIME, tid=MAIN),  # 13
        host("cudaLaunchKernel", 60, 61, kind=HostKind.RUNTIME, tid=MAIN, parent_row=4),  # 14
    ]


def launched() -> list[dict[str, Any]]:
    return [
        kernel(500, 511, op_row=3, launch_row=3),
        kernel(520, 533, op_row=5, launch_row=5),
        kernel(540, 557, op_row=9, launch_row=9),
        kernel(560, 579, op_row=12, launch_row=12),
        kernel(600, 623, op_row=None, launch_row=13),
        kernel(630, 659, op_row=None, launch_row=14),
    ]


def tree(run: Run) -> pd.DataFrame:
    return analyze(run, "modules").tables["tree"].set_index("path")


def test_ops_belong_to_the_innermost_module_and_backward_ops_to_that_of_their_forward_op(
    tmp_path: Path,
) -> None:
    found = tree(make_run(tmp_path, host_intervals=network(), device_intervals=launched()))
    first, second = f"Net_0{ARROW}Linear_0", f"Net_0{ARROW}Linear_1"
    assert found["host_self_ns"].to_dict() == {
        "Net_0": 4 + 3,
        second: 30 + 20,
        first: 26 + 50,
        OUTSIDE_NAME: 10 + 7,
    }
    assert found["host_backward_ns"].to_dict() == {"Net_0": 73, second: 20, first: 50, OUTSIDE_NAME: 0}
    assert found["device_self_ns"].to_dict() == {
        "Net_0": 0,
        second: 13 + 17 + 29,
        first: 11,
        OUTSIDE_NAME: 42,
    }
    assert found["device_backward_ns"].to_dict() == {"Net_0": 17, second: 17, first: 0, OUTSIDE_NAME: 0}
    assert found["no_op_ns"].to_dict() == {"Net_0": 0, second: 29, first: 0, OUTSIDE_NAME: 23}
    assert found.loc["Net_0", ["device_total_ns", "host_total_ns", "calls", "call_ns"]].tolist() == [
        70,
        133,
        1,
        100,
    ]


def test_times_sum_to_those_of_the_op_table(tmp_path: Path) -> None:
    run = make_run(tmp_path, host_intervals=network(), device_intervals=launched())
    assert_sums_agree(run)


def test_ops_are_listed_by_module_with_what_no_op_launched(tmp_path: Path) -> None:
    run = make_run(tmp_path, host_intervals=network(), device_intervals=launched())
    found = analyze(run, "modules").tables["ops"].fillna(-1)
    columns = [C.MODULE, C.NAME, "calls", "device_self_ns", "host_self_ns"]
    assert found.loc[found[C.MODULE] == "Linear_1", columns].to_numpy().tolist() == [
        ["Linear_1", "(no op recorded)", -1, 29, -1],
        ["Linear_1", "aten::t", 1, 17, 5],
        ["Linear_1", "aten::mm", 1, 13, 30],
        ["Linear_1", "MmBackward0", 1, -1, 15],
    ]


def assert_sums_agree(run: Run) -> None:
    found, ops = analyze(run, "modules").tables, analyze(run, "ops").tables["ops"]
    rows, types = found["tree"], found["types"]
    sums = found["ops"].groupby("node")[["host_self_ns", "device_self_ns"]].sum()
    nodes = rows.set_index("node").loc[sums.index, sums.columns]
    assert (sums == nodes.fillna(0)).all(axis=None)
    roots = rows[rows["parent"].isna()]
    for side in ("host", "device"):
        own = rows[f"{side}_self_ns"] - (rows["no_op_ns"] if side == "device" else 0)
        assert own.isna().all() == ops[f"{side}_self_ns"].isna().all()
        if own.notna().any():
            assert int(own.sum()) == int(ops[f"{side}_self_ns"].sum())
            assert int(roots[f"{side}_total_ns"].sum()) == int(rows[f"{side}_self_ns"].sum())
            outside = int(rows[f"{side}_self_ns"].iloc[-1])
            assert int(types[f"{side}_self_ns"].sum()) + outside == int(rows[f"{side}_self_ns"].sum())


def test_a_recorded_program_sums_to_its_op_table_and_links_its_backward_pass(shared_runs: SharedRuns) -> None:
    run = shared_runs.of(SAMPLE)
    assert_sums_agree(run)
    found = tree(run)
    assert found.index[[0, -1]].tolist() == ["GPT2_0", OUTSIDE_NAME]
    linear = found.loc["GPT2_0 > Block_0 > Attention_0 > Linear_0"]
    assert 0 < linear["host_backward_ns"] < linear["host_total_ns"]
    types = analyze(run, "modules").tables["types"].set_index("type")
    assert types.loc["Linear", ["instances", "calls"]].tolist() == [8, 8]


def test_recomputed_modules_join_those_of_the_forward_pass(tmp_path: Path) -> None:
    rows = network()
    recomputed = [
        host("nn.Module: Linear_0", 241, 280, kind=HostKind.PYTHON, tid=ENGINE, parent_row=15),  # 16
        host("aten::mm", 245, 275, tid=ENGINE, parent_row=16),  # 17
    ]
    rows[10] = backward("MmBackward0", 290, 295, 5)
    rows = [*rows, backward("CheckpointFunctionBackward", 240, 285, 7), *recomputed]
    found = tree(make_run(tmp_path, host_intervals=rows))
    assert len(found) == 4
    assert found.loc[f"Net_0{ARROW}Linear_0", ["calls", "host_self_ns"]].tolist() == [2, 26 + 5 + 30]


def test_a_sequence_number_of_two_threads_links_nothing(tmp_path: Path) -> None:
    rows = [*network(), host("aten::mm", 20, 25, tid=3, sequence=5, fwd_tid=0)]
    run = make_run(tmp_path, host_intervals=rows)
    assert tree(run).loc[f"Net_0{ARROW}Linear_0", "host_self_ns"] == 26
    assert (
        "1 backward ops have no known forward op: they stay where they ran" in analyze(run, "modules").notes
    )


def test_ranks_share_the_tree(tmp_path: Path) -> None:
    other = [
        {
            **row,
            C.RANK: 1,
            **({C.PARENT_ROW: row[C.PARENT_ROW] + 15} if row.get(C.PARENT_ROW) is not None else {}),
        }
        for row in network()
    ]
    found = tree(make_run(tmp_path, host_intervals=[*network(), *other]))
    assert found.loc["Net_0", ["calls", "host_self_ns"]].tolist() == [2, 14]


def test_a_class_inside_its_own_is_counted_once_in_totals(tmp_path: Path) -> None:
    rows = [module("Seq_0", 0, 100), module("Seq_1", 10, 50, 0), forward("aten::mm", 20, 40, 1, 1)]
    types = analyze(make_run(tmp_path, host_intervals=rows), "modules").tables["types"]
    assert types[["type", "instances", "host_self_ns", "host_total_ns", "host_backward_ns"]].to_dict(
        "records"
    ) == [{"type": "Seq", "instances": 2, "host_self_ns": 20, "host_total_ns": 20, "host_backward_ns": 0}]


def test_a_path_names_the_innermost_modules_of_deep_nesting(tmp_path: Path) -> None:
    depth = MAX_PATH + 2
    chain = [module(f"Block_{n}", n, 1_000 - n, n - 1 if n else None) for n in range(depth)]
    tree = analyze(make_run(tmp_path, host_intervals=chain), "modules").tables["tree"]
    assert tree[C.DEPTH].tolist()[:depth] == [*range(depth)]
    assert tree["path"].iloc[depth - 1].split(ARROW) == [f"Block_{n}" for n in range(2, depth)]


@pytest.mark.parametrize(
    "rows", [[], [host("aten::mm", 0, 5)], [host("train.py(3): main", 0, 5, kind="python")]]
)
def test_without_calls_of_modules_it_says_how_to_record_them(
    tmp_path: Path, rows: list[dict[str, Any]]
) -> None:
    result = analyze(make_run(tmp_path, host_intervals=rows), "modules")
    said = "no calls of modules in this capture: record stacks (`tracekit collect --stacks`); graph replays "
    assert (result.tables, result.notes) == ({}, (f"{said}and compiled code call no modules",))


def changed_runs(path: Path) -> tuple[Run, Run]:
    steps = [step(1, 0, 450)]
    slower = network()
    slower[10] = backward("MmBackward0", 240, 299, 5)
    return (
        make_run(path / "a", host_intervals=network(), steps=steps),
        make_run(path / "b", host_intervals=slower, steps=steps),
    )


def test_a_comparison_names_the_module_whose_backward_pass_became_slower(tmp_path: Path) -> None:
    base, head = changed_runs(tmp_path)
    result = compare(base, head, "modules")
    rows = result.tables["changed"].set_index("path")
    assert rows["delta_self_ns"].to_dict() == {f"Net_0{ARROW}Linear_0": 9, "Net_0": 0}
    assert rows["delta_total_ns"].tolist() == [9, 9]
    assert result.notes == ("largest changes of host self time per step by class: Linear +9 ns",)


def test_a_diff_by_module_attributes_backward_ops(tmp_path: Path) -> None:
    base, head = changed_runs(tmp_path)
    found = diff([base], [head], options=Options(by="module", explain=False))
    assert [(cause.label, cause.terms.delta) for cause in found.causes] == [("Linear_0", 9)]


def test_a_comparison_needs_modules_in_both_runs(tmp_path: Path) -> None:
    base, head = (
        changed_runs(tmp_path)[0],
        make_run(tmp_path / "plain", host_intervals=[host("aten::mm", 0, 5)]),
    )
    assert compare(base, head, "modules").notes == (NOT_IN_BOTH,)
    assert compare(head, head, "modules").notes == ()
