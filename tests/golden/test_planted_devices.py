"""One program on two simulated devices: gains are exact, and an op that gains too little is found."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pandas as pd
import pytest
from tracekit.analyses.roofline import devices

from samples.simulator.planted.devices import A100, ADD_NS, H100, LINEAR_NS, STEPS, TINY, Machine, program
from tests.shared_runs import analyze, compare
from tracekit.analysis import Result

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.shared_runs import SharedRuns
    from tracekit.runs.run import Run

    Load = Callable[[Machine], Run]

FAST = Machine(name=H100, sm_count=132, linear=2.0, add=1.6)
LAME = Machine(name=H100, sm_count=132, linear=2.0, add=1.25)


@pytest.fixture
def load(shared_runs: SharedRuns) -> Load:
    return lambda machine: shared_runs.simulated(program(machine))


def peak(name: str, precision: str) -> float:
    device = devices.find_device(name)
    assert device is not None
    found = device.gb_per_s if precision == "memory" else device.peak(precision)
    assert found is not None
    return found


def ratio(precision: str) -> float:
    return peak(H100, precision) / peak(A100, precision)


def ops(result: Result) -> dict[str, dict[str, Any]]:
    return {row["op"]: row for row in result.tables["ops"].to_dict("records")}


def test_gains_stand_beside_what_the_peaks_allow(load: Load) -> None:
    found = ops(compare(load(Machine()), load(FAST), "device_compare"))
    linear, add = found["aten::addmm"], found["aten::add"]
    assert (linear["gain"], add["gain"]) == (pytest.approx(2.0), pytest.approx(1.6))
    assert linear["precision"] == "fp16"
    assert linear["allowed"] == pytest.approx(min(ratio("memory"), ratio("fp16")))
    assert add["allowed"] == pytest.approx(ratio("memory"))
    assert add["reached"] == pytest.approx(1.6 / ratio("memory"))
    assert (linear["base_ns"], linear["head_ns"]) == (LINEAR_NS, LINEAR_NS // 2)


def test_a_device_that_is_used_as_well_gives_no_advice(load: Load) -> None:
    assert compare(load(Machine()), load(FAST), "device_compare").findings == ()


def test_an_op_that_gains_too_little_is_found(load: Load) -> None:
    (finding,) = compare(load(Machine()), load(LAME), "device_compare").findings
    assert finding.code == "device_gain_short"
    assert finding.title.startswith("aten::add runs at 1.25×")
    expected = ADD_NS / 1.25 - ADD_NS / ratio("memory")
    assert finding.saving_ns_per_step == pytest.approx(expected, abs=1)
    assert len(finding.evidence["device_intervals"]) >= 1


def test_a_copy_over_the_link_is_not_held_against_the_memory(load: Load) -> None:
    slow_link = replace(FAST, link_gb_per_s=5)
    result = compare(load(Machine()), load(slow_link), "device_compare")
    copied = ops(result)["aten::copy_"]
    assert (copied["role"], copied["gain"]) == ("copy over the link", pytest.approx(0.25, abs=1e-3))
    assert pd.isna(copied["allowed"])
    assert result.findings == ()


def test_short_kernels_give_no_advice(load: Load) -> None:
    result = compare(load(Machine()), load(LAME), "device_compare")
    short = ops(result)["aten::neg"]
    assert short["reached"] < 0.8
    assert short["head_ns"] > 0.05 * sum(row["head_ns"] for row in ops(result).values())
    assert all("aten::neg" not in finding.title for finding in result.findings)


def test_times_and_peaks_of_both_are_listed(load: Load) -> None:
    table = compare(load(Machine()), load(FAST), "device_compare").tables["ratios"].set_index("quantity")
    memory = table.loc["memory bandwidth, peak"]
    assert (memory["base"], memory["head"]) == (peak(A100, "memory"), peak(H100, "memory"))
    assert table.loc["fp16 matrix products, peak"]["ratio"] == pytest.approx(ratio("fp16"))
    work = table.loc["device time of all work, per step"]
    made = [program(machine) for machine in (Machine(), FAST)]
    assert [work["base"], work["head"]] == [
        sum(one.dur_ns for one in each.on_device) / STEPS for each in made
    ]


@pytest.mark.slow
def test_ops_of_one_run_alone_are_told_apart(load: Load) -> None:
    result = compare(load(Machine()), load(replace(FAST, alone_ns=30_000)), "device_compare")
    alone = result.tables["ratios"].set_index("quantity").loc["device time of ops in only one run, per step"]
    assert (alone["base"], alone["head"]) == (0, 30_000)
    assert "aten::cos" not in ops(result)


def test_a_device_that_waits_for_the_host_is_told(load: Load) -> None:
    busy = compare(load(Machine()), load(FAST), "device_compare")
    waiting = replace(FAST, waits_ns=20_000_000)
    result = compare(load(Machine()), load(waiting), "device_compare")
    lengths = [event.dur_ns for event in program(waiting).host if event.name.startswith("ProfilerStep#")]
    work = sum(one.dur_ns for one in program(waiting).on_device)
    idle = result.tables["ratios"].set_index("quantity").loc["device idle time, per step"]
    assert idle["head"] == pytest.approx((sum(lengths) - work) / STEPS, rel=1e-3)
    assert not any("the host decides" in note for note in busy.notes)
    (note,) = result.notes
    assert f"{100 * (1 - work / sum(lengths)):.0f}% (head)" in note


def test_a_base_that_is_used_badly_is_told_with_its_kernel(load: Load) -> None:
    result = compare(load(Machine()), load(replace(FAST, add=2.4)), "device_compare")
    assert result.findings == ()
    (note,) = result.notes
    assert note.startswith("aten::add gains 2.40×, more than the 1.6")
    assert "base elementwise_add, head elementwise_add" in note
    assert compare(load(Machine()), load(FAST), "device_compare").notes == ()


@pytest.mark.slow
def test_the_kernels_of_the_head_decide_whether_they_are_short(load: Load) -> None:
    base = Machine(linear=20, add=60)
    head = Machine(name=H100, sm_count=132, linear=40, add=8)
    assert ADD_NS / 60 < 10_000 < ADD_NS / 8
    (finding,) = compare(load(base), load(head), "device_compare").findings
    assert finding.title.startswith("aten::add runs at 0.13×")


def test_one_kind_of_device_is_not_compared(load: Load) -> None:
    result = compare(load(Machine()), load(Machine(add=2)), "device_compare")
    assert (result.tables, result.findings) == ({}, ())
    assert A100 in result.notes[0]


def test_devices_without_listed_peaks_are_compared_without_them(load: Load) -> None:
    strange = Machine(name="Simulated GPU", add=0.5)
    result = compare(load(Machine()), load(strange), "device_compare")
    assert result.findings == ()
    assert pd.isna(ops(result)["aten::add"]["allowed"])
    assert "Simulated GPU" in result.notes[0]


def test_one_run_lists_its_devices(load: Load) -> None:
    (row,) = analyze(load(FAST), "device_compare").tables["devices"].to_dict("records")
    assert (row["device_name"], row["gb_per_s"], row["fp16"]) == (
        H100,
        peak(H100, "memory"),
        peak(H100, "fp16"),
    )
    assert (row["intervals"], row["sum_ns"]) == (
        (3 + TINY) * STEPS,
        sum(one.dur_ns for one in program(FAST).on_device),
    )
