"""Planted launches: every number is the simulated one, every rule fires on its cause and not on its twin."""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING, Any

import pytest

from samples.simulator import Program
from samples.simulator.planted import launches
from tests import tiers
from tests.shared_runs import analyze, compare, copy_of
from tracekit.analysis.savings import budget
from tracekit.schema import C

if TYPE_CHECKING:
    from pathlib import Path

    from tests.shared_runs import SharedRuns
    from tracekit.analysis import Finding
    from tracekit.runs.run import Run

WAVE = 16 * 132
"""Blocks of 128 threads and 32 registers in one wave of the simulated device."""


@pytest.fixture
def run_of(shared_runs: SharedRuns) -> Any:
    return shared_runs.simulated


def codes(run: Run, name: str) -> list[str]:
    return [finding.code for finding in analyze(run, name).findings]


def found(run: Run, name: str, code: str) -> Finding:
    (finding,) = (one for one in analyze(run, name).findings if one.code == code)
    return finding


def gaps(program: Program, names: set[str]) -> int:
    """Idle time between successive kernels of these names, by step; the simulated stream is the only one."""
    total = 0
    for step in range(launches.STEPS):
        mine = [event for event in program.on_device if event.step == step and event.name in names]
        total += sum(two.start_ns - one.end_ns for one, two in pairwise(mine))
    assert total > 0
    return total


def test_zeroing_one_by_one_is_found_to_the_nanosecond(run_of: Any) -> None:
    program = launches.zeroing("per_parameter")
    run = run_of(program)
    rows = analyze(run, "zero_grad_gaps").tables["ranges"].to_dict("records")
    idle = gaps(program, {launches.FILL})
    fixed = launches.STEPS * (launches.PARAMETERS - 1) * launches.FILL_NS
    assert [(row[C.STEP], row["mode"], row["kernels"]) for row in rows] == [
        (step, "per_parameter", launches.PARAMETERS) for step in range(launches.STEPS)
    ]
    assert sum(row["idle_ns"] for row in rows) == idle
    assert sum(row["kernel_ns"] for row in rows) == launches.STEPS * launches.PARAMETERS * launches.FILL_NS
    finding = found(run, "zero_grad_gaps", "zero_grad_per_parameter")
    assert finding.saving_ns_per_step == (idle + fixed) // launches.STEPS
    assert "set_to_none=True" in finding.advice


@pytest.mark.parametrize(("mode", "kernels"), [("foreach", 1), ("none", 0)])
def test_fused_and_dropped_gradients_are_silent(run_of: Any, mode: str, kernels: int) -> None:
    run = run_of(launches.zeroing(mode))
    ranges = analyze(run, "zero_grad_gaps").tables["ranges"]
    assert ranges["mode"].tolist() == [mode] * launches.STEPS
    assert ranges["kernels"].tolist() == [kernels] * launches.STEPS
    assert codes(run, "zero_grad_gaps") == []


def test_a_chain_of_small_kernels_is_found_to_the_nanosecond(run_of: Any) -> None:
    program = launches.chain()
    run = run_of(program)
    (row,) = analyze(run, "small_kernels").tables["kinds"].to_dict("records")
    idle = gaps(program, {launches.ELEMENTWISE})
    assert (row["kind"], row["runs"], row["kernels"]) == ("element-wise", launches.STEPS, 7 * launches.STEPS)
    assert (row["gap_ns"], row["late_ns"], row["median_ns"]) == (idle, idle, 1_500)
    assert row["kernel_ns"] + row["gap_ns"] == row["span_ns"]
    finding = found(run, "small_kernels", "small_elementwise_kernels")
    assert finding.saving_ns_per_step == idle // launches.STEPS
    assert "torch.compile" in finding.advice


def test_an_optimizer_of_many_kernels_is_told_to_fuse(run_of: Any) -> None:
    program = launches.chain(optimizer=True)
    run = run_of(program)
    finding = found(run, "small_kernels", "small_optimizer_kernels")
    assert finding.saving_ns_per_step == gaps(program, {launches.ELEMENTWISE}) // launches.STEPS
    assert "foreach=True" in finding.advice
    (row,) = analyze(run, "small_kernels").tables["ranges"].to_dict("records")
    assert row[C.NAME] == "Optimizer.step#SGD.step"


