"""Rules on the ops of runs without device work: each on a planted run, and silent beside it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from tests.builders import host, kernel
from tests.unit.analyses.test_host_breakdown import runs_op, stepping
from tests.unit.analyses.test_steps import SLOWING
from tracekit.analysis import analyze
from tracekit.analysis.verdict import judge
from tracekit.runs.conditions import STEP_THREAD_WAITED
from tracekit.runs.meta import CpuLoad, Timings
from tracekit.schema import C, HostKind

if TYPE_CHECKING:
    from pathlib import Path

    from tests.thresholds import Make

MANY = [host("aten::add_", place * 1_000, place * 1_000 + 900) for place in range(1_000)]
CONVOLUTION = runs_op(0.4, 1, "aten::mkldnn_convolution")
IMAGE = {C.INPUT_SHAPES: "[[2,32,96,96],[]]"}


def copies_into_format(start: float, number: int) -> list[dict[str, Any]]:
    """A tensor made contiguous as the row of this number in its step, with the copy in it."""
    outer = {**runs_op(start, start + 0.2, "aten::contiguous"), **IMAGE}
    return [outer, {**runs_op(start, start + 0.19, "aten::clone"), C.PARENT_ROW: number}]


CONVERTED = [*copies_into_format(0, 0), *copies_into_format(0.2, 2)]


def filled(share: float) -> list[dict[str, Any]]:
    """The gradient of an embedding, filled with zeros for a share of the step."""
    gradient = runs_op(0, share + 0.1, "aten::embedding_dense_backward")
    return [gradient, {**runs_op(0, share, "aten::zeros"), C.PARENT_ROW: 0}]


def updates(shape: str = "[[1000,4],[1000,4]]", product: str = "[[8,4],[4,8]]") -> list[dict[str, Any]]:
    """An embedding's gradient that is filled quickly, a long update of a tensor, and a product."""
    fill = {**runs_op(0, 0.01, "aten::zero_"), C.INPUT_SHAPES: "[[1000,4]]"}
    return [
        runs_op(0, 0.03, "aten::embedding_dense_backward"),
        {**runs_op(0, 0.02, "aten::zeros"), C.PARENT_ROW: 0},
        {**fill, C.PARENT_ROW: 1},
        {**runs_op(0.1, 0.3, "aten::addcdiv_"), C.INPUT_SHAPES: shape},
        {**runs_op(0.4, 1), C.INPUT_SHAPES: product},
    ]


def concatenates(growth: int) -> Any:
    """An op on lists of tensors with this many more elements in each step."""
    return lambda number: [
        {**runs_op(0, 0.2, "aten::cat"), C.INPUT_SHAPES: f"[[[{100 + growth * number}],[100]],[]]"},
        runs_op(0.2, 1),
    ]


def dtype(name: str) -> dict[str, Any]:
    return {C.INPUT_DTYPES: f'["{name}","{name}"]'}


def reads(count: int, between: tuple[str, ...] = ("aten::linalg_vector_norm",)) -> list[dict[str, Any]]:
    """Values that are read into Python one at a time, with some ops before each."""
    names = [*between, "aten::item"] * count
    width = 1 / 64
    return [runs_op(place * width, (place + 0.5) * width, name) for place, name in enumerate(names)]


HALF = {**runs_op(0, 0.2), **dtype("c10::Half")}
RULED = {
    "host_small_ops": ([MANY], [MANY[1:]]),
    "host_layout_copies": ([[*CONVERTED, CONVOLUTION]], [[*CONVERTED, runs_op(0.4, 1)]]),
    "host_dense_gradients": ([[*filled(0.2), runs_op(0.5, 1)]], [[*filled(0.05), runs_op(0.3, 1)]]),
    "host_half_precision": (
        [[HALF, runs_op(0.2, 1)]],
        [[{**HALF, **dtype("c10::BFloat16")}, runs_op(0.2, 1)]],
    ),
    "host_random_tensors": (
        [[runs_op(0, 0.1, "aten::normal_"), runs_op(0.1, 1)]],
        [
            [
                runs_op(0, 0.09, "aten::normal_"),
                runs_op(0.1, 0.3, "aten::bernoulli_"),
                runs_op(0.3, 0.6, "aten::multinomial"),
                {**runs_op(0.31, 0.59, "aten::exponential_"), C.PARENT_ROW: 2},
                runs_op(0.6, 1),
            ]
        ],
    ),
    "host_values_read": ([reads(16)], [reads(15)]),
    "host_growing_inputs": ([concatenates(25)], [concatenates(24)]),
}
"""Rows of each rank on which a rule speaks, and on which it is silent."""


