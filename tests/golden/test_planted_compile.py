"""Compiled code, simulated: parts are counted, costs found to the nanosecond, a clean twin is silent."""

from __future__ import annotations

import contextlib
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import pandas as pd
import pytest

from samples.simulator import Program
from samples.simulator.planted.compiled import (
    ADD_NS,
    COMPILE_NS,
    FUSED_NS,
    LAYERS,
    LINEAR_NS,
    LOOKUP_NS,
    RELU_NS,
    SLOW_LOOKUP_NS,
    STEPS,
    Compilation,
    program,
)
from tests.golden.test_planted import length
from tests.shared_runs import analyze, compare, copy_of
from tracekit.analysis import Finding, Result
from tracekit.diff import diff

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from tests.shared_runs import SharedRuns
    from tracekit.runs.run import Run

    Load = Callable[[Compilation], Run]

EAGER, CLEAN = Compilation(compiled=False), Compilation()
SLOW = Compilation(lookup_ns=SLOW_LOOKUP_NS)


@pytest.fixture
def load(shared_runs: SharedRuns) -> Load:
    return lambda chosen: shared_runs.simulated(program(chosen))


def codes(result: Result) -> list[str]:
    return [finding.code for finding in result.findings]


def only(result: Result) -> Finding:
    (finding,) = result.findings
    return finding


def summary(run: Run) -> dict[str, Any]:
    (row,) = analyze(run, "compile").tables["summary"].astype(object).to_dict("records")
    return {str(name): None if pd.isna(value) else value for name, value in row.items()}


def idle_within(made: Program, name: str) -> int:
    """Time of the host events of a name while nothing runs on the device, one piece at a time."""
    busy = [(event.start_ns, event.end_ns) for event in made.on_device]
    first, last = min(start for start, _ in busy), max(end for _, end in busy)
    total = 0
    for event in made.host:
        if name in event.name:
            start, end = max(event.start_ns, first), min(event.start_ns + event.dur_ns, last)
            if start < end:
                inside = [(max(a, start), min(b, end)) for a, b in busy if a < end and b > start]
                total += end - start - length(inside)
    return total


def test_parts_of_a_compiled_program_are_counted(load: Load) -> None:
    row = summary(load(Compilation(breaks=2, variants=True)))
    assert {name: row[name] for name in ("regions", "frames", "breaks", "recompiled", "resumes")} == {
        "regions": 3 * STEPS,
        "frames": 3,
        "breaks": 2,
        "recompiled": 3,
        "resumes": 2 * STEPS,
    }
    assert (row["graph_calls"], row["lookups"]) == (3 * STEPS, 3 * STEPS)
    assert row["lookup_ns"] == 3 * STEPS * (LOOKUP_NS + 2 * 500)
    assert (row["compilations"], row["replays"], row["kernels"]) == (0, 0, 2 * LAYERS * STEPS)


def test_kernels_have_an_origin(load: Load) -> None:
    table = analyze(load(CLEAN), "compile").tables["kernels"]
    assert table[["origin", "count", "sum_ns"]].to_numpy().tolist() == [
        ["inductor", LAYERS * STEPS, LAYERS * STEPS * FUSED_NS],
        ["called", LAYERS * STEPS, LAYERS * STEPS * LINEAR_NS],
    ]
    eager = analyze(load(EAGER), "compile").tables["kernels"]
    assert eager[["origin", "count"]].to_numpy().tolist() == [["eager", 3 * LAYERS * STEPS]]


def test_replays_are_counted_and_generated_kernels_stay_the_compilers(load: Load) -> None:
    run = load(Compilation(replayed=True))
    assert summary(run)["replays"] == LAYERS * STEPS
    table = analyze(run, "compile").tables["kernels"].set_index("origin")["count"]
    assert table.to_dict() == {"inductor": LAYERS * STEPS, "called": LAYERS * STEPS}


def test_an_eager_program_has_nothing_compiled(load: Load) -> None:
    result = analyze(load(EAGER), "compile")
    assert (list(result.tables), result.findings) == (["kernels"], ())
    assert "no compiled code" in result.notes[0]


