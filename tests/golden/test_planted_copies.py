"""Planted copies: exact numbers; every rule fires on its program and not on its clean twin."""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING, Any

import pytest

from samples.simulator import Kind, Program
from samples.simulator.planted import copies
from tests import tiers
from tests.shared_runs import analyze, compare, copy_of
from tracekit.analysis import Basis, Finding, get
from tracekit.analysis.savings import CONFIDENT, budget
from tracekit.render import human
from tracekit.schema import C

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from tests.shared_runs import SharedRuns
    from tracekit.runs.run import Run

    Simulate = Callable[[Program], Run]
    Settings = Callable[..., Run]

STEPS = copies.STEPS
IMAGES = 32 * 3 * 64 * 64 * 4
LINK = {"gpus": [{"index": 0, "name": "Simulated GPU", "pcie": {"generation": 4, "width": 16}}]}


@pytest.fixture
def simulate(shared_runs: SharedRuns) -> Simulate:
    """Imports a program."""
    return shared_runs.simulated


@pytest.fixture
def settings(tmp_path: Path) -> Settings:
    """Gives a copy of a run these settings in its fingerprint."""
    number = iter(range(100))
    return lambda run, **fields: copy_of(run, tmp_path / str(next(number)), fingerprint=fields)


def found(run: Run, *names: str) -> list[Finding]:
    every = names or ("h2d_copies", "d2h_copies", "pinned_memory")
    return [finding for name in every for finding in analyze(run, name).findings]


def codes(run: Run, *names: str) -> list[str]:
    return [finding.code for finding in found(run, *names)]


def copied(program: Program, letters: str) -> list[Any]:
    return [event for event in program.on_device if event.kind is Kind.MEMCPY and letters in event.name]


def test_copies_per_step_are_the_planted_ones(simulate: Simulate) -> None:
    program = copies.offload(offloaded=True)
    run = simulate(program)
    for name, letters in (("h2d_copies", "HtoD"), ("d2h_copies", "DtoH")):
        for row in analyze(run, name).tables["per_step"].to_dict("records"):
            mine = [event for event in copied(program, letters) if event.step == row[C.STEP]]
            took = sum(event.dur_ns for event in mine)
            size = sum(event.args["bytes"] for event in mine)
            assert (row["copies"], row["bytes"], row["sum_ns"], row["union_ns"], row["exposed_ns"]) == (
                len(mine),
                size,
                took,
                took,
                took,
            )
            assert row["gb_per_s"] == size / took


@pytest.mark.slow
def test_blocked_time_is_the_call_and_the_wait_inside_the_op(simulate: Simulate) -> None:
    program = copies.scalars_to_host(20)
    calls = [event for event in program.host if event.kind is Kind.RUNTIME]
    blocked = sum(
        call.dur_ns + wait.dur_ns
        for call, wait in itertools.pairwise(calls)
        if call.name == "cudaMemcpyAsync" and wait.name == "cudaStreamSynchronize"
    )
    (group,) = analyze(simulate(program), "d2h_copies").tables["groups"].to_dict("records")
    assert (group["blocked_ns"], group["copies"], group["copies_per_step"]) == (blocked, 20 * STEPS, 20)
    assert (group["op"], group["outer_op"]) == ("aten::_local_scalar_dense", "aten::item")
    assert group["source"] == "train.py(30): log"


def test_a_copy_behind_kernels_on_another_stream_is_not_exposed(simulate: Simulate) -> None:
    program = Program()
    with program.step():
        program.kernel("k", 100_000)
        program.copy("H2D", 40_000, host_memory="pinned", stream=9, gb_per_s=1)
        program.copy("H2D", 120_000, host_memory="pinned", stream=9, gb_per_s=1)
    (row,) = analyze(simulate(program), "h2d_copies").tables["per_step"].to_dict("records")
    last = program.on_device[-1].end_ns - program.on_device[0].end_ns
    assert (row["sum_ns"], row["exposed_ns"]) == (160_000, last)


WIDER = [("double", "float", 2), ("long int", "float", 2), ("long int", "unsigned char", 8)]


