"""Simulate a program before and after a change: the ledgers name the change, to the nanosecond."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise
from typing import TYPE_CHECKING

import numpy as np
import pytest

from samples.simulator import DeviceEvent, Kind, Program
from samples.simulator.planted.changes import (
    CONV_NS,
    FILL_NS,
    GB_PER_S,
    LINEAR_NS,
    PARAMETERS,
    RELU_NS,
    Variant,
    program,
)
from tests.shared_runs import copy_of
from tracekit.diff import Diff, Options, diff
from tracekit.diff.breakdowns import Amount, Terms
from tracekit.diff.model import Status, Verdict

if TYPE_CHECKING:
    from pathlib import Path

    from tests.shared_runs import SharedRuns

PLAIN = Variant()
STEPS = PLAIN.steps
COPY_NS = 4 * 3 * 64 * 64 * PLAIN.batch // GB_PER_S
BARE = Options(explain=False)


class Simulations:
    """Programs as runs, each simulated once."""

    def __init__(self, shared_runs: SharedRuns) -> None:
        self.run = shared_runs.simulated

    def between(self, before: Variant, after: Variant, options: Options = BARE) -> Diff:
        return diff([self.run(program(before))], [self.run(program(after))], options=options)


@pytest.fixture
def simulations(shared_runs: SharedRuns) -> Simulations:
    return Simulations(shared_runs)


def work_of(made: Program) -> int:
    return sum(event.dur_ns for event in made.on_device)


def test_a_program_does_not_differ_from_itself(simulations: Simulations, tmp_path: Path) -> None:
    run = simulations.run(program(PLAIN))
    found = diff([run], [copy_of(run, tmp_path / "copy")], options=BARE)
    assert (found.causes, found.groups, found.counts) == ((), (), ())
    assert found.comparability.status is Status.COMPARABLE
    assert found.work is not None
    assert (found.work.a_ns, found.work.b_ns) == (work_of(program()), work_of(program()))
    assert found.work.terms == Terms()
    assert found.wall is not None
    assert [line.delta for line in found.wall.lines] == [0] * len(found.wall.lines)
    assert [one.name for one in found.match.by_level] == ["hash"]  # type: ignore[union-attr]


def test_a_loop_over_parameters_is_a_count_term(simulations: Simulations) -> None:
    found = simulations.between(PLAIN, Variant(fills=PARAMETERS))
    (cause,) = found.causes
    assert cause.label == "aten::zero_ > aten::fill_"
    assert (cause.a, cause.b) == (Amount(STEPS, STEPS * FILL_NS), Amount(16 * STEPS, 16 * STEPS * FILL_NS))
    assert cause.terms == Terms(count=15 * STEPS * FILL_NS)
    (count,) = found.counts
    assert (count.label, count.a, count.b) == (cause.label, STEPS, 16 * STEPS)


def test_a_duplicate_copy_is_added(simulations: Simulations) -> None:
    found = simulations.between(PLAIN, Variant(copies_twice=True))
    (group,) = found.groups
    assert group.path == ("aten::clone", "aten::copy_")
    assert (group.match_level, group.name_a, group.name_b) == ("", "", "Memcpy H2D (pinned to device)")
    assert (group.a, group.b) == (Amount(0, 0), Amount(STEPS, STEPS * COPY_NS))
    assert group.terms == Terms(added=STEPS * COPY_NS)
    assert found.work is not None
    assert found.work.terms == group.terms


@pytest.mark.slow
def test_a_copy_that_goes_is_removed(simulations: Simulations) -> None:
    found = simulations.between(Variant(copies_twice=True), PLAIN)
    assert found.work is not None
    assert found.work.terms == Terms(removed=STEPS * COPY_NS)


def test_a_slower_kernel_is_a_rate_term(simulations: Simulations) -> None:
    found = simulations.between(PLAIN, Variant(slower=15.64))
    (cause,) = found.causes
    assert cause.label == "aten::linear > aten::addmm"
    assert cause.terms == Terms(rate=STEPS * (round(15.64 * LINEAR_NS) - LINEAR_NS))
    assert found.counts == ()
    assert cause.b.total_ns / cause.a.total_ns == pytest.approx(15.64, abs=1e-3)


def test_an_error_check_is_a_copy_and_idle_time(simulations: Simulations) -> None:
    found = simulations.between(PLAIN, Variant(checks=True))
    (cause,) = found.causes
    assert cause.label == "aten::item > aten::_local_scalar_dense"
    assert cause.terms == Terms(added=STEPS)  # 4 bytes take 1 ns
    assert found.wall is not None
    idle = sum(line.delta for line in found.wall.lines if "idle" in line.name)
    step = found.wall.total.delta
    assert idle > 0.9 * step > 0


def test_another_library_is_matched_by_the_op_that_launched_it(simulations: Simulations) -> None:
    found = simulations.between(PLAIN, Variant(renamed=True, slower=2))
    (group,) = found.groups
    assert (group.name_a, group.name_b) == ("ampere_sgemm_tn", "Cijk_Ailk_Bljk_SB_MT64")
    assert (group.match_level, group.role, group.terms) == ("op+shape", "gemm", Terms(rate=STEPS * LINEAR_NS))


def test_fusion_is_one_group_at_the_op_around_it(simulations: Simulations) -> None:
    found = simulations.between(PLAIN, Variant(fused=True))
    (group,) = found.groups
    assert group.path == ("activation",)
    assert (group.match_level, group.a, group.b) == (
        "group",
        Amount(2 * STEPS, 2 * STEPS * RELU_NS),
        Amount(STEPS, STEPS * RELU_NS),
    )
    assert group.terms == Terms(count=-STEPS * RELU_NS)


def test_another_batch_is_not_compared_unless_declared(simulations: Simulations) -> None:
    found = simulations.between(PLAIN, Variant(batch=16))
    assert found.verdict is Verdict.NOT_COMPARABLE
    assert [(one.field, one.status) for one in found.comparability.differences] == [
        ("shapes", Status.NOT_COMPARABLE)
    ]
    assert (found.metrics, found.work, found.wall, found.causes) == ((), None, None, ())
    declared = simulations.between(PLAIN, Variant(batch=16), replace(BARE, varying=("batch_size",)))
    assert declared.comparability.status is Status.DECLARED
    assert declared.work is not None
    twice = 4 * 3 * 64 * 64 * 16 // GB_PER_S
    assert declared.work.terms == Terms(rate=STEPS * (CONV_NS + twice - COPY_NS))


def test_warmup_is_left_out_of_both_sides(simulations: Simulations) -> None:
    found = simulations.between(PLAIN, Variant(warmup_ns=10_000_000))
    assert found.compared is not None
    assert (found.compared.steps, found.compared.left_out, found.compared.unused) == (3, 1, (0, 0))
    assert found.causes == ()
    assert found.wall is not None
    assert found.wall.total.delta == 0


def test_the_shorter_capture_decides_how_many_steps_are_compared(simulations: Simulations) -> None:
    found = simulations.between(Variant(steps=7), Variant(steps=4, fills=2))
    assert found.compared is not None
    assert (found.compared.steps, found.compared.unused) == (4, (3, 0))
    assert found.work is not None
    assert found.work.terms == Terms(count=4 * FILL_NS)


@pytest.mark.slow
def test_a_difference_turns_around_with_its_sides(simulations: Simulations) -> None:
    changed = Variant(fills=3, copies_twice=True, slower=1.7, fused=True, checks=True)
    there, back = simulations.between(PLAIN, changed), simulations.between(changed, PLAIN)
    assert there.work is not None
    assert back.work is not None
    assert mirrored(there.work.terms) == back.work.terms
    assert sorted((one.match_level, one.a, one.b, one.terms.delta) for one in there.groups) == sorted(
        (one.match_level, one.b, one.a, -one.terms.delta) for one in back.groups
    )


def mirrored(terms: Terms) -> Terms:
    return Terms(terms.removed, terms.added, -terms.count, -terms.rate)


def test_the_wall_ledger_is_what_an_event_at_a_time_gives(simulations: Simulations) -> None:
    """Kernels, communication, copies and memsets on four streams, at random."""
    made = [_random(seed) for seed in (1, 2)]
    found = diff([simulations.run(made[0])], [simulations.run(made[1])], options=BARE)
    assert found.wall is not None
    got = {line.name: (line.a_ns, line.b_ns) for line in found.wall.lines}
    expected = [_parts(one) for one in made]
    assert got == {name: (expected[0][name], expected[1][name]) for name in got}
    assert found.wall.total.a_ns == sum(expected[0].values())
    busy = sum(expected[1][name] for name in expected[1] if name != "idle")
    assert found.wall.overlap.b_ns == work_of(made[1]) - busy


def _random(seed: int) -> Program:
    random = np.random.default_rng(seed)
    made = Program()
    for _ in range(3):
        with made.step():
            for _ in range(40):
                stream, size = int(random.integers(1, 5)), int(random.integers(1, 30_000))
                made.wait(int(random.integers(0, 9_000)))
                match random.integers(0, 4):
                    case 0:
                        made.kernel("ncclDevKernel_AllReduce", size, stream=stream)
                    case 1:
                        made.copy("D2D", 10 * size, stream=stream)
                    case 2:
                        made.memset(size, size, stream=stream)
                    case _:
                        made.kernel("k", size, stream=stream)
            made.synchronize()
    return made


def _parts(made: Program) -> dict[str, int]:
    """One elementary segment at a time, between two moments at which anything begins or ends."""
    found = dict.fromkeys(
        ("compute only", "overlapped", "exposed communication", "exposed copies", "idle"), 0
    )
    markers = [event for event in made.host if event.name.startswith("ProfilerStep#")]
    for marker in markers:
        events = [event for event in made.on_device if event.step == marker.step]
        end = max([marker.start_ns + marker.dur_ns, *(event.end_ns for event in events)])
        moments = sorted({marker.start_ns, end, *(m for e in events for m in (e.start_ns, e.end_ns))})
        for left, right in pairwise(moments):
            running = {_kind(event) for event in events if event.start_ns <= left and right <= event.end_ns}
            found[_part(running)] += right - left
    return found


def _kind(event: DeviceEvent) -> str:
    if event.kind is not Kind.KERNEL:
        return "copy"
    return "talk" if event.name.startswith("nccl") else "compute"


def _part(running: set[str]) -> str:
    if "compute" in running:
        return "compute only" if len(running) == 1 else "overlapped"
    return "exposed communication" if "talk" in running else "exposed copies" if running else "idle"