def test_steps_that_repeat_and_wait_for_launches_can_be_replayed(run_of: Any) -> None:
    program = launches.launch_bound()
    idle = gaps(program, {"small_gemm"})
    finding = found(run_of(program), "small_kernels", "launch_bound_steps")
    assert finding.saving_ns_per_step == idle // launches.STEPS - 19 * 1_500


NOT_SMALL = [
    launches.chain(fused=True),
    launches.chain(fused=True, optimizer=True),
    launches.chain(kernel_ns=6_000),
    launches.launch_bound(repeats=False),
    launches.zeroing("per_parameter"),
    launches.zeroing("none"),
]


@pytest.mark.parametrize(
    "program",
    tiers.thinned(NOT_SMALL, default=NOT_SMALL[2:4]),
    ids=["fused", "fused optimizer", "longer than a launch", "steps differ", "zero_grad", "clean"],
)
def test_twins_have_no_small_kernels_to_advise_on(run_of: Any, program: Program) -> None:
    assert codes(run_of(program), "small_kernels") == []


@pytest.mark.slow_except(3)
@pytest.mark.parametrize(
    ("code", "program", "saving"),
    [
        ("serial_kernel", launches.kernels("scan", 80_000, grid=(1, 1, 1)), None),
        ("few_blocks", launches.kernels("scan", 80_000, grid=(33, 1, 1)), 60_000),
        ("partial_wave", launches.kernels("own", 80_000, grid=(WAVE + WAVE // 4, 1, 1)), 30_000),
        (
            "low_occupancy",
            launches.kernels("own", 80_000, grid=(WAVE, 1, 1), block=(32, 1, 1), registers=255),
            None,
        ),
        (
            "threads_per_element",
            launches.kernels(launches.ELEMENTWISE, 80_000, grid=(WAVE, 1, 1), shapes=[[64], [64]]),
            None,
        ),
        (
            "config_varies",
            launches.kernels("own", 80_000, grid=(WAVE, 1, 1), shapes=[[1 << 20]], others=[(2 * WAVE, 1, 1)]),
            None,
        ),
    ],
)
def test_each_launch_rule_fires_on_its_cause_alone(
    run_of: Any, code: str, program: Program, saving: int | None
) -> None:
    (finding,) = analyze(run_of(program), "launch_config").findings
    assert (finding.code, finding.saving_ns_per_step) == (code, saving)


@pytest.mark.parametrize("wait", [True, False])
def test_few_blocks_cost_nothing_where_the_host_paces_the_steps(run_of: Any, *, wait: bool) -> None:
    """Launches 300 µs apart: kernels of 80 µs delay the host only where it waits for them."""
    program = Program()
    for _ in range(4):
        with program.step():
            for _ in range(4):
                with program.op("mine::op"):
                    program.wait(300_000 - 80_000 * wait)
                    program.kernel("scan", 80_000, grid=(33, 1, 1))
                if wait:
                    program.synchronize()
    assert codes(run_of(program), "launch_config") == (["few_blocks"] if wait else [])


WELL_CONFIGURED = [
    launches.kernels("own", 80_000, grid=(WAVE, 1, 1), shapes=[[1 << 20]]),
    launches.kernels("own", 80_000, grid=(20 * WAVE + 7, 1, 1), shapes=[[1 << 20]]),
    launches.kernels("tiny", 5_000, grid=(1, 1, 1), shapes=[[1]]),
    launches.kernels("ncclDevKernel_AllReduce_Sum_f32_RING_LL", 80_000, grid=(1, 1, 1)),
    launches.kernels(launches.ELEMENTWISE, 80_000, grid=(WAVE, 1, 1), shapes=[[1024, 1], [1, 1024]]),
    launches.chain(),
]


@pytest.mark.parametrize(
    "program",
    tiers.thinned(WELL_CONFIGURED, default=WELL_CONFIGURED[1:2]),
    ids=["one full wave", "many waves", "short", "collective", "broadcast", "chain"],
)
def test_well_configured_kernels_are_silent(run_of: Any, program: Program) -> None:
    assert codes(run_of(program), "launch_config") == []


def test_waves_follow_from_the_limits_of_the_device(run_of: Any) -> None:
    run = run_of(launches.kernels("own", 80_000, grid=(WAVE + WAVE // 4, 1, 1), shapes=[[64, 64]]))
    (row,) = analyze(run, "launch_config").tables["configs"].to_dict("records")
    assert (row["resident_blocks"], row["waves"], row["tail_share"]) == (16, 1.25, 0.375)
    assert (row["launches"], row["total_ns"], row["numel"]) == (4, 320_000, 4096)
    assert row["threads_per_element"] == (WAVE + WAVE // 4) * 128 / 4096


def test_a_convolution_with_relu_in_its_name_is_no_relu(run_of: Any) -> None:
    run = run_of(launches.convolution(32, 690_600))
    (row,) = analyze(run, "launch_config").tables["relu"].to_dict("records")
    assert (row["kind"], row["op"]) == ("fused", "aten::cudnn_convolution")
    assert (row[C.GRID_X], row[C.GRID_Y], row["median_ns"]) == (1024, 2, 690_600)


def test_a_threshold_kernel_of_the_backward_pass_is_a_relu(run_of: Any) -> None:
    run = run_of(launches.threshold((1024, 1, 1)))
    (row,) = analyze(run, "launch_config").tables["relu"].to_dict("records")
    assert (row["kind"], row["direction"], row["launches"]) == ("relu", "backward", launches.STEPS)


def test_twice_the_batch_is_different_work_and_not_a_slow_relu(run_of: Any) -> None:
    base, head = (
        run_of(launches.convolution(16, 372_600)),
        run_of(launches.convolution(32, 690_600)),
    )
    result = compare(base, head, "launch_config")
    (row,) = result.tables["changes"].to_dict("records")
    assert (row["verdict"], row["work_ratio"], row["grid_ratio"]) == ("different work", 2, 2)
    (finding,) = result.findings
    assert (finding.code, finding.saving_ns_per_step) == ("launch_work_differs", None)
    assert "not a ReLU" in finding.advice


def test_another_grid_for_the_same_elements_is_another_configuration(run_of: Any) -> None:
    base, head = (
        run_of(launches.threshold((1024, 1, 1))),
        run_of(launches.threshold((512, 1, 1), 60_000)),
    )
    result = compare(base, head, "launch_config")
    (row,) = result.tables["changes"].to_dict("records")
    assert (row["verdict"], row["grid_ratio"], row["time_ratio"]) == ("same work", 0.5, 1.5)
    assert list(row)[:4] == ["op", "verdict", "base_launch", "head_launch"]
    assert (row["base_launch"], row["head_launch"]) == ("(1024,1,1) (128,1,1)", "(512,1,1) (128,1,1)")
    assert [(one.code, one.saving_ns_per_step) for one in result.findings] == [
        ("launch_config_changed", 20_000)
    ]


def test_without_shapes_the_batch_sizes_of_the_fingerprints_explain_a_grid(
    run_of: Any, tmp_path: Path
) -> None:
    base, head = (run_of(launches.kernels("own", 40_000, grid=(32 * batch, 1, 1))) for batch in (32, 16))
    assert compare(base, head, "launch_config").tables["changes"]["verdict"].tolist() == ["unknown"]
    sides = (
        copy_of(run, tmp_path / str(batch), fingerprint={"batch_size": batch})
        for run, batch in ((base, 32), (head, 16))
    )
    (row,) = compare(*sides, "launch_config").tables["changes"].to_dict("records")
    assert (row["verdict"], row["work_ratio"]) == ("different work", 0.5)


def test_identical_runs_do_not_differ(run_of: Any, tmp_path: Path) -> None:
    run = run_of(launches.convolution(32, 690_600))
    result = compare(run, copy_of(run, tmp_path / "copy"), "launch_config")
    assert (result.findings, result.tables) == ((), {})


@pytest.mark.slow
def test_devices_side_by_side_save_no_more_than_one_of_them_waits(run_of: Any) -> None:
    """The same steps on eight devices of one process: a step is not shorter by eight times the wait."""
    run = run_of(launches.side_by_side(devices=8))
    spent = budget(run)
    found = [one for name in ("zero_grad_gaps", "small_kernels") for one in analyze(run, name).findings]
    assert {one.code for one in found} >= {"small_optimizer_kernels", "launch_bound_steps"}
    ranges = analyze(run, "small_kernels").tables["ranges"]
    assert len(ranges) == 2 * 8
    savings = {one.code: one.saving_ns_per_step for one in found}
    assert savings.pop("small_optimizer_kernels") is None  # the replay of whole steps claims it
    assert all(saving is not None and saving < spent.step_ns for saving in savings.values())
    (replay,) = (one for one in found if one.code == "launch_bound_steps")
    assert f"{launches.STEPS} of {launches.STEPS} steps" in replay.title
    assert "in 32 runs of kernels" in replay.how


@pytest.mark.slow
def test_zeroing_by_memsets_is_told_as_exactly_as_by_kernels(run_of: Any) -> None:
    """`cudaMemsetAsync` is what `zero_` makes of contiguous memory; every third is a kernel here."""
    program = launches.zeroing("per_parameter", memsets=True)
    run = run_of(program)
    fills = [event for event in program.on_device if event.step == 0 and event.name != "gemm"]
    (row, *_) = analyze(run, "zero_grad_gaps").tables["ranges"].to_dict("records")
    memsets = [event.dur_ns for event in fills if "Memset" in event.name]
    kernels = [event.dur_ns for event in fills if "Memset" not in event.name]
    idle = sum(two.start_ns - one.end_ns for one, two in pairwise(fills))
    assert (row["mode"], row["kernels"], row["memsets"]) == ("per_parameter", len(kernels), len(memsets))
    assert (row["kernel_ns"], row["memset_ns"], row["idle_ns"]) == (sum(kernels), sum(memsets), idle)
    assert row["span_ns"] == idle + sum(kernels) + sum(memsets)
    assert row["saving_ns"] == idle + (len(fills) - 1) * launches.FILL_NS
    finding = found(run, "zero_grad_gaps", "zero_grad_per_parameter")
    assert "12 fills per call, " in finding.title


@pytest.mark.parametrize(("within", "drops"), [("aten::zero_", True), ("aten::zeros", False)])
def test_zeroing_outside_of_a_range_is_advised_to_drop_gradients(
    run_of: Any, within: str, *, drops: bool
) -> None:
    (finding,) = analyze(run_of(launches.chain(within=within)), "small_kernels").findings
    assert finding.code == "small_elementwise_kernels"
    assert ("set_to_none=True" in finding.advice) == drops
    assert ("Compile the function" in finding.advice) != drops


def test_compiled_functions_are_not_advised_to_be_compiled(run_of: Any) -> None:
    (plain,) = analyze(run_of(launches.chain()), "small_kernels").findings
    (compiled,) = analyze(run_of(launches.chain(within="CompiledFunction")), "small_kernels").findings
    assert "Compile the function" in plain.advice
    assert "belong to compiled functions" in compiled.advice


@pytest.mark.parametrize("analysis", ["launch_config", "zero_grad_gaps"])
def test_a_hostile_name_does_not_fill_a_finding(run_of: Any, analysis: str) -> None:
    run = run_of(launches.named("zero_grad " + "x" * 5_000))
    (finding,) = analyze(run, analysis).findings
    assert len(finding.title) < 300
    assert len(finding.advice) < 500


@pytest.mark.slow
@pytest.mark.parametrize("name", ["launch_config", "zero_grad_gaps", "small_kernels"])
def test_titles_and_advice_start_with_a_capital_letter_or_a_name(run_of: Any, name: str) -> None:
    programs = (
        launches.zeroing("per_parameter"),
        launches.chain(),
        launches.chain(optimizer=True),
        launches.launch_bound(),
        launches.kernels("Scan", 80_000, grid=(1, 1, 1)),
        launches.kernels("Scan", 80_000, grid=(33, 1, 1)),
        launches.kernels("Own", 80_000, grid=(WAVE + WAVE // 4, 1, 1)),
    )
    findings = [one for program in programs for one in analyze(run_of(program), name).findings]
    assert findings
    for one in findings:
        assert one.advice[0].isupper()
        assert one.title[0].isupper()


def test_a_grid_that_changed_counts_launches_of_steps_alone(run_of: Any) -> None:
    base = run_of(launches.threshold((512, 1, 1)))
    head = run_of(launches.threshold((1024, 1, 1), 50_000, warm_up=100))
    (finding,) = compare(base, head, "launch_config").findings
    assert (finding.code, finding.saving_ns_per_step) == ("launch_config_changed", 10_000)


def test_threads_are_told_against_what_the_inputs_broadcast_to(run_of: Any) -> None:
    """[64, 1] and [1, 64] make 4,096 elements, not 64."""
    shapes = [[64, 1], [1, 64]]
    run = run_of(launches.kernels(launches.ELEMENTWISE, 80_000, grid=(WAVE, 1, 1), shapes=shapes))
    assert "for 4,096 elements" in found(run, "launch_config", "threads_per_element").title