@pytest.mark.parametrize(("source", "target", "factor"), tiers.thinned(WIDER, default=WIDER[2:]))
def test_a_wider_dtype_is_found(simulate: Simulate, source: str, target: str, factor: int) -> None:
    program = copies.wider(source, target)
    run = simulate(program)
    (finding,) = found(run, "h2d_copies")
    images = [event for event in copied(program, "HtoD") if event.args["bytes"] > 256]
    exposed = sum(event.dur_ns for event in images)
    assert finding.code == "h2d_wider_dtype"
    assert finding.saving_ns_per_step == exposed * (factor - 1) // factor // STEPS
    assert finding.title.startswith(
        f"[32,3,64,64] is copied to the device as {_SPELLED[source]}, {factor} times"
    )
    assert copies.LINE in finding.advice
    assert len(finding.evidence["device_intervals"]) == STEPS
    per_step = analyze(run, "h2d_copies").tables["per_step"]
    size = 32 * 3 * 64 * 64 * copies.ITEM_BYTES[target] + 256
    assert per_step["needed_bytes"].tolist() == [size] * STEPS
    assert per_step["excess"].tolist() == [(size * factor - 256 * (factor - 1)) / size] * STEPS


_SPELLED = {"double": "float64", "long int": "int64"}


NEEDED = [
    copies.wider(),
    copies.wider("double", "double"),
    copies.wider("long int", "long int"),
    copies.wider("double", "float", read_as_copied=True),
    copies.one_of_two_converted(),
    copies.widened_on_host(),
]


@pytest.mark.parametrize("program", tiers.thinned(NEEDED, default=NEEDED[3:4]))
def test_a_dtype_that_is_needed_is_not_wider(simulate: Simulate, program: Program) -> None:
    assert "h2d_wider_dtype" not in codes(simulate(program))


