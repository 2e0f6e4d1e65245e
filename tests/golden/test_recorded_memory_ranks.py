"""Recorded traces: overlap, memory and ranks equal a plain count of the trace's own events.

The traces are other projects' and not part of this one; where they are absent the tests are skipped.
"""

from __future__ import annotations

import gzip
import json
from decimal import Decimal
from typing import TYPE_CHECKING, Any

import pytest

from tests.golden.test_planted import length
from tests.golden.test_truth import TRACES
from tests.shared_runs import analyze
from tracekit.schema import C

if TYPE_CHECKING:
    from pathlib import Path

    from tests.shared_runs import SharedRuns
    from tracekit.runs.run import Run

DLRM = "facebookresearch__param/v100_dlrm_8rank"
PREFETCH = "KellerJordan__modded-nanogpt/h100_h2dprefetch_rank0.json.gz"
TENSOR_PARALLEL = [
    f"tugot17__tokenomics-from-first-principles/rtx4090x2_llama_tp_rank{n}.json.gz" for n in (0, 1)
]
TALKS = "facebookresearch__HolisticTraceAnalysis/sampled_rank0of128.json.gz"
MEMORY = "sidnb13__torch-profiling-tutorial/h100_transformer.json.gz"

pytestmark = pytest.mark.skipif(not TRACES.is_dir(), reason=f"no recorded traces at {TRACES}")

Spans = list[tuple[int, int]]


def events(path: Path) -> list[dict[str, Any]]:
    document = json.loads(gzip.decompress(path.read_bytes()), parse_float=Decimal)
    found: list[dict[str, Any]] = document["traceEvents"]
    return [event for event in found if event.get("ph") in ("X", "i")]


def spans(trace: list[dict[str, Any]], category: str) -> list[tuple[str, tuple[int, int]]]:
    chosen = [event for event in trace if str(event.get("cat", "")).lower() == category]
    starts = [(event, int(Decimal(event["ts"]) * 1000)) for event in chosen]
    return [(event["name"], (start, start + int(Decimal(event["dur"]) * 1000))) for event, start in starts]


def alone(own: Spans, others: Spans) -> int:
    return length(own + others) - length(others)


def imported(shared_runs: SharedRuns, *names: str) -> Run:
    return shared_runs.of(*(TRACES / name for name in names))


@pytest.mark.slow_except(1)
@pytest.mark.parametrize("name", [PREFETCH, TALKS])
def test_exposed_time_is_that_of_the_events_as_tracelens_defines_it(
    name: str, shared_runs: SharedRuns
) -> None:
    """Computation C, communication M, copies P: exposed M∖C and (P∖C)∖M; no memset runs beside a copy."""
    trace = events(TRACES / name)
    kernels = spans(trace, "kernel")
    talk = [span for kernel, span in kernels if "nccl" in kernel.lower()]
    compute = [span for kernel, span in kernels if "nccl" not in kernel.lower()]
    copies = [span for _, span in spans(trace, "gpu_memcpy")]
    whole = analyze(imported(shared_runs, name), "overlap").tables["whole"].set_index("what")
    got = whole.loc[["communication", "all copies"], ["union_ns", "exposed_ns"]]
    assert got.to_numpy().tolist() == [
        [length(talk), alone(talk, compute)],
        [length(copies), alone(copies, compute + talk)],
    ]


@pytest.mark.slow
def test_communication_of_every_rank_is_that_of_the_breakdown(shared_runs: SharedRuns) -> None:
    run = imported(shared_runs, DLRM)
    overlap = analyze(run, "overlap").tables["whole"]
    talk = overlap[overlap["what"] == "communication"]
    names = ["communication_ns", "communication_exposed_ns", "communication_overlapped_ns"]
    breakdown = analyze(run, "gpu_breakdown").tables["whole"][names]
    assert (
        talk[["union_ns", "exposed_ns", "overlapped_ns"]].to_numpy().tolist() == breakdown.to_numpy().tolist()
    )
    ranks = analyze(run, "ranks").tables["per_rank"]
    steps = analyze(run, "gpu_breakdown").tables["profiled_steps"]
    assert ranks[["communication_exposed_ns", "idle_ns", "window_ns"]].to_numpy().tolist() == (
        steps[["communication_exposed_ns", "idle_ns", "window_ns"]].to_numpy().tolist()
    )


