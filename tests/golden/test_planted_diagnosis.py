"""Planted runs on which advice is easily wrong: what is true of them is found, and nothing else is said."""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING, Any

import pytest

from samples.simulator.planted import diagnosis as planted
from samples.simulator.planted.diagnosis import LATE_NS, STEPS, TRANSFER_NS
from tests import tiers
from tests.shared_runs import analyze
from tracekit.analysis import Bottleneck, Severity
from tracekit.analysis.findings import advise
from tracekit.analysis.verdict import judge
from tracekit.schema import C

if TYPE_CHECKING:
    from collections.abc import Callable

    from samples.simulator import Program
    from tests.shared_runs import SharedRuns
    from tracekit.runs.run import Run


@pytest.fixture
def load(shared_runs: SharedRuns) -> Any:
    """Imports the traces of programs as one run."""
    return shared_runs.simulated


def advice(run: Run) -> set[str]:
    return {one.finding.code for one in advise(run).findings}


def test_work_of_a_host_that_is_steps_ahead_belongs_to_the_step_that_launched_it(load: Any) -> None:
    run = load(planted.ahead())
    tables = analyze(run, "gpu_breakdown").tables
    stepped, whole = tables["per_step"], tables["whole"].iloc[0]
    assert len(stepped) == STEPS
    assert stepped["active_ns"].sum() <= whole["active_ns"]
    assert stepped["active_ns"].tolist() == [stepped["active_ns"][0]] * STEPS
    path = analyze(run, "critical_path").tables["by_kind"].set_index(C.KIND)["share"]
    assert path["compute"] > 0.95


def test_work_from_before_the_capture_belongs_to_no_step(load: Any) -> None:
    run = load(planted.backlog())
    checks = analyze(run, "integrity").tables["checks"].set_index("check")["count"]
    assert (checks["launched_before_capture"], checks["device_without_launch"]) == (planted.BACKLOG, 0)
    steps = analyze(run, "gpu_breakdown").tables["per_step"]
    assert steps["kernels"].tolist() == [4] * STEPS
    assert steps["idle_share"].max() < 0.05