def test_a_dtype_widened_on_the_host_is_found(simulate: Simulate) -> None:
    (finding,) = found(simulate(copies.widened_on_host("unsigned char")), "h2d_copies")
    assert (finding.code, finding.saving_ns_per_step) == ("h2d_wider_dtype", IMAGES // 8 * 3 // 4)
    assert "as float32, 4 times the bytes of uint8" in finding.title


def test_a_repeated_copy_is_found_with_low_confidence(simulate: Simulate) -> None:
    (finding,) = found(simulate(copies.batches(copies=2)), "h2d_copies")
    assert (finding.code, finding.saving_ns_per_step) == ("h2d_repeated", 25_165_824 // 8)
    assert "2 times in every step" in finding.title
    assert finding.confidence <= 0.4


NOT_REPEATED = [
    copies.batches(),
    copies.batches(copies=2, labels_copies=2),
    copies.batches(copies=2, labels_copies=0),
    copies.layers(12),
    copies.offload(),
]


@pytest.mark.parametrize("program", tiers.thinned(NOT_REPEATED, default=NOT_REPEATED[1:2]))
def test_layers_and_micro_batches_are_not_repeated(simulate: Simulate, program: Program) -> None:
    assert "h2d_repeated" not in codes(simulate(program))


def test_scalars_moved_to_the_device_are_found_with_their_line(simulate: Simulate) -> None:
    (finding,) = found(simulate(copies.scalars_to_device(20)), "h2d_copies")
    assert (finding.code, finding.basis) == ("h2d_scalars", Basis.ESTIMATED)
    assert finding.title.startswith("20 scalar copies to the device per step block the host")
    assert "attention.py(7): rsqrt" in finding.advice
    assert codes(simulate(copies.scalars_to_device())) == []


def test_scalars_read_from_the_device_are_found_with_their_line(simulate: Simulate) -> None:
    (finding,) = found(simulate(copies.scalars_to_host(20)), "d2h_copies")
    assert finding.code == "d2h_scalars"
    assert finding.title.startswith("20 scalar reads from the device per step block the host")
    assert "`aten::item` at train.py(30): log" in finding.advice
    assert codes(simulate(copies.scalars_to_host())) == []


def test_a_scalar_costs_the_gap_it_leaves_but_no_more_than_it_blocked(simulate: Simulate) -> None:
    program = copies.scalars_to_host(20)
    calls = [event for event in program.host if event.kind is Kind.RUNTIME]
    kernels = sorted(event.start_ns for event in program.on_device if event.kind is Kind.KERNEL)
    ends = sorted(event.end_ns for event in program.on_device if event.kind is Kind.KERNEL)
    cost = 0
    for call, wait in itertools.pairwise(calls):
        if (call.name, wait.name) == ("cudaMemcpyAsync", "cudaStreamSynchronize"):
            finish = wait.start_ns + wait.dur_ns
            after = [start for start in kernels if start >= finish]
            gap = after[0] - max(end for end in ends if end <= finish) if after else 0
            cost += min(gap, call.dur_ns + wait.dur_ns)
    (finding,) = found(simulate(program), "d2h_copies")
    assert finding.saving_ns_per_step == cost // STEPS


@pytest.mark.slow
def test_one_loss_read_behind_long_kernels_costs_nothing(simulate: Simulate) -> None:
    assert codes(simulate(copies.loss_read_once())) == []


def test_offloading_is_found(simulate: Simulate) -> None:
    program = copies.offload(offloaded=True)
    (finding,) = found(simulate(program), "h2d_copies")
    size = 64 * 1024 * 16 * 4
    took = sum(event.dur_ns for event in copied(program, "Memcpy") if event.args["bytes"] == size)
    assert (finding.code, finding.saving_ns_per_step) == ("h2d_ping_pong", took // STEPS)
    assert codes(simulate(copies.offload()), "h2d_copies") == []


def test_a_result_of_the_size_of_its_batch_is_no_offloading(simulate: Simulate) -> None:
    assert codes(simulate(copies.image_to_image()), "h2d_copies") == []


def test_pageable_copies_save_the_time_above_the_best_pinned_rate(simulate: Simulate) -> None:
    run = simulate(copies.pageable(host_memory="pageable", gb_per_s=6))
    (finding,) = found(run)
    seen = (64 << 20) / ((64 << 20) // 24)
    assert (finding.code, finding.basis) == ("pageable_copies", Basis.ESTIMATED)
    assert finding.saving_ns_per_step == IMAGES // 6 - round(IMAGES / seen)
    assert codes(simulate(copies.pageable())) == []


@pytest.mark.slow
def test_without_a_pinned_copy_no_saving_is_invented(simulate: Simulate) -> None:
    program = copies.pageable(host_memory="pageable", gb_per_s=6, reference=False)
    (finding,) = found(simulate(program))
    assert (finding.code, finding.saving_ns_per_step, finding.basis) == ("pageable_copies", None, None)
    assert "no rate of pinned copies is known" in finding.how


@pytest.mark.slow
def test_a_slow_link_needs_a_known_ceiling(simulate: Simulate, tmp_path: Path) -> None:
    """A collector knows it that read the PCIe link."""
    slow = simulate(copies.pageable(gb_per_s=6, reference=False))
    assert codes(slow) == []
    (finding,) = found(copy_of(slow, tmp_path / "slow", environment=LINK))
    link = 1.969 * 16
    saving = STEPS * (IMAGES // 6) - int(STEPS * IMAGES / (0.8 * link))
    assert (finding.code, finding.saving_ns_per_step) == ("slow_link", saving // STEPS)
    fast = copy_of(simulate(copies.pageable(reference=False)), tmp_path / "fast", environment=LINK)
    assert codes(fast) == []
    assert analyze(fast, "pinned_memory").tables["by_memory"]["ceiling_gb_per_s"].tolist() == [link]


CAUSES = [
    ({"batch": 16}, "shape", "h2d_compare_shape"),
    ({"dtype": "double"}, "dtype", "h2d_compare_dtype"),
    ({"copies": 2}, "duplicate", "h2d_compare_duplicate"),
    ({"host_memory": "pinned", "gb_per_s": 24}, "memory kind", "h2d_compare_memory"),
    ({"gb_per_s": 8 / 3}, "link", "h2d_compare_link"),
]


@pytest.mark.parametrize(("setting", "cause", "code"), tiers.thinned(CAUSES, default=CAUSES[:2]))
def test_the_planted_cause_of_a_difference_is_named(
    simulate: Simulate, setting: dict[str, Any], cause: str, code: str
) -> None:
    base, head = simulate(copies.batches()), simulate(copies.batches(**setting))
    for one, other in ((base, head), (head, base)):
        result = compare(one, other, "h2d_copies")
        assert [finding.code for finding in result.findings] == [code]
        first = result.tables["causes"].iloc[0]
        assert (first["cause"], first["also"]) == (cause, "")


def test_the_pair_of_25_and_12_megabytes_is_a_shape(simulate: Simulate) -> None:
    result = compare(simulate(copies.batches()), simulate(copies.batches(batch=16)), "h2d_copies")
    images, labels = result.tables["causes"].to_dict("records")
    assert (images["base_bytes"], images["head_bytes"]) == (25_165_824, 12_582_912)
    assert images["because"] == "[32,3,256,256] against [16,3,256,256]"
    assert (labels["cause"], labels["because"]) == ("shape", "[32] against [16]")
    (finding,) = result.findings
    assert finding.saving_ns_per_step is None
    assert "different work, so times are not compared" in finding.title


def test_identical_runs_differ_in_nothing(simulate: Simulate, tmp_path: Path) -> None:
    run = simulate(copies.batches())
    result = compare(run, copy_of(run, tmp_path / "copy"), "h2d_copies")
    assert (result.findings, result.tables["causes"]["cause"].tolist()) == ((), ["", ""])


@pytest.mark.slow
def test_a_slower_head_saves_what_it_lost(simulate: Simulate) -> None:
    base, head = simulate(copies.batches()), simulate(copies.batches(copies=2))
    (finding,) = compare(base, head, "h2d_copies").findings
    assert (finding.saving_ns_per_step, finding.basis) == (25_165_824 // 8, Basis.MEASURED)
    (back,) = compare(head, base, "h2d_copies").findings
    assert (back.saving_ns_per_step, back.basis) == (None, None)


SETTINGS = [
    ({}, {}, "unknown"),
    ({"batch_size": 32}, {"batch_size": 16}, "shape"),
    ({"batch_size": 32}, {"batch_size": 8}, "unknown"),
    ({"batch_size": 32, "dtype": "float64"}, {"batch_size": 32, "dtype": "float32"}, "dtype"),
    ({"batch_size": 32, "dtype": "float32"}, {"batch_size": 32, "dtype": "float32"}, "unknown"),
]


@pytest.mark.parametrize(
    ("base_fields", "head_fields", "cause"), tiers.thinned(SETTINGS, default=SETTINGS[1:3])
)
def test_without_shapes_only_the_settings_can_name_a_cause(
    simulate: Simulate,
    settings: Settings,
    base_fields: dict[str, Any],
    head_fields: dict[str, Any],
    cause: str,
) -> None:
    base = settings(simulate(copies.batches(recorded=False)), **base_fields)
    head = settings(simulate(copies.batches(batch=16, recorded=False)), **head_fields)
    result = compare(base, head, "h2d_copies")
    assert result.tables["causes"]["cause"].iloc[0] == cause
    if cause == "unknown":
        assert "cannot be distinguished" in result.tables["causes"]["because"].iloc[0]


@pytest.mark.parametrize("turned", tiers.thinned([False, True], default=[True]))
def test_an_extra_copy_without_shapes_stands_for_no_other(
    simulate: Simulate, settings: Settings, turned: bool
) -> None:
    """Matched by place, the batch would stand for the extra copy and the labels for the batch."""
    base = settings(simulate(copies.batches(recorded=False)), batch_size=32)
    head = settings(simulate(copies.batches(batch=16, recorded=False, extra_bytes=1000)), batch_size=16)
    sides = (head, base) if turned else (base, head)
    rows = compare(*sides, "h2d_copies").tables["causes"].to_dict("records")
    reported = {(row["base_bytes"], row["head_bytes"], row["cause"]) for row in rows}
    expected = {(25_165_824, 12_582_912, "shape"), (256, 128, "shape"), (0, 1000, "one run only")}
    assert reported == {(two, one, cause) if turned else (one, two, cause) for one, two, cause in expected}


def test_without_shapes_the_nearest_bytes_are_compared_and_nothing_is_blamed(simulate: Simulate) -> None:
    base = simulate(copies.batches(recorded=False))
    head = simulate(copies.batches(batch=16, recorded=False, extra_bytes=1000))
    result = compare(base, head, "h2d_copies")
    assert result.tables["causes"]["cause"].tolist() == ["unknown", "one run only", "unknown"]
    assert [finding.code for finding in result.findings] == ["h2d_compare_unknown"]
    assert "25,165,824 against 12,582,912 bytes per copy" in result.findings[0].title


def test_batch_and_dtype_together_are_a_shape_first_and_each_tensor_names_its_own(
    simulate: Simulate, settings: Settings
) -> None:
    base = simulate(copies.batches(dtype="double", recorded=False))
    head = simulate(copies.batches(batch=16, recorded=False))
    result = compare(
        settings(base, batch_size=32, dtype="float64"),
        settings(head, batch_size=16, dtype="float32"),
        "h2d_copies",
    )
    images, labels = result.tables["causes"].to_dict("records")
    assert (images["cause"], images["also"]) == ("shape", "dtype")
    assert images["because"].endswith("batch_size 32 against 16, dtype float64 against float32")
    assert labels["because"].endswith("exactly: batch_size 32 against 16")


def test_a_cause_told_by_settings_is_less_certain_than_one_of_recorded_shapes(
    simulate: Simulate, settings: Settings
) -> None:
    seen = compare(simulate(copies.batches()), simulate(copies.batches(batch=16)), "h2d_copies")
    base = settings(simulate(copies.batches(recorded=False)), batch_size=32)
    head = settings(simulate(copies.batches(batch=16, recorded=False)), batch_size=16)
    reported = compare(base, head, "h2d_copies")
    assert seen.findings[0].confidence >= CONFIDENT > reported.findings[0].confidence


TOLD = [
    (
        {"dtype": "double"},
        {},
        "[32,3,256,256], double against float; head copies 24.00 MiB less per step",
    ),
    ({"copies": 2}, {}, "2 against 1 copies per step; head copies 24.00 MiB less per step, which takes"),
    ({}, {"gb_per_s": 2}, "head copies the same bytes per step, which takes 9.44 ms more"),
]


@pytest.mark.parametrize(("one", "two", "title"), tiers.thinned(TOLD, default=TOLD[:1]))
def test_a_difference_is_told_in_words(
    simulate: Simulate, one: dict[str, Any], two: dict[str, Any], title: str
) -> None:
    result = compare(simulate(copies.batches(**one)), simulate(copies.batches(**two)), "h2d_copies")
    assert title in result.findings[0].title


@pytest.mark.slow
def test_other_numbers_of_steps_are_no_difference(simulate: Simulate) -> None:
    few, many = simulate(copies.batches()), simulate(copies.batches(steps=7))
    for base, head in ((few, many), (many, few)):
        result = compare(base, head, "h2d_copies")
        assert (result.findings, result.tables["causes"]["cause"].tolist()) == ((), ["", ""])


@pytest.mark.slow
def test_copies_to_devices_of_one_process_save_no_more_than_one_of_them_takes(simulate: Simulate) -> None:
    """Eight devices copy side by side: a step gains what the slowest of them does."""
    run = simulate(copies.side_by_side(devices=8))
    spent = budget(run)
    wider, pageable = found(run)
    assert (wider.code, pageable.code) == ("h2d_wider_dtype", "pageable_copies")
    took = analyze(run, "h2d_copies").tables["per_step"].groupby(C.DEVICE)["exposed_ns"].sum()
    assert wider.saving_ns_per_step == took.max() * 3 // 4 // spent.steps < spent.step_ns
    assert pageable.saving_ns_per_step is None
    assert f"{human(spent.per_step(took.max()), 'ns')} exposed" in pageable.title


@pytest.mark.slow
def test_shares_are_written_without_a_space(simulate: Simulate, tmp_path: Path) -> None:
    """As everywhere else: 80%."""
    run = simulate(copies.pageable(host_memory="pageable", gb_per_s=4, reference=False))
    (finding,) = analyze(copy_of(run, tmp_path / "known", environment=LINK), "pinned_memory").findings
    assert "80% of the PCIe link's rate" in finding.how
    rules = (rule for name in ("h2d_copies", "pinned_memory") for rule in get(name).rules)
    assert not any(" %" in text for rule in rules for text in (rule.states, rule.why))


@pytest.mark.slow
def test_copies_in_both_directions_one_after_the_other_could_overlap(
    simulate: Simulate, tmp_path: Path
) -> None:
    run = simulate(copies.in_turn())
    (finding,) = found(run, "pinned_memory")
    took = (8 << 20) // 10
    assert finding.code == "copies_in_turn"
    assert finding.saving_ns_per_step == 3 * took  # of four copies down, three are followed by one up
    engines = {count: {"gpus": [{"index": 0, "copy_engines": count}]} for count in (1, 2)}
    known = {n: copy_of(run, tmp_path / str(n), environment=gpus) for n, gpus in engines.items()}
    assert codes(known[1], "pinned_memory") == []
    assert found(known[2], "pinned_memory")[0].confidence >= CONFIDENT > finding.confidence
    assert codes(simulate(copies.in_turn(breadth_first=True)), "pinned_memory") == []


@pytest.mark.parametrize(
    ("options", "is_said"), [({}, True), ({"size": 100_000}, False), ({"beside": True}, False)]
)
def test_copies_within_the_device_are_named_where_they_run_alone(
    shared_runs: SharedRuns, options: dict[str, Any], *, is_said: bool
) -> None:
    findings = analyze(shared_runs.simulated(copies.clones(**options)), "overlap").findings
    assert [finding.code for finding in findings] == ["exposed_device_copies"] * is_said
    for finding in findings:
        assert "aten::copy_" in finding.advice
        assert finding.saving_ns_per_step is None