@pytest.mark.parametrize("code", RULED)
def test_a_rule_speaks_and_is_silent(tmp_path: Path, code: str) -> None:
    for name, ranks, spoken in zip(("over", "under"), RULED[code], ([code], []), strict=True):
        findings = analyze(stepping(tmp_path / name, *ranks), "ops").findings
        assert [finding.code for finding in findings] == spoken
        assert all((finding.saving_ns_per_step or 0) <= 1_000_000 for finding in findings)


def test_a_device_is_what_matters_beside_them(tmp_path: Path) -> None:
    ranks, _ = RULED["host_small_ops"]
    assert analyze(stepping(tmp_path, *ranks, device_intervals=[kernel(0, 10)]), "ops").findings == ()


def test_only_images_have_memory_formats(tmp_path: Path) -> None:
    rows = [{**row, C.INPUT_SHAPES: "[[2,32,96],[]]"} for row in CONVERTED]
    assert analyze(stepping(tmp_path, [*rows, CONVOLUTION]), "ops").findings == ()


def test_ops_that_make_their_own_inputs_contiguous_are_no_conversions(tmp_path: Path) -> None:
    backward = runs_op(0, 0.4, "aten::convolution_backward")
    inner = [{**row, C.PARENT_ROW: row.get(C.PARENT_ROW, -1) + 1} for row in CONVERTED]
    assert analyze(stepping(tmp_path, [backward, *inner, CONVOLUTION]), "ops").findings == ()


def test_small_ops_are_named_by_their_calls(tmp_path: Path) -> None:
    backward = [{**row, C.NAME: "autograd::engine::evaluate_function: AddBackward0"} for row in MANY[500:]]
    run = stepping(tmp_path, [*MANY[:499], {**MANY[499], C.NAME: "aten::item"}, *backward])
    (finding,) = analyze(run, "ops").findings
    assert finding.title == "1,000 ops of 900 ns on average take 90.0% of the steps: 900.00 µs per step"
    assert finding.advice.startswith("Most calls per step: aten::add_ 499, aten::item 1. ")


def test_small_ops_that_lose_their_core_are_left_out(tmp_path: Path) -> None:
    rows = [*MANY[:600], runs_op(0.6, 0.7, "aten::mul"), *MANY[700:]]
    assert analyze(stepping(tmp_path / "few", rows), "ops").findings == ()
    small = [host("aten::add_", place * 500, place * 500 + 450) for place in range(1_200)]
    (finding,) = analyze(stepping(tmp_path / "many", [*small, runs_op(0.6, 1, "aten::mul")]), "ops").findings
    assert finding.title == "1,200 ops of 450 ns on average take 54.0% of the steps: 540.00 µs per step"
    short = [host("aten::add_", place * 500, place * 500 + 200) for place in range(1_200)]  # 24%
    for waited_ms, spoken in ((0.9, False), (1.1, True)):  # of 5 steps of 1 ms
        reading = {C.SOURCE: "scheduler", C.RANK: 0, C.METRIC: STEP_THREAD_WAITED, C.UNIT: "ns"}
        counters = [{**reading, C.T_NS: t, C.VALUE: 7e6 + t / 5e6 * waited_ms * 1e6} for t in (0, 5_000_000)]
        run = stepping(tmp_path / str(waited_ms), short, counters=counters)
        assert bool(analyze(run, "ops").findings) == spoken


def test_values_that_other_work_makes_are_no_loop_of_reads(tmp_path: Path) -> None:
    decoding = stepping(tmp_path / "decoding", reads(20, ("aten::linear", "aten::argmax")))
    assert analyze(decoding, "ops").findings == ()
    update = {**runs_op(0, 1, "Optimizer.step#Adam.step"), C.KIND: HostKind.ANNOTATION}
    within = [{**row, C.PARENT_ROW: 0} for row in reads(20)]
    assert analyze(stepping(tmp_path / "optimizer", [update, *within]), "ops").findings == ()


