"""Planted causes of overlap, memory and ranks: found exactly, and silent on the clean twin."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from samples.simulator.planted import memory_ranks as planted
from samples.simulator.planted.memory_ranks import KIB, MIB, STEPS
from tests import tiers
from tests.golden.test_planted import length, rows
from tests.shared_runs import analyze
from tracekit.analysis import Finding
from tracekit.schema import C

if TYPE_CHECKING:
    from samples.simulator import Program
    from tests.shared_runs import SharedRuns
    from tracekit.runs.run import Run


@pytest.fixture
def load(shared_runs: SharedRuns) -> Any:
    """Imports the traces of programs as one run."""
    return shared_runs.simulated


def found(run: Run, analysis: str) -> dict[str, Finding]:
    return {finding.code: finding for finding in analyze(run, analysis).findings}


def exact(program: Program, name: str, *, beside: str) -> dict[str, int]:
    """Union and exposed part of the device events of a name, by counting one interval at a time."""
    own = [(event.start_ns, event.end_ns) for event in program.on_device if name in event.name]
    others = [(event.start_ns, event.end_ns) for event in program.on_device if beside in event.name]
    return {"union_ns": length(own), "exposed_ns": length(own + others) - length(others)}


@pytest.mark.parametrize("hidden", [False, True])
@pytest.mark.parametrize("what", ["H2D", "communication"])
def test_exposed_time_is_the_planted_one_and_silent_when_hidden(load: Any, what: str, hidden: bool) -> None:
    make = planted.copies if what == "H2D" else planted.communication
    code = "exposed_copies" if what == "H2D" else "exposed_communication"
    program = make(hidden=hidden)
    run = load(program)
    (row,) = [row for row in rows(run, "overlap", "whole") if row["what"] == what]
    name = "Memcpy" if what == "H2D" else planted.GATHER
    expected = exact(program, name, beside=planted.COMPUTE)
    assert {key: row[key] for key in expected} == expected
    assert expected["exposed_ns"] == (0 if hidden else STEPS * planted.COPY_NS)
    findings = found(run, "overlap")
    assert set(findings) == (set() if hidden else {code})
    if not hidden:
        assert findings[code].saving_ns_per_step == planted.COPY_NS
        assert len(findings[code].evidence["device_intervals"]) == STEPS


def test_overlap_and_breakdown_agree(load: Any) -> None:
    for program in (planted.communication(hidden=False), planted.copies(hidden=False)):
        run = load(program)
        for table in ("whole", "per_step", "profiled_steps"):
            breakdown = rows(run, "gpu_breakdown", table)
            overlap = [
                row for row in rows(run, "overlap", table) if row["what"] in ("communication", "all copies")
            ]
            if overlap[0]["what"] == "communication":
                names = ("communication_ns", "communication_exposed_ns", "communication_overlapped_ns")
            else:
                names = ("memcpy_union_ns", "movement_ns", "overlapped_ns")
            assert [tuple(row[name] for name in names) for row in breakdown] == [
                (row["union_ns"], row["exposed_ns"], row["overlapped_ns"]) for row in overlap
            ]


def test_a_leak_has_the_planted_slope_and_names_the_op(load: Any) -> None:
    run = load(planted.memory(leak=2 * MIB, noise=(0, 64 * KIB, 16 * KIB)))
    (row,) = rows(run, "memory", "leak")
    assert abs(row["growth"] - 2 * MIB) < 32 * KIB
    assert row["steps"] == 7
    finding = found(run, "memory")["memory_leak"]
    assert "12 MiB by cublas_workspace (6 allocations)" in finding.advice
    assert finding.severity == "high"
    assert len(finding.evidence["host_intervals"]) == 6


def test_a_leak_without_noise_has_exactly_the_planted_slope(load: Any) -> None:
    (row,) = rows(load(planted.memory(leak=64 * KIB)), "memory", "leak")
    assert (row["growth"], row["growth_low"], row["growth_high"]) == (64 * KIB,) * 3


NO_LEAK = [
    {"noise": (0, 4 * MIB, MIB, 2 * MIB)},
    {"warmup": 3},
    {"warmup": 1, "noise": (MIB, 0)},
    {"leak": 32 * KIB},
    {"leak": 2 * MIB, "steps": 4},
    {"steps": 20, "warmup": 5},
]


@pytest.mark.parametrize(
    "clean",
    tiers.thinned(NO_LEAK, default=NO_LEAK[::3]),
    ids=["noise", "warm-up", "both", "little", "too few steps", "long warm-up"],
)
def test_no_leak_is_found_where_none_is(load: Any, clean: dict[str, Any]) -> None:
    assert found(load(planted.memory(**clean)), "memory") == {}


def test_unused_memory_is_found_only_above_both_thresholds(load: Any) -> None:
    run = load(planted.fragmentation(unused=600 * MIB))
    finding = found(run, "memory")["unused_reserved_memory"]
    assert (
        finding.title
        == "At the peak 600 MiB of the 1.59 GiB reserved on device 0 of rank 0 were unused (36.9%)"
    )
    assert (finding.severity, finding.confidence) == ("info", 0.5)
    (row,) = rows(run, "memory", "summary")
    assert (row["peak_allocated"], row["most_fragmentation"]) == (1 << 30, (1 << 30) + 600 * MIB)
    assert found(load(planted.fragmentation(unused=500 * MIB)), "memory") == {}


def test_fragmentation_is_named_only_where_free_memory_did_not_serve(load: Any) -> None:
    finding = found(load(planted.fragmentation(unused=600 * MIB, grows=True)), "memory")[
        "unused_reserved_memory"
    ]
    assert "reserved 64 MiB more" in finding.advice
    assert finding.severity == "warn"


def test_driver_calls_in_later_steps_cost_their_host_time(load: Any) -> None:
    run = load(planted.churn(from_step=0, to_step=STEPS))
    finding = found(run, "memory")["allocator_churn"]
    assert finding.saving_ns_per_step == (STEPS - 1) * 100_000 // STEPS
    assert "num_alloc_retries" in finding.advice
    calls = {
        row["call"]: (row["later_count"], row["count"], row["sum_ns"])
        for row in rows(run, "memory", "driver_calls")
    }
    assert calls == dict.fromkeys(("cudaMalloc", "cudaFree"), (STEPS - 1, STEPS, STEPS * 50000))
    emptied = found(load(planted.churn(from_step=0, to_step=STEPS, emptied=True)), "memory")
    assert "calls empty_cache" in emptied["allocator_churn"].advice


@pytest.mark.parametrize("steps", [(0, 1), (3, 4)], ids=["warm-up", "once"])
def test_driver_calls_of_one_step_are_not_advised_against(load: Any, steps: tuple[int, int]) -> None:
    assert found(load(planted.churn(from_step=steps[0], to_step=steps[1])), "memory") == {}


@pytest.mark.parametrize("by", tiers.thinned(["compute", "idle"], default=["compute"]))
def test_a_straggler_is_found_with_its_cause_and_cost(load: Any, by: str) -> None:
    run = load(*planted.job(late=2, by=by))
    findings = found(run, "ranks")
    assert set(findings) == {"straggler"}
    finding = findings["straggler"]
    assert finding.title.startswith(
        "Rank 2 causes 100.0% of the waiting in 12 collectives: the others wait 1 ms per step"
    )
    assert finding.saving_ns_per_step == 2 * 500_000
    assert ("it computes longer" in finding.advice) == (by == "compute")
    assert ("its device idles longer" in finding.advice) == (by == "idle")
    waiting, *last = (
        run.table("device_intervals")
        .set_index(C.ROW_ID)[[C.RANK, C.DUR_NS]]
        .loc[list(finding.evidence["device_intervals"])]
        .itertuples(index=False, name=None)
    )
    assert (waiting[0] != 2, waiting[1] > max(dur for _, dur in last)) == (True, True)
    assert [rank for rank, _ in last] == [2] * 12
    late, *others = rows(run, "ranks", "stragglers")
    assert (late[C.RANK], late["caused_ns"], late["gain_ns"], late["waited_ns"]) == (
        2,
        6_000_000,
        6_000_000,
        0,
    )
    assert [(row["waited_ns"], row["mean_late_ns"]) for row in others] == [(6_000_000, 0)] * 3
    skew = rows(run, "ranks", "skew")
    assert {(row["wait_ns"], row["shortest_ns"], row["end_spread_ns"]) for row in skew} == {
        (1_500_000, 100_000, 0)
    }


NO_STRAGGLER = [
    {},
    {"late": 1, "late_ns": 20_000},
    {"late": 1, "hidden": True},
    {"late": 1, "collectives": 1},
    {"ranks": 1},
]


@pytest.mark.parametrize(
    "clean",
    tiers.thinned(NO_STRAGGLER, default=NO_STRAGGLER[1:2]),
    ids=["balanced", "hardly late", "hidden", "too few", "alone"],
)
def test_no_straggler_is_found_where_none_is(load: Any, clean: dict[str, Any]) -> None:
    findings = found(load(*planted.job(**clean)), "ranks")
    assert "straggler" not in findings
    assert "collectives" in clean or findings == {}


def test_uneven_kernels_are_found_without_a_straggler(load: Any) -> None:
    finding = found(load(*planted.job(late=1, collectives=1)), "ranks")["rank_imbalance"]
    mean = (3 * planted.COMPUTE_NS + planted.COMPUTE_NS + 500_000) // 4
    assert finding.saving_ns_per_step == planted.COMPUTE_NS + 500_000 - mean
    assert "gemm: 9 ms against 6 ms" in finding.advice