@pytest.mark.parametrize(
    ("op", "says"), [("CompiledFunction", "compiled functions"), ("Function", "no compiled")]
)
def test_compiled_functions_without_generated_kernels_are_not_called_eager(
    shared_runs: SharedRuns, op: str, says: str
) -> None:
    made = Program()
    with made.step(), made.op(op), made.op("aten::add"):
        made.kernel("vectorized_elementwise_kernel", ADD_NS)
    (note,) = analyze(shared_runs.simulated(made), "compile").notes
    assert note.startswith(says)


def test_regions_without_numbers_have_no_frames(load: Load) -> None:
    run = load(Compilation(numbered=False))
    row = summary(run)
    assert row["regions"] == STEPS
    assert all(row[name] is None for name in ("frames", "breaks", "recompiled"))
    assert any("no numbers" in note for note in analyze(run, "compile").notes)


def test_a_clean_compiled_program_gives_no_advice(load: Load) -> None:
    assert codes(analyze(load(CLEAN), "compile")) == []


def test_dear_guards_cost_what_the_device_waits(load: Load) -> None:
    run = load(SLOW)
    finding = only(analyze(run, "compile"))
    idle = idle_within(program(SLOW), "Cache Lookup")
    assert finding.code == "compile_guards"
    assert summary(run)["lookup_idle_ns"] == idle
    assert finding.saving_ns_per_step == idle // STEPS > 0
    assert len(finding.evidence["host_intervals"]) == STEPS


def test_graph_breaks_cost_what_the_device_waits(load: Load) -> None:
    chosen = Compilation(breaks=2)
    run = load(chosen)
    finding = only(analyze(run, "compile"))
    assert finding.code == "compile_breaks"
    assert "2 per step" in finding.title
    assert (
        finding.saving_ns_per_step
        == summary(run)["break_idle_ns"] // STEPS
        == _between(program(chosen)) // STEPS
    )


def _between(made: Program) -> int:
    """Idle time from the end of one region to the start of the next in a step, one pair at a time."""
    regions = sorted(
        (event.start_ns, event.start_ns + event.dur_ns, event.step)
        for event in made.host
        if event.name.startswith("Torch-Compiled Region")
    )
    busy = [(event.start_ns, event.end_ns) for event in made.on_device]
    total = 0
    for (_, end, step), (start, _, next_step) in pairwise(regions):
        if step == next_step:
            inside = [(max(a, end), min(b, start)) for a, b in busy if a < start and b > end]
            total += start - end - length(inside)
    return total


def test_without_python_frames_no_graph_break_is_claimed(load: Load) -> None:
    run = load(Compilation(breaks=2, frames=False))
    assert codes(analyze(run, "compile")) == []
    row = summary(run)
    assert (row["breaks"], row["resumes"], row["break_idle_ns"]) == (2, None, None)


@pytest.mark.slow
def test_functions_compiled_one_by_one_are_no_graph_breaks(load: Load) -> None:
    run = load(Compilation(breaks=2, apart=True))
    assert codes(analyze(run, "compile")) == []
    row = summary(run)
    assert (row["breaks"], row["resumes"], row["break_idle_ns"]) == (2, 0, 0)


def test_compiling_inside_of_steps_is_found_once_each(load: Load) -> None:
    chosen = Compilation(compiles=True)
    run = load(chosen)
    finding = only(analyze(run, "compile"))
    assert finding.code == "compile_in_steps"
    row = summary(run)
    assert (row["compilations"], row["compile_ns"]) == (STEPS, STEPS * (COMPILE_NS + 4 * 500))
    idle = idle_within(program(chosen), "_compile.compile_inner")
    assert row["compile_idle_ns"] == idle
    assert finding.saving_ns_per_step == idle // STEPS


def ratios(result: Result) -> dict[str, tuple[float, float]]:
    table = result.tables["ratios"]
    return {row["quantity"]: (row["base"], row["head"]) for row in table.to_dict("records")}