@pytest.mark.slow
def test_the_collectives_of_eight_ranks_end_together(shared_runs: SharedRuns) -> None:
    """One host, one clock: an independent check that the matched kernels are one collective."""
    result = analyze(imported(shared_runs, DLRM), "ranks")
    skew = result.tables["skew"]
    assert (
        skew["collective"].tolist() == ["all_to_all"] * 4 + ["all_reduce", "all_to_all"] + ["all_reduce"] * 2
    )
    assert skew["last_rank"].tolist() == [7, 7, 7, 7, 7, 5, 5, 4]
    assert skew["aligned"].all()
    assert skew["end_spread_ns"].max() <= 6_000
    (finding,) = result.findings
    assert finding.title.startswith("Rank 7 causes 77.7% of the waiting in 8 collectives")


@pytest.mark.slow
def test_two_ranks_of_a_hundred_do_not_pass_for_a_whole_job(shared_runs: SharedRuns) -> None:
    names = [TALKS, TALKS.replace("rank0", "rank1")]
    result = analyze(imported(shared_runs, *names), "ranks")
    assert "straggler" not in {finding.code for finding in result.findings}
    assert "matched collectives do not end together" in "".join(result.notes)


def test_the_late_rank_of_a_pair_is_found_by_durations(shared_runs: SharedRuns) -> None:
    result = analyze(imported(shared_runs, *TENSOR_PARALLEL), "ranks")
    (finding,) = result.findings
    assert (finding.code, finding.saving_ns_per_step) == ("straggler", None)  # all of it at the start
    assert finding.title.startswith("Rank 1 causes 99.1% of the waiting in 19 collectives")


def test_allocated_bytes_are_those_of_the_events(shared_runs: SharedRuns) -> None:
    recorded = [event["args"] for event in events(TRACES / MEMORY) if event["name"] == "[memory]"]
    device = [args for args in recorded if args["Device Type"] != 0]
    table = analyze(imported(shared_runs, MEMORY), "memory").tables["summary"]
    (row,) = table[table[C.DEVICE] == 0].to_dict("records")
    assert row["peak_allocated"] == max(args["Total Allocated"] for args in device)
    assert row["peak_reserved"] == max(args["Total Reserved"] for args in device)
    assert row["allocations"] == sum(args["Bytes"] > 0 for args in device)
    assert (row["unfreed"], row["end_allocated"]) == (0, row["start_allocated"])


NORMUON = "KellerJordan__modded-nanogpt/h100_8rank_normuon"


def test_the_bandwidth_of_a_collective_is_that_of_nccl_tests(shared_runs: SharedRuns) -> None:
    """A reduce-scatter of 23,592,960 bfloat16 elements over 8 ranks in 404.193 µs."""
    calls = analyze(imported(shared_runs, PREFETCH), "collectives").tables["calls"]
    (call,) = calls[calls[C.DUR_NS] == 404_193].to_dict("records")
    assert (call["collective"], call[C.DTYPE], call[C.GROUP_SIZE]) == ("reduce_scatter", "BFloat16", 8)
    assert call[C.BYTES] == 2 * 23_592_960
    assert (round(call["alg_gb_per_s"], 2), round(call["bus_gb_per_s"], 2)) == (116.74, 102.15)


@pytest.mark.slow
def test_all_collectives_of_eight_ranks_are_matched_and_one_rank_is_late(shared_runs: SharedRuns) -> None:
    result = analyze(imported(shared_runs, NORMUON), "collectives")
    ranks = result.tables["by_rank"]
    assert ranks["count"].tolist() == [76] * 8
    assert (ranks[C.RANK][0], ranks["caused_share"][0] > 0.8) == (1, True)
    calls = result.tables["calls"]
    recorded = calls[calls["group"].notna()]
    assert (len(recorded), recorded["wait_ns"].notna().all()) == (448, True)
    assert (recorded["wait_ns"] + recorded["transfer_ns"] == recorded[C.DUR_NS]).all()


@pytest.mark.slow
def test_a_straggler_saves_no_more_than_the_hosts_of_the_others_allow(shared_runs: SharedRuns) -> None:
    """Rank 1 is waited for 7.8 ms per step, but rank 2 launches as late: a replay saves 0.7 ms."""
    found = analyze(imported(shared_runs, NORMUON), "ranks").findings
    (straggler,) = [one for one in found if one.code == "straggler"]
    assert 700_000 < (straggler.saving_ns_per_step or 0) < 1_500_000
    assert "Rank 2 would then be the last" in straggler.advice
