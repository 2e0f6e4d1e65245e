"""Every threshold of a rule decides: a planted program has its finding, and has none past the threshold.

The program stays as it is, and the threshold is moved past what the program has.

The values of thresholds are checked by `docs/analyses.md`, whose texts are made from them.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pytest

from samples.simulator import Program
from samples.simulator.planted import (
    compiled,
    copies,
    critical_path,
    idle,
    launches,
    memory_ranks,
    parallelism,
    pipelines,
    roofline,
)
from tests import tiers
from tests.shared_runs import SharedRuns, check_host_parts
from tests.thresholds import RULES, findings, findings_past
from tracekit.runs.run import Run

MIB = 1 << 20
WAVE = 16 * 132
"""Blocks of 128 threads and 32 registers in one wave of the simulated device."""


@dataclass(frozen=True)
class Case:
    """Programs on which a rule gives its finding.

    Attributes:
        ranks: Returns the programs of the ranks of a run.
        head: Returns those of the run to compare with it, for rules that compare.
    """

    ranks: Callable[[], tuple[Program, ...]]
    head: Callable[[], tuple[Program, ...]] | None = None

    def runs(self, shared_runs: SharedRuns) -> tuple[Run, ...]:
        """The run of the programs, and the one to compare with it."""
        return tuple(shared_runs.simulated(*build()) for build in (self.ranks, self.head) if build)


def one(build: Callable[..., Program], *arguments: Any, **options: Any) -> Case:
    return Case(lambda: (build(*arguments, **options),))


def batches(**options: Any) -> Case:
    return Case(lambda: (copies.batches(),), lambda: (copies.batches(**options),))


UNEVEN = [[100, 100, 500, 100], [100, 150, 600, 100], [120, 100, 700, 100], [100, 90, 500, 100]]
"""Tokens that each rank sends to the experts of each rank."""
CASES: dict[str, Case] = {
    "exposed_communication": one(memory_ranks.communication, hidden=False),
    "ddp_gradient_copies": one(parallelism.gradient_copies),
    "ddp_buffers": one(parallelism.buffers),
    "exposed_copies": one(memory_ranks.copies, hidden=False),
    "exposed_device_copies": one(copies.clones),
    "idle_launch_bound": one(idle.small_ops),
    "idle_host_work": one(idle.host_work),
    "idle_slow_call": one(idle.slow_calls),
    "idle_stalls": one(idle.stalls),
    "idle_dataload": one(idle.loading),
    "idle_stream_dependency": one(idle.held_back),
    "idle_submission": one(idle.submitted_late),
    "idle_between_kernels": one(idle.queued),
    "sync_starves_device": one(critical_path.waiting),
    "slow_launch_calls": one(idle.slow_machine),
    "synchronous_launches": one(idle.synchronous),
    "zero_grad_per_parameter": one(launches.zeroing, "per_parameter"),
    "small_optimizer_kernels": one(launches.chain, optimizer=True),
    "small_elementwise_kernels": one(launches.chain),
    "launch_bound_steps": one(launches.launch_bound),
    "h2d_wider_dtype": one(copies.wider, "double", "float"),
    "h2d_repeated": one(copies.batches, copies=2),
    "h2d_scalars": one(copies.scalars_to_device, 20),
    "h2d_ping_pong": one(copies.offload, offloaded=True),
    "h2d_compare_shape": batches(batch=16),
    "h2d_compare_dtype": batches(dtype="double"),
    "h2d_compare_duplicate": batches(copies=2),
    "h2d_compare_memory": batches(host_memory="pinned", gb_per_s=24),
    "h2d_compare_link": batches(gb_per_s=8 / 3),
    "d2h_scalars": one(copies.scalars_to_host, 20),
    "pageable_copies": one(copies.pageable, host_memory="pageable", gb_per_s=6),
    "copies_in_turn": one(copies.in_turn),
    "serial_kernel": one(launches.kernels, "scan", 80_000, grid=(1, 1, 1)),
    "few_blocks": one(launches.kernels, "scan", 80_000, grid=(33, 1, 1)),
    "partial_wave": one(launches.kernels, "own", 80_000, grid=(WAVE + WAVE // 4, 1, 1)),
    "low_occupancy": one(launches.kernels, "own", 80_000, grid=(WAVE, 1, 1), block=(32, 1, 1), registers=255),
    "threads_per_element": one(
        launches.kernels, launches.ELEMENTWISE, 80_000, grid=(WAVE, 1, 1), shapes=[[64], [64]]
    ),
    "config_varies": one(
        launches.kernels, "own", 80_000, grid=(WAVE, 1, 1), shapes=[[MIB]], others=[(2 * WAVE, 1, 1)]
    ),
    "launch_work_differs": Case(
        lambda: (launches.convolution(16, 372_600),), lambda: (launches.convolution(32, 690_600),)
    ),
    "launch_config_changed": Case(
        lambda: (launches.threshold((1024, 1, 1)),), lambda: (launches.threshold((512, 1, 1), 60_000),)
    ),
    "memory_leak": one(memory_ranks.memory, leak=2 * MIB, noise=(0, MIB // 16, MIB // 64)),
    "unused_reserved_memory": one(memory_ranks.fragmentation, unused=600 * MIB),
    "allocator_churn": one(memory_ranks.churn, from_step=0, to_step=memory_ranks.STEPS),
    "unaligned_half_precision": one(roofline.unaligned_products),
    "low_matrix_utilization": one(roofline.little_products),
    "slower_than_sibling": one(roofline.unequal_products),
    "slower_than_equal": one(roofline.equal_products),
    "dense_experts": one(roofline.experts),
    "critical_path_sync_waits": one(critical_path.running_ahead),
    "critical_path_communication": one(critical_path.communicating),
    "straggler": Case(lambda: tuple(memory_ranks.job(late=2, by="compute"))),
    "rank_imbalance": Case(lambda: tuple(memory_ranks.job(late=1, collectives=1))),
    "pipeline_bubble": Case(lambda: tuple(pipelines.pipeline(4, 8))),
    "expert_imbalance": Case(lambda: tuple(parallelism.experts(UNEVEN))),
    "compile_guards": one(compiled.program, compiled.Compilation(lookup_ns=compiled.SLOW_LOOKUP_NS)),
}
"""A planted program for each rule that simulated programs reach, by its code."""
OTHER_PROGRAMS = {
    "exposed_communication": {"min_calls", "max_call_ns", "min_steps", "min_time_ratio"},
    "idle_slow_call": {"min_recurring_calls"},
    "h2d_ping_pong": {"min_pairs"},
    "allocator_churn": {"min_frees"},
    "pipeline_bubble": {"max_microbatch_factor"},
    "straggler": {
        "max_blamed_share",
        "min_caused_share",
        "max_first_share",
        "min_early_wait_share",
        "max_early_share",
    },
}
"""Thresholds that only bound the saving or the severity, or that other programs than the planted one meet.