def test_the_line_that_reads_is_the_one_that_most_samples_have(tmp_path: Path) -> None:
    samples = [
        {C.T_NS: 1_000 + 100_000 * place, C.RANK: 0, C.PID: 0, C.TID: 0}
        | {C.STACK: f"torch/functional.py(3): norm;train.py(1): {name}", C.SOURCE_LINES: f"9,{line}"}
        for place, (name, line) in enumerate([("log", 5), ("log", 6), ("log", 6)])
    ]
    run = stepping(tmp_path, reads(20), host_samples=samples)
    (finding,) = analyze(run, "ops").findings
    assert finding.title == "Reading 20 values one at a time takes 61.7% of the steps: 617.19 µs per step"
    assert "The largest part is at train.py(6): log." in finding.advice
    assert "; values of tensors are read one at a time at train.py(6): log, 61.7%" in judge(run).sentence


def test_the_line_is_that_of_most_time_of_all_calls(tmp_path: Path) -> None:
    calls = [(0, 0.2, 1), (0.2, 0.35, 2), (0.35, 0.5, 2)]
    rows = [
        {**runs_op(start, end, "aten::normal_"), C.STACK: f"train.py({line}): make"}
        for start, end, line in calls
    ]
    (finding,) = analyze(stepping(tmp_path, rows), "ops").findings
    assert finding.advice.startswith("The largest part is at train.py(2): make. ")


def test_an_op_that_fills_by_another_one_counts_once(tmp_path: Path) -> None:
    outer = runs_op(0, 0.2, "aten::normal")
    inner = {**runs_op(0.01, 0.19, "aten::normal_"), C.PARENT_ROW: 0}
    (finding,) = analyze(stepping(tmp_path, [outer, inner]), "ops").findings
    assert (finding.code, finding.saving_ns_per_step) == ("host_random_tensors", 200_000)


@pytest.mark.parametrize(
    ("inputs", "spoken"),
    [
        ({}, True),
        ({"shape": "[[[1000,4],[5]],[]]"}, True),  # lists of tensors
        ({"shape": "[[999,4],[1000,4]]"}, False),
        ({"product": "[[8,4],[4,1000]]"}, False),  # a head with the weights of the embedding
    ],
)
def test_updates_of_all_rows_of_an_embedding_are_counted(
    tmp_path: Path, inputs: dict[str, str], *, spoken: bool
) -> None:
    findings = analyze(stepping(tmp_path, updates(**inputs)), "ops").findings
    assert [finding.code for finding in findings] == ["host_dense_gradients"] * spoken
    assert [finding.saving_ns_per_step for finding in findings] == [220_000] * spoken


@pytest.mark.parametrize(
    ("growth", "times", "codes"),
    [(3, SLOWING, ["host_growing_inputs"]), (2, SLOWING, []), (3, SLOWING[::-1], [])],
    ids=["slower", "little", "faster"],
)
def test_inputs_that_grow_a_little_explain_steps_that_become_slower(
    tmp_path: Path, growth: int, times: list[int], codes: list[str]
) -> None:
    waits = {"step_thread_cpu_ns": 20, "step_thread_wait_ns": 60, "program_ns": 20, "others_ns": 170}
    loads = [CpuLoad(rank=0, cores=2, wall_ns=100, cpu_ns=20, **waits)]  # other programs run beside
    meta = {"timings": Timings(times, [], "perf_counter"), "cpu_loads": loads}
    run = stepping(tmp_path, concatenates(growth), meta=meta)
    assert [finding.code for finding in analyze(run, "ops").findings] == codes


def test_small_ops_are_named_by_the_line_of_most_samples(tmp_path: Path) -> None:
    samples = [
        {C.T_NS: 1_000 + 100_000 * place, C.RANK: 0, C.PID: 0, C.TID: 0}
        | {C.STACK: "train.py(1): cell", C.SOURCE_LINES: str(line)}
        for place, line in enumerate([5, 6, 6])
    ]
    (finding,) = analyze(stepping(tmp_path, MANY, host_samples=samples), "ops").findings
    assert "The largest part is at train.py(6): cell. Calling such ops costs more" in finding.advice


THRESHOLD_RUNS: dict[str, Make] = {
    code: lambda path, _shared, ranks=ranks: (stepping(path, *ranks),) for code, (ranks, _) in RULED.items()
}