@pytest.mark.slow
def test_fusion_halves_the_elementwise_kernels(load: Load) -> None:
    result = compare(load(EAGER), load(CLEAN), "compile")
    assert codes(result) == []
    found = ratios(result)
    assert found["kernels, per step"] == (3 * LAYERS, 2 * LAYERS)
    assert found["Inductor kernels, per step"] == (0, LAYERS)
    assert found["kernel launch calls, per step"] == (3 * LAYERS, 2 * LAYERS)
    eager, fused = LINEAR_NS + ADD_NS + RELU_NS, LINEAR_NS + FUSED_NS
    assert found["kernel time, per step"] == (LAYERS * eager, LAYERS * fused)
    assert found["compiled regions, per step"] == (0, 1)
    fusion = result.tables["fusion"]
    assert fusion["delta_ns"].sum() == LAYERS * STEPS * (fused - eager)
    assert fusion["base_kernels"].sum() - fusion["head_kernels"].sum() == LAYERS * STEPS


@pytest.mark.slow
def test_replays_are_one_launch_each(load: Load) -> None:
    found = ratios(compare(load(EAGER), load(Compilation(replayed=True)), "compile"))
    assert found["CUDA graph replays, per step"] == (0, LAYERS)
    assert found["kernel launch calls, per step"] == (3 * LAYERS, 2 * LAYERS)


@pytest.mark.slow
def test_a_slower_compiled_program_is_found_and_a_faster_one_is_not(load: Load) -> None:
    slow = compare(load(EAGER), load(SLOW), "compile")
    finding = only(slow)
    assert finding.code == "compile_slower"
    base, head = next(value for name, value in ratios(slow).items() if name.startswith("step_time"))
    assert finding.saving_ns_per_step == head - base > 0
    assert codes(compare(load(EAGER), load(CLEAN), "compile")) == []


def test_the_sides_are_told_apart(load: Load) -> None:
    eager, compiled = load(EAGER), load(CLEAN)
    assert "not a comparison" in compare(eager, eager, "compile").notes[0]
    assert "swap the sides" in compare(compiled, eager, "compile").notes[0]
    assert compare(eager, compiled, "compile").notes == ()
    assert "two compiled programs" in compare(compiled, compiled, "compile").notes[0]


def test_a_pair_without_a_device_has_no_quantities_of_one(load: Load, shared_runs: SharedRuns) -> None:
    runs = []
    for compiled in (False, True):
        made = Program()
        for _ in range(3):
            with made.step(), contextlib.ExitStack() as within:
                if compiled:
                    within.enter_context(made.op("Torch-Compiled Region: 0/0"))
                    made.wait(50_000)
                with made.op("aten::addmm", shapes=[[8, 8]]):
                    made.wait(100_000)
        runs.append(shared_runs.simulated(made))
    result = compare(runs[0], runs[1], "compile")
    found = ratios(result)
    assert not any("kernel" in name or "CUDA" in name for name in found)
    assert found["compiled regions, per step"] == (0, 1)
    assert "reduce-overhead" not in only(result).advice
    assert "reduce-overhead" in only(compare(load(EAGER), load(SLOW), "compile")).advice


@pytest.fixture
def shown(load: Load) -> set[str]:
    """The analyses that a comparison of an eager and a compiled run shows."""
    return {one.name for one, _ in diff([load(EAGER)], [load(CLEAN)]).analyses}


@pytest.mark.slow
def test_a_comparison_of_an_eager_and_a_compiled_run_shows_it(shown: set[str]) -> None:
    assert {"compile", "device_compare"} & shown == {"compile"}


@pytest.mark.slow
def test_a_comparison_of_equal_runs_does_not_show_it(load: Load, tmp_path: Path) -> None:
    eager = load(EAGER)
    shown = {one.name for one, _ in diff([eager], [copy_of(eager, tmp_path / "again")]).analyses}
    assert {"compile", "device_compare"} & shown == set()