Those are in `SOME` of `tests/unit/analyses/test_rule_thresholds.py`.
"""
REPRESENTATIVE = tuple({RULES[code][0]: code for code in CASES if CASES[code].head is None}.values())
"""One rule of each analysis, for the default tier."""
THRESHOLDS = [
    (code, name)
    for code in CASES
    for name in RULES[code][1].thresholds
    if name not in OTHER_PROGRAMS.get(code, ())
]
DECIDED = list({code: (code, name) for code, name in THRESHOLDS if code in REPRESENTATIVE}.values())
"""One threshold of each of these rules."""


@pytest.mark.parametrize("code", tiers.thinned(CASES, default=REPRESENTATIVE))
def test_the_planted_program_gives_the_finding(code: str, shared_runs: SharedRuns) -> None:
    assert findings(code, CASES[code].runs(shared_runs))


@pytest.mark.parametrize(("code", "name"), tiers.thinned(THRESHOLDS, default=DECIDED))
def test_past_its_threshold_a_rule_is_silent(code: str, name: str, shared_runs: SharedRuns) -> None:
    assert findings_past(code, name, CASES[code].runs(shared_runs)) == []


@pytest.mark.parametrize("code", tiers.thinned(CASES, default=REPRESENTATIVE))
def test_parts_of_the_host_sum_to_each_step(code: str, shared_runs: SharedRuns) -> None:
    for run in CASES[code].runs(shared_runs):
        check_host_parts(run)


def test_thresholds_of_other_programs_exist() -> None:
    assert {code: names - set(RULES[code][1].thresholds) for code, names in OTHER_PROGRAMS.items()} == {
        code: set() for code in OTHER_PROGRAMS
    }