@pytest.mark.slow_except(1)
@pytest.mark.parametrize(
    ("changed", "is_behind"),
    [
        ({}, True),
        ({"worked_ns": planted.COMPUTE_NS // 4}, False),  # over 1% of the wait: the first work may explain it
        ({"stream": 7}, False),  # in order behind the first kernel, so nothing earlier is before it
    ],
)
def test_work_queued_behind_unrecorded_work_is_no_idle_time(
    load: Any, changed: dict[str, int], *, is_behind: bool
) -> None:
    verdict = judge(load(planted.behind_earlier_work(**changed)), by=analyze)
    assert verdict.bound is (Bottleneck.COMPUTE if is_behind else Bottleneck.QUEUED)
    assert ("with work from before the capture" in verdict.window) == is_behind
    waits = "At the start, launched work waits 19.99 ms, probably for GPU work from before the capture. "
    assert verdict.sentence.startswith(waits) == is_behind


@pytest.mark.parametrize(
    ("late_ns", "is_idle"), [(planted.COMPUTE_NS // 10, False), (planted.COMPUTE_NS, True)]
)
def test_short_time_before_the_wait_for_unrecorded_work_is_no_idle_time(
    load: Any, late_ns: int, *, is_idle: bool
) -> None:
    """The device ran that work already; a twentieth of the wait is more than can be told."""
    tables = analyze(load(planted.behind_earlier_work(late_ns=late_ns)), "idle_gaps").tables
    assert ("before_work" in tables) == is_idle


def test_hidden_communication_on_few_multiprocessors_is_left_alone(load: Any) -> None:
    run = load(planted.few_sms())
    table = analyze(run, "overlap").tables["profiled_steps"].set_index("what")
    assert table.loc["communication", "exposed_ns"] < 0.05 * table.loc["communication", "union_ns"]


@pytest.mark.parametrize(
    "program", tiers.thinned([planted.ahead, planted.backlog, planted.few_sms], default=[planted.ahead])
)
def test_sound_programs_get_no_advice(program: Callable[[], Program], load: Any) -> None:
    assert advice(load(program())) == set()


@pytest.mark.slow
def test_gaps_of_a_queue_that_was_empty_at_the_start_save_nothing(load: Any) -> None:
    """They recur only where the host waits for the device after each round."""
    for waits in (False, True):
        found = analyze(load(planted.started_empty(waits=waits)), "idle_gaps").findings
        (gaps,) = [one for one in found if one.code == "idle_launch_bound"]
        assert (gaps.saving_ns_per_step is not None, gaps.severity == "info") == (waits, not waits)


@pytest.mark.slow
def test_a_search_for_convolution_algorithms_gets_no_advice_on_its_grids(load: Any) -> None:
    for once in (True, False):
        result = analyze(load(planted.algorithm_search(once=once)), "launch_config")
        assert [finding.code for finding in result.findings] == ([] if once else ["serial_kernel"] * 5)
        listed = result.tables["configs"]
        assert (listed["blocks"] == 1).sum() == 24
        noted = [note for note in result.notes if "fastest algorithm of a convolution" in note]
        assert [note.startswith("26 kernels") for note in noted] == [True] * once


@pytest.mark.parametrize("once", [True, False])
def test_a_search_for_convolution_algorithms_is_start_up(load: Any, *, once: bool) -> None:
    """Its kernels are, and the idle time between them; where each call launches them, neither is."""
    program = planted.algorithm_search(once=once, waits_ns=planted.COMPUTE_NS // 10)
    run, first = load(program), sorted(program.on_device, key=lambda event: event.start_ns)[:26]
    between_ns = sum(later.start_ns - earlier.end_ns for earlier, later in pairwise(first))
    stepped = analyze(run, "gpu_breakdown").tables["profiled_steps"].iloc[0]
    assert stepped["search_ns"] == once * 26 * planted.COMPUTE_NS
    idle = analyze(run, "idle_gaps").tables["by_cause"]
    assert idle["start_up_ns"].sum() == once * between_ns
    verdict = judge(run, by=analyze)
    assert verdict.sentence.startswith("Start-up takes") == once
    assert ("of all kernel time" in verdict.sentence) == once
    assert ("sync_starves_device" in advice(run)) != once


@pytest.mark.slow_except(1)
@pytest.mark.parametrize(
    ("collective", "subject", "code"),
    [(True, "communication", "exposed_communication"), (False, "P2P", "exposed_copies")],
)
def test_copies_between_devices_are_communication_if_a_collective_launched_them(
    load: Any, collective: bool, subject: str, code: str
) -> None:
    run = load(planted.gathered_by_copies(collective=collective))
    result = analyze(run, "overlap")
    times = result.tables["profiled_steps"].set_index("what")["exposed_ns"].to_dict()
    assert times == {subject: STEPS * LATE_NS, "all copies": STEPS * LATE_NS}
    assert [finding.code for finding in result.findings] == [code]
    if collective:
        assert result.tables["collectives"]["collective"].tolist() == ["all_gather"]
    path = analyze(run, "critical_path").tables["by_kind"].set_index(C.KIND)["path_ns"]
    kind, other = ("communication", "memcpy") if collective else ("memcpy", "communication")
    assert path[kind] == STEPS * LATE_NS
    assert other not in path.index


def test_communication_behind_a_slower_host_saves_nothing(load: Any) -> None:
    run = load(planted.communication_behind_the_host())
    table = analyze(run, "overlap").tables["profiled_steps"].set_index("what")
    assert table.loc["communication", "exposed_ns"] == STEPS * LATE_NS
    (finding,) = analyze(run, "overlap").findings
    assert (finding.severity, finding.saving_ns_per_step) == (Severity.INFO, None)
    assert "the host or other work takes the time: shorten that first." in finding.advice


@pytest.mark.parametrize(("last_ns", "is_slow"), [(3 * LATE_NS // 2, True), (3 * LATE_NS // 2 - 1, False)])
def test_a_step_with_far_more_communication_is_named(load: Any, last_ns: int, *, is_slow: bool) -> None:
    (finding,) = analyze(load(planted.communication_behind_the_host(last_ns=last_ns)), "overlap").findings
    assert ("takes 600 µs in step 5, 400 µs in the others" in finding.advice) == is_slow


@pytest.mark.slow
@pytest.mark.parametrize("missing", [(), (0, 3, 5, 1, 0, 2, 0, 0)])
def test_two_late_ranks_share_the_blame_whenever_their_captures_began(
    load: Any, missing: tuple[int, ...]
) -> None:
    turns = [2, 5] * 12
    run = load(*planted.late(8, turns, missing=missing))
    matched = len(turns) - max(missing, default=0)
    result = analyze(run, "collectives")
    ranks = result.tables["by_rank"]
    assert ranks["count"].tolist() == [matched] * 8
    assert ranks[C.RANK].tolist()[:2] == ([2, 5] if matched % 2 == 0 else [5, 2])
    assert ranks["caused_share"][:2].sum() == 1
    (finding,) = [one.finding for one in advise(run).findings if one.analysis == "ranks"]
    assert finding.code == "straggler"
    assert finding.title.startswith("Ranks 2 and 5 cause 100.0% of the waiting")


def test_collectives_of_interleaved_groups_are_matched_within_their_group(load: Any) -> None:
    run = load(*planted.grid_of_groups(rounds=8))
    calls = analyze(run, "collectives").tables["calls"]
    assert calls["transfer_ns"].tolist() == [TRANSFER_NS] * len(calls)
    waits = calls.groupby([C.RANK, "group"])["wait_ns"].sum().to_dict()
    assert {place: wait for place, wait in waits.items() if wait} == {
        (1, "0-1"): 8 * LATE_NS,
        (1, "1-3"): 8 * LATE_NS,
    }
