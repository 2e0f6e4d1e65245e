"""The verdict: parts that sum to the window, the largest of them, and when nothing can be told."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pandas as pd
import pytest

from tests.builders import device, host, kernel, make_run, memcpy, step
from tracekit.analysis import Bottleneck, Finding, Result, Severity, get
from tracekit.analysis.device_verdict import AS_LATE, LAUNCHES, About, describe_devices
from tracekit.analysis.findings import advise
from tracekit.analysis.idle_causes import OF_IT
from tracekit.analysis.savings import Ranked, Verdict
from tracekit.analysis.verdict import INPUTS, Evidence, judge
from tracekit.schema import C, DeviceKind, HostKind

if TYPE_CHECKING:
    from pathlib import Path


def tables(
    idle: dict[str, int],
    *,
    aside_ns: int = 0,
    start_up_ns: int = 0,
    op: str = "(between ops)",
    **lengths: int,
) -> dict[str, Result]:
    """Results of the analyses for one device: idle time by cause, and the rest of its window.

    The first cause has what is set aside and what is start-up; all idle time is in the op.
    """
    parts = {"active_ns": 0, "communication_exposed_ns": 0, "movement_ns": 0, "graph_ns": 0, **lengths}
    outside = parts.pop("outside_ns", 0)
    total = sum(idle.values()) + outside
    place = {C.RANK: 0, C.DEVICE: 0}
    window = parts["active_ns"] + parts["movement_ns"] + parts["graph_ns"] + total
    counts = {"kernels": 9, "memcpys": 0, "memsets": 0}
    frame = pd.DataFrame([{**place, **parts, **counts, "idle_ns": total, "window_ns": window}])
    causes = [
        {**place, "cause": cause, "op": op, "idle_ns": length, "steps_ns": pd.NA, "recurring_ns": length}
        | {"aside_ns": aside_ns * (at == 0), "start_up_ns": start_up_ns * (at == 0)}
        for at, (cause, length) in enumerate(idle.items())
    ]
    by_cause = pd.DataFrame(causes)
    verdict = pd.DataFrame([{"verdict": "good", "reason": "every check passed"}])
    checks = pd.DataFrame({"check": ["sampled"], "level": ["ok"], "detail": [""]})
    waits = pd.DataFrame([{**place, "waited_ns": 30}])
    return {
        "integrity": Result({"verdict": verdict, "checks": checks}),
        "gpu_breakdown": Result({"whole": frame}),
        "idle_gaps": Result({"by_cause": by_cause, "by_op": by_cause, "summary": pd.DataFrame([place])}),
        "ranks": Result({"stragglers": waits}),
    }


def told(results: dict[str, Result], *ranked: Ranked) -> Verdict:
    evidence = Evidence()
    for name, result in results.items():
        evidence.add(name, result)
    assert evidence.complete == (set(results) >= set(INPUTS))
    found = evidence.verdict(ranked)
    assert sum(part.dur_ns for part in found.parts) == found.window_ns
    return found


def finding(analysis: str, code: str, severity: Severity = Severity.WARN) -> Ranked:
    bound = next(rule.bound for rule in get(analysis).rules if rule.code == code)
    return Ranked(analysis, Finding(code, severity, code, "do it"), None, bound)


def test_compute_with_its_largest_loss() -> None:
    found = told(tables({"dataload": 200, "launch_bound": 100}, active_ns=600, movement_ns=100))
    assert (found.bound, found.loss, found.window_ns) == (Bottleneck.COMPUTE, Bottleneck.INPUT, 1000)
    assert found.sentence == (
        "Bound by GPU kernels: kernels run for 60.0% of the capture. Largest loss: input, 20.0% (the GPU is "
        "idle during data loading)."
    )


def test_causes_of_late_launches_are_one_bound() -> None:
    results = tables({"launch_bound": 200, "host_work": 250, "sync": 240}, active_ns=310)
    place = {C.RANK: 0, C.DEVICE: 0, "cause": "host_work", "op": "(between ops)"}
    for longest_ns, second_ns, words in (
        (224, 1, ""),
        (224, 2, ", in gaps of 224 ns and 2 ns"),
        (226, 2, ", in one gap of 226 ns"),
        (251, 2, ""),
    ):
        results["idle_gaps"].tables["by_op"]["longest_ns"] = longest_ns
        gaps = [{**place, "counted_ns": ns} for ns in (longest_ns, second_ns)]
        results["idle_gaps"].tables["gaps"] = pd.DataFrame(gaps)
        found = told(results)
        assert (found.bound, found.loss) == (Bottleneck.HOST, None)
        assert f"45.0% of the capture, mostly outside of recorded ops{words}; kernels" in found.sentence


@pytest.mark.parametrize(
    ("slack_ns", "bound", "says"),
    [
        (400, Bottleneck.STRAGGLERS, "a collective waits for its last rank for 40.0%"),
        (
            100,
            Bottleneck.HOST,
            "the GPU waits for the CPU for 30.0% of the capture, for 30.0% in collectives, as the CPUs",
        ),
        (pd.NA, Bottleneck.STRAGGLERS, "a collective waits for its last rank for 40.0%"),
    ],
)
def test_waiting_for_a_rank_is_the_hosts_where_all_are_as_late(
    slack_ns: object, bound: Bottleneck, says: str
) -> None:
    results = tables({"sync": 250}, active_ns=750, communication_exposed_ns=500)
    waits = {C.RANK: 0, C.DEVICE: 0, "waited_ns": 400, "host_slack_ns": slack_ns}
    results["ranks"] = Result({"stragglers": pd.DataFrame([waits]).astype("Int64")})
    found = told(results)
    assert found.bound is bound
    assert says in found.sentence


@pytest.mark.parametrize(
    ("waiting_ns", "bound", "says"),
    [
        (
            299,
            Bottleneck.COMMUNICATION,
            "no other kernel for 60.0% of the capture, 29.9% before the last rank arrives;",
        ),
        (301, Bottleneck.STRAGGLERS, "waits for its last rank for 30.1% of the capture;"),
        (0, Bottleneck.COMMUNICATION, "no other kernel for 60.0% of the capture;"),
    ],
)
def test_a_rank_alone_waits_in_collectives_longer_than_their_likes(
    waiting_ns: int, bound: Bottleneck, says: str
) -> None:
    results = tables({"sync": 300}, active_ns=700, communication_exposed_ns=600)
    place = {C.RANK: 0, C.DEVICE: 0}
    results["ranks"] = Result({"stragglers": pd.DataFrame([place])})
    waits = pd.DataFrame([{**place, "waiting_ns": waiting_ns}, {**place, "waiting_ns": pd.NA}]).astype(
        "Int64"
    )
    results["overlap"] = Result({"whole": waits})
    found = told(results)
    assert found.bound is bound
    assert says in found.sentence


@pytest.mark.parametrize(
    ("op", "says"), [("getc", "reading of files or input in getc"), ("aten::mm", "in aten::mm")]
)
def test_a_host_that_reads_is_not_said_to_work(op: str, says: str) -> None:
    results = tables({"host_work": 600}, op=op, active_ns=400)
    assert says in told(results).sentence


@pytest.mark.parametrize(("launches", "bound"), [(249, Bottleneck.HOST), (251, Bottleneck.LAUNCH)])
def test_the_larger_reason_of_late_launches_is_named(launches: int, bound: Bottleneck) -> None:
    found = told(tables({"launch_bound": launches, "host_work": 250}, op="aten::normal_", active_ns=310))
    assert found.bound is bound
    assert ("outside launches in aten::normal_" in found.sentence) == (bound is Bottleneck.HOST)


@pytest.mark.parametrize(
    ("unprofiled_ns", "bound", "slowed_ns"),
    [
        (20, Bottleneck.LAUNCH, 0),
        (10, Bottleneck.LAUNCH, 0),
        (6, Bottleneck.COMPUTE, 400),
        (1, Bottleneck.COMPUTE, 600),
    ],
)
def test_launches_that_the_profiler_delays_are_its_own(
    unprofiled_ns: int, bound: Bottleneck, slowed_ns: int
) -> None:
    results = tables({"launch_bound": 600}, active_ns=400)
    steps = pd.DataFrame([{C.RANK: 0, "profiled_ns": 10, "unprofiled_ns": unprofiled_ns}])
    results["steps"] = Result({"overhead": steps.eval("overhead_ns = profiled_ns - unprofiled_ns")})
    whole = results["gpu_breakdown"].tables["whole"]
    results["gpu_breakdown"] = Result({"profiled_steps": whole})
    results["idle_gaps"].tables["by_cause"]["steps_ns"] = 600
    found = told(results)
    assert found.bound is bound
    assert found.share(Bottleneck.PROFILER) * 1000 == pytest.approx(slowed_ns)


@pytest.mark.parametrize(
    ("start_up_ns", "bound", "window_ns"),
    [
        (99, Bottleneck.COMPUTE, 1000),
        (100, Bottleneck.COMPUTE, 900),
        (900, Bottleneck.COMPUTE, 100),
        (901, Bottleneck.START_UP, 1000),
    ],
)
def test_start_up_is_set_aside_while_enough_remains(
    start_up_ns: int, bound: Bottleneck, window_ns: int
) -> None:
    rest = 1000 - start_up_ns
    idle = {"slow_call": start_up_ns + rest // 3}
    found = told(tables(idle, start_up_ns=start_up_ns, active_ns=1000 - sum(idle.values())))
    assert (found.bound, found.window_ns) == (bound, window_ns)
    assert found.sentence.startswith("Start-up takes") == (window_ns != 1000)


@pytest.mark.parametrize(
    ("gap_ns", "bound", "says"),
    [
        (499, Bottleneck.HOST, "mostly outside of recorded ops, in one gap of 499 ns"),
        (500, Bottleneck.LAUNCH, "in one gap of 500 ns, 50.0% of the capture. Bound by kernel launches: "),
        (900, Bottleneck.COMPUTE, "in one gap of 900 ns, 90.0% of the capture. Bound by GPU kernels: "),
        (901, Bottleneck.HOST, "mostly outside of recorded ops, in one gap of 901 ns"),
    ],
)
def test_one_unrecorded_gap_is_set_aside_while_enough_remains(
    gap_ns: int, bound: Bottleneck, says: str
) -> None:
    launches = max(0, 900 - gap_ns)
    results = tables({"host_work": gap_ns, "launch_bound": launches}, active_ns=1000 - gap_ns - launches)
    results["idle_gaps"].tables["by_op"]["longest_ns"] = gap_ns
    found = told(results)
    assert found.bound is bound
    assert says in found.sentence


@pytest.mark.parametrize(("others_ns", "says"), [(76, "outside of recorded ops"), (75, "")])
def test_work_beside_the_gap_that_is_set_aside_is_named(others_ns: int, says: str) -> None:
    results = tables({"host_work": 600 + 150}, active_ns=50)
    rows = [
        {C.RANK: 0, C.DEVICE: 0, "cause": "host_work", "op": op, "idle_ns": 1, "longest_ns": longest}
        | {"recurring_ns": ns}
        for op, ns, longest in (("(between ops)", 600 + others_ns, 600), ("aten::mm", 150 - others_ns, 1))
    ]
    results["idle_gaps"].tables["by_op"] = pd.DataFrame(rows)
    sentence = told(results).sentence
    assert "in one gap of 600 ns, 75.0% of the capture. Bound by " in sentence
    assert f", mostly {says or 'CPU busy outside launches'};" in sentence


@pytest.mark.parametrize(("work_ns", "is_named"), [(151, True), (150, False), (100, False)])
def test_an_op_is_named_if_it_has_most_of_the_work_of_the_window(work_ns: int, is_named: bool) -> None:
    results = tables({"first_call": 400, "host_work": 300}, start_up_ns=400, active_ns=100)
    works = {"aten::mm": work_ns, "aten::add": (300 - work_ns) // 2, "aten::mul": (300 - work_ns) // 2}
    rows = [
        {C.RANK: 0, C.DEVICE: 0, "cause": "host_work", "op": op, "idle_ns": 400, "recurring_ns": ns}
        for op, ns in works.items()
    ]
    results["idle_gaps"].tables["by_op"] = pd.DataFrame(rows)
    found = told(results)
    assert found.bound is Bottleneck.HOST
    assert ("in aten::mm" in found.sentence) == is_named


@pytest.mark.parametrize(
    ("active_ns", "waits_ns", "bound"),
    [(480, 99, Bottleneck.HOST), (480, 100, Bottleneck.COMPUTE), (500, 0, Bottleneck.COMPUTE)],
)
def test_a_host_that_never_waits_paces_kernels_that_run_beside_its_work(
    active_ns: int, waits_ns: int, bound: Bottleneck
) -> None:
    results = tables({"host_work": 470, "sync": 530 - active_ns}, active_ns=active_ns)
    results["idle_gaps"].tables["summary"]["waits_ns"] = waits_ns
    found = told(results)
    assert found.bound is bound
    assert ("and the CPU hardly waits for it" in found.sentence) == (bound is Bottleneck.HOST)


@pytest.mark.parametrize(
    ("latency_ns", "says"),
    [
        (9, "until the CPU launches for 60.0% of the capture; kernels run"),
        (
            10,
            "launches for 59.0% of the capture, and from then until the work starts for 1.0%;",
        ),
        (
            600,
            "launches for 0.0% of the capture, and from then until the work starts for 60.0%; kernels",
        ),
    ],
)
def test_the_time_after_a_launch_began_is_not_before_it(latency_ns: int, says: str) -> None:
    results = tables({"launch_bound": 600}, active_ns=400)
    results["idle_gaps"].tables["by_cause"]["launch_latency_ns"] = latency_ns
    assert says in told(results).sentence
    results = tables({"launch_bound": 400}, active_ns=600)
    results["idle_gaps"].tables["by_cause"]["launch_latency_ns"] = 100
    loss = "kernel launches, 40.0% (the GPU is idle until the CPU launches for 30.0%, and from then until"
    assert f"{loss} the work starts for 10.0%)" in told(results).sentence


@pytest.mark.parametrize(
    ("slack_ns", "says"),
    [
        (10, "only GPU work, runs for 40.0% (1.0% waiting for the last rank, 39.0% transfer)."),
        (0, "and waits in collectives, as the CPUs of all ranks are late, for 1.0%; communication, the only"),
    ],
)
def test_what_collectives_wait_for_late_hosts_is_no_idle_time(slack_ns: int, says: str) -> None:
    results = tables({"launch_bound": 600}, active_ns=400, communication_exposed_ns=400)
    waits = {C.RANK: 0, C.DEVICE: 0, "waited_ns": 10, "host_slack_ns": slack_ns}
    results["ranks"] = Result({"stragglers": pd.DataFrame([waits])})
    sentence = told(results).sentence
    assert "the GPU is idle until the CPU launches for 60.0% of the capture" in sentence
    assert says in sentence


@pytest.mark.parametrize(
    ("kernels_ns", "says"),
    [
        (0, "communication, the only GPU work, runs for 40.0%."),
        (1, "kernels other than communication run for 0.1%, communication and no other kernel for 40.0%."),
    ],
)
def test_communication_that_is_no_bound_is_named_where_it_is_much(kernels_ns: int, says: str) -> None:
    idle_ns = 600 - kernels_ns
    results = tables({"launch_bound": idle_ns}, active_ns=400 + kernels_ns, communication_exposed_ns=400)
    results["ranks"] = Result({"stragglers": pd.DataFrame([{C.RANK: 0, C.DEVICE: 0}])})
    assert told(results).sentence.endswith(says)


@pytest.mark.parametrize(
    ("waited_ns", "says"),
    [
        (9, "communication and no other kernel for 40.0%."),
        (10, "other kernel for 40.0% (1.0% waiting for the last rank, 39.0% transfer)."),
        (300, "other kernel for 40.0% (30.0% waiting for the last rank, 10.0% transfer)."),
    ],
)
def test_waiting_is_told_from_transfer_also_where_neither_bounds(waited_ns: int, says: str) -> None:
    results = tables({"launch_bound": 500}, active_ns=500, communication_exposed_ns=400)
    waits = {C.RANK: 0, C.DEVICE: 0, "waited_ns": waited_ns, "host_slack_ns": waited_ns}
    results["ranks"] = Result({"stragglers": pd.DataFrame([waits])})
    assert told(results).sentence.endswith(says)


@pytest.mark.parametrize(
    ("first_ns", "says"),
    [
        (151, "waiting for the last rank, mostly in the first collective of the capture; 10.0%"),
        (150, "rank, 10"),
    ],
)
def test_waiting_in_the_first_collective_is_said(first_ns: int, says: str) -> None:
    results = tables({"launch_bound": 500}, active_ns=500, communication_exposed_ns=400)
    waits = {C.RANK: 0, C.DEVICE: 0, "waited_ns": 300, "host_slack_ns": 300, "first_ns": first_ns}
    results["ranks"] = Result({"stragglers": pd.DataFrame([waits])})
    assert says in told(results).sentence


def test_all_shares_after_what_is_set_aside_are_of_the_time_that_is_named() -> None:
    idle = {"slow_call": 500, "host_work": 300, "launch_bound": 150}
    results = tables(idle, start_up_ns=500, active_ns=50)
    results["idle_gaps"].tables["by_op"]["longest_ns"] = [1, 300, 1]
    results["idle_gaps"].tables["by_op"]["recurring_ns"] = [0, 300, 150]
    assert told(results).sentence == (
        "Start-up takes 500 ns, 50.0% of the capture (the CPU initializes, loads or compiles code, or "
        "chooses algorithms). Nothing is recorded of the CPU in one gap of 300 ns, 30.0% of the capture. "
        "Bound by kernel launches: the GPU is idle until the CPU launches for 75.0% of the other 200 ns; "
        "kernels run for 25.0%."
    )


@pytest.mark.parametrize(
    ("search_ns", "says"), [(300, "66.7% of the other 600 ns"), (0, "77.8% of the capture")]
)
def test_kernels_of_a_search_are_start_up(search_ns: int, says: str) -> None:
    found = told(tables({"dataload": 200}, active_ns=700, search_ns=search_ns))
    assert (found.bound, found.loss) == (Bottleneck.COMPUTE, Bottleneck.INPUT)
    assert found.sentence.startswith("Start-up takes 300 ns, 33.3% of the capture") == bool(search_ns)
    assert f"kernels run for {says}" in found.sentence


@pytest.mark.parametrize(("loading_ns", "is_said"), [(100, True), (99, False)])
def test_the_largest_loss_beside_what_bounds_is_said(loading_ns: int, is_said: bool) -> None:
    idle = {"launch_bound": 500, "dataload": loading_ns, "sync": 90}
    found = told(tables(idle, active_ns=1000 - sum(idle.values())))
    assert (found.bound, found.loss) == (Bottleneck.LAUNCH, None)
    loss = "Largest other loss: input, 10.0% (the GPU is idle during data loading)."
    assert found.sentence.endswith(loss if is_said else "; kernels run for 31.1%.")


@pytest.mark.parametrize(
    ("cause", "calls", "says"),
    [
        ("slow_call", {"cudaMalloc": 600}, ", mostly cudaMalloc called in aten::mm;"),
        ("host_work", {}, ", mostly CPU busy outside launches in aten::mm;"),
        ("first_call", {}, ", mostly first calls of aten::mm;"),
        ("stall", {}, ", mostly stalls of the CPU in aten::mm;"),
    ],
)
def test_what_the_cpu_did_is_named_by_the_cause(cause: str, calls: dict[str, int], says: str) -> None:
    results = tables({cause: 600}, op="aten::mm", active_ns=400)
    place = {C.RANK: 0, C.DEVICE: 0, "cause": cause, "op": "aten::mm"}
    gaps = [{**place, "call": call, "counted_ns": ns, "recurring_ns": ns} for call, ns in calls.items()]
    if gaps:
        results["idle_gaps"].tables["gaps"] = pd.DataFrame(gaps)
    assert says in told(results).sentence


@pytest.mark.parametrize(("call_ns", "says"), [(150, ", 25.0% of it in cudaGraphLaunch;"), (149, "capture;")])
def test_a_slow_call_with_much_of_the_idle_time_is_named(call_ns: int, says: str) -> None:
    idle = {"slow_call": call_ns, "host_work": 250, "launch_bound": 350 - call_ns}
    results = tables(idle, active_ns=400)
    place = {C.RANK: 0, C.DEVICE: 0, "op": "(between ops)"}
    rows = [
        {**place, "cause": cause, "call": "cudaGraphLaunch", "counted_ns": ns, "recurring_ns": ns}
        for cause, ns in idle.items()
    ]
    results["idle_gaps"].tables["gaps"] = pd.DataFrame(rows)
    results["idle_gaps"].tables["by_op"] = pd.DataFrame(
        [{**row, "op": f"aten::op_{number}"} for number, row in enumerate(rows * 3)]
    ).assign(recurring_ns=lambda table: table["recurring_ns"] / 3)
    assert says in told(results).sentence


@pytest.mark.parametrize(
    ("latency_ns", "late_ns", "says"),
    [
        (9, 0, "capture, 40.0% of it in aten::mm;"),
        (10, 0, "for 1.0%, 40.0% of both in aten::mm;"),
        (0, 30, "for 3.0%, 40.0% of the time outside of collectives in aten::mm;"),
    ],
)
def test_a_share_of_launches_says_of_which_times(latency_ns: int, late_ns: int, says: str) -> None:
    lengths = {
        LAUNCHES: 501,
        (Bottleneck.HOST, AS_LATE): late_ns,
        (Bottleneck.COMPUTE, "compute"): 499 - late_ns,
    }
    named = {Bottleneck.LAUNCH: f", 40.0% {OF_IT} in aten::mm"}
    found = describe_devices(lengths, About("the capture", named=named, latency_ns=latency_ns))
    assert found is not None
    assert says in found.sentence


@pytest.mark.parametrize(
    ("covered_ns", "launches_ns", "says"),
    [
        (400, 200, ", mostly CPU busy outside launches in aten::mm;"),
        (300, 200, ", 50.0% of it CPU busy outside launches in aten::mm;"),
        (400, 399, ", mostly CPU busy outside launches in aten::mm;"),
        (399, 399, ", 49.9% of it CPU busy outside launches in aten::mm;"),
    ],
)
def test_the_host_is_mostly_in_an_op_that_runs_most_of_the_time_before_late_launches(
    covered_ns: int, launches_ns: int, says: str
) -> None:
    results = tables({"host_work": 400, "launch_bound": launches_ns}, op="aten::mm", active_ns=200)
    results["idle_gaps"].tables["by_op"] = (
        results["idle_gaps"].tables["by_op"].assign(op=["aten::mm", "aten::add"], covered_ns=[covered_ns, 0])
    )
    assert says in told(results).sentence


@pytest.mark.parametrize(("behind_ns", "says"), [(151, "with work from before the capture"), (150, None)])
def test_waiting_for_work_from_before_the_capture_is_said(behind_ns: int, says: str | None) -> None:
    """Milliseconds; the time set aside is 300, of which another part has no queued work."""
    scale = 1_000_000
    idle = {"submission": behind_ns * scale, "host_work": (300 - behind_ns) * scale}
    results = tables(idle, active_ns=700 * scale)
    results["idle_gaps"].tables["by_cause"]["aside_ns"] = list(idle.values())
    sentence = told(results).sentence
    assert f"kernels run for 100.0% of the capture excluding 300.00 ms {says or EDGES}" in sentence
    waits = f"At the start, launched work waits {behind_ns}.00 ms, probably for GPU work from before"
    assert sentence.startswith(waits) == bool(says)


@pytest.mark.parametrize(("at_edge_ns", "is_explained"), [(0, True), (1, False)])
def test_an_explained_begin_of_the_steps_is_no_edge(at_edge_ns: int, is_explained: bool) -> None:
    results = tables({"host_work": 200}, aside_ns=at_edge_ns, outside_ns=300, active_ns=500)
    row = {C.RANK: 0, C.DEVICE: 0, "cause": "host_work", "op": "aten::normal_", "dur_ns": 100}
    results["idle_gaps"].tables["before_work"] = pd.DataFrame([{**row, "start_up_ns": 0}])
    begins = f"excluding {200 + at_edge_ns} ns "
    words = "after the last GPU work" if is_explained else EDGES
    assert begins + words in told(results).sentence


@pytest.mark.parametrize(("line", "is_known"), [("train.py(3): f", True), ("", False)])
def test_unrecorded_activity_is_not_said_to_be_work(line: str, is_known: bool) -> None:
    results = tables({"host_work": 490, "sync": 100}, active_ns=410)
    results["idle_gaps"].tables["by_op"]["source_line"] = line
    begins = "Bound by host work: " if is_known else "Bound by unrecorded activity of the CPU: "
    assert told(results).sentence.startswith(begins)


@pytest.mark.parametrize("start_up_ns", [0, 40])
def test_time_before_the_first_work_has_the_causes_of_gaps(start_up_ns: int) -> None:
    results = tables({"host_work": 90, "dataload": 10}, op="aten::sort", outside_ns=400, active_ns=500)
    row = {C.RANK: 0, C.DEVICE: 0, "cause": "host_work", "op": "aten::normal_", "dur_ns": 380}
    results["idle_gaps"].tables["before_work"] = pd.DataFrame([{**row, "start_up_ns": start_up_ns}])
    found = told(results)
    lengths = {part.bound: part.dur_ns for part in found.parts}
    assert (lengths[Bottleneck.HOST], lengths[Bottleneck.EDGES]) == (470 - start_up_ns, 20)
    assert lengths.get(Bottleneck.START_UP, 0) == start_up_ns
    assert "mostly CPU busy outside launches in aten::normal_" in found.sentence


@pytest.mark.parametrize(("lead_ns", "is_said"), [(112, True), (111, False)])
@pytest.mark.parametrize(("work_ns", "is_named"), [(12, True), (11, False)])
def test_a_long_recording_before_the_first_work_is_said_first(
    lead_ns: int, is_said: bool, work_ns: int, is_named: bool
) -> None:
    results = tables({"sync": 400}, active_ns=600)
    lead = {"lead_ns": lead_ns, "lead_work": "cudaFree", "lead_work_ns": work_ns}
    results["idle_gaps"].tables["summary"] = results["idle_gaps"].tables["summary"].assign(**lead)
    sentence = told(results).sentence
    begins = "The first work of the GPU begins 112 ns into the recording"
    work = f", {work_ns} ns of it in cudaFree" * is_named
    assert sentence.startswith(f"{begins}{work}. Bound by" if is_said else "Bound by")


@pytest.mark.parametrize(
    ("lead_ns", "queued_ns", "late_ns", "is_said"),
    [
        (1_500_000, 1_000_000, 99_999, True),
        (1_500_000, 999_999, 0, False),
        (3_000_000, 1_500_000, 0, False),  # the host was late for as long
        (3_000_000, 1_500_001, 0, True),
        (1_500_000, 1_000_000, 100_000, False),  # work starts late in the window, too
    ],
)
def test_work_that_is_not_recorded_holds_up_the_first_launch(
    lead_ns: int, queued_ns: int, late_ns: int, is_said: bool
) -> None:
    results = tables({"sync": 400_000 - late_ns, "submission": late_ns}, active_ns=600_000)
    lead = {"lead_ns": lead_ns, "lead_work": None, "behind_ns": queued_ns}
    results["idle_gaps"].tables["summary"] = results["idle_gaps"].tables["summary"].assign(**lead)
    sentence = told(results).sentence
    assert ("for work of the GPU that is not recorded" in sentence) == is_said
    assert ("The first work of the GPU begins" in sentence) != is_said


def test_waiting_for_the_last_rank_is_no_communication() -> None:
    found = told(tables({}, active_ns=100, communication_exposed_ns=40))
    lengths = {part.bound: part.dur_ns for part in found.parts}
    assert lengths == {Bottleneck.COMPUTE: 60, Bottleneck.COMMUNICATION: 10, Bottleneck.STRAGGLERS: 30}


EDGES = "before the first and after the last GPU work"


@pytest.mark.parametrize(("aside_ns", "window_ns"), [(9, 200), (10, 180)])
def test_edges_bound_nothing_and_are_left_out_from_a_tenth(aside_ns: int, window_ns: int) -> None:
    results = tables({"unknown": 40, "sync": 20}, aside_ns=aside_ns, outside_ns=10, active_ns=130)
    found = told(results)
    assert found.bound is Bottleneck.COMPUTE
    assert found.window_ns == window_ns
    assert (f"excluding 20 ns {EDGES}" in found.window) == (aside_ns == 10)
    evidence = Evidence()
    for name, result in results.items():
        evidence.add(name, result)
    shown = evidence.measured_window()
    assert shown
    (row,) = shown[0].to_dict("records")
    assert (row["window_ns"], shown[1]) == (window_ns, found.window)
    if aside_ns == 10:
        assert row["active_share"] == found.share(Bottleneck.COMPUTE) == 130 / window_ns


@pytest.mark.parametrize(("warm_up_ns", "words"), [(11, "of marked warm-up"), (10, EDGES)])
def test_marked_warm_up_is_named_if_it_is_most_of_what_is_set_aside(warm_up_ns: int, words: str) -> None:
    results = tables({"sync": 40}, aside_ns=20, active_ns=130)
    results["idle_gaps"].tables["by_cause"]["warm_up_ns"] = warm_up_ns
    assert f"excluding 20 ns {words}" in told(results).sentence


def test_beside_communication_the_other_kernels_are_spoken_of() -> None:
    sentences = [
        told(tables({"launch_bound": 600}, active_ns=400, communication_exposed_ns=ns)).sentence
        for ns in (0, 300)
    ]
    assert "; kernels run for 40.0%" in sentences[0]
    assert "; kernels other than communication run for 10.0%" in sentences[1]


FAILED = Result(notes=("failed: KeyError: 'x'",), incomplete=True)


@pytest.mark.parametrize(
    ("name", "says"),
    [
        ("gpu_breakdown", "Cannot tell what bounds this run: KeyError: 'x'."),
        ("idle_gaps", "Not included, because it failed: idle_gaps."),
        ("host_breakdown", "kernels run for 60.0% of the capture"),
    ],
)
def test_an_analysis_that_failed_is_named(name: str, says: str) -> None:
    results = tables({"dataload": 400}, active_ns=600)
    assert says in told(results | {name: FAILED}).sentence


def test_without_a_device_the_failure_is_why_nothing_is_told() -> None:
    results = {"integrity": tables({})["integrity"]}
    assert "neither work of a device nor of the host" in told(results).sentence
    found = told(results | {"host_breakdown": FAILED})
    assert found.sentence == "Cannot tell what bounds this run: KeyError: 'x'."


@pytest.mark.parametrize(("unknown", "bound"), [(5, Bottleneck.PROFILER), (0, Bottleneck.LAUNCH)])
def test_the_profiler_bounds_a_run_only_of_which_nothing_else_is_known(
    unknown: int, bound: Bottleneck
) -> None:
    found = told(tables({"profiler": 90, "unknown": unknown, "launch_bound": 4}, active_ns=1))
    assert found.bound is bound
    assert ("; the profiler for " in found.sentence) == (bound is Bottleneck.LAUNCH)


def test_the_profiler_takes_the_length_of_its_overhead() -> None:
    results = tables({"profiler": 300}, active_ns=700)
    results["idle_gaps"].tables["by_cause"]["overhead_ns"] = 100
    found = told(results)
    assert {part.bound: part.dur_ns for part in found.parts} == {
        Bottleneck.COMPUTE: 700,
        Bottleneck.PROFILER: 100,
        Bottleneck.LAUNCH: 200,
    }


def test_the_window_is_what_follows_marked_warm_up() -> None:
    results = tables({"launch_bound": 100}, active_ns=60)
    whole = results["gpu_breakdown"].tables["whole"]
    results["gpu_breakdown"] = Result({"after_warm_up": whole, "whole": whole * 10})
    assert (told(results).window, told(results).window_ns) == ("the capture after marked warm-up", 160)


def test_communication_is_not_the_largest_kernel() -> None:
    results = tables({}, active_ns=100)
    names, shares = ["ncclDevKernel_AllReduce", "gemm", "gemm", "softmax"], [0.5, 0.15, 0.1, 0.25]
    results["kernels"] = Result({"families": pd.DataFrame({"family": names, "share": shares})})
    assert ", largest: gemm (25.0% of kernel time)" in told(results).sentence
    results["kernels"].tables["families"]["share"] = [0.91, 0.04, 0.05, 0.0]
    assert "largest" not in told(results).sentence


RATES = {"precision": "bf16", "share": 0.2, "family_share": 0.3, "peak_share": 0.24, "bandwidth_share": 0.1}


@pytest.mark.parametrize(
    ("changed", "says"),
    [
        ({}, ", at 24.0% of the BF16 peak)"),
        ({"peak_share": 0.09}, ", at 10.0% of the memory bandwidth)"),
        ({"peak_share": float("nan")}, ", at 10.0% of the memory bandwidth)"),
        ({"share": 0.15}, ", at 24.0% of the BF16 peak)"),
        ({"share": 0.149}, "(30.0% of kernel time)"),  # known of less than half of the family
        ({"peak_share": 1.01}, "(30.0% of kernel time)"),  # faster units than the precision indicates
        ({"peak_share": float("nan"), "bandwidth_share": float("nan")}, "(30.0% of kernel time)"),
        ({"family": "another"}, "(30.0% of kernel time)"),
    ],
)
def test_the_rate_of_the_largest_kernel_is_said_where_known(changed: dict[str, Any], says: str) -> None:
    results = tables({}, active_ns=100)
    results["kernels"] = Result({"families": pd.DataFrame([{"family": "gemm", "share": 0.3}])})
    results["roofline"] = Result({"kernels": pd.DataFrame([{"family": "gemm", **RATES, **changed}])})
    assert (
        f", largest: gemm (30.0% of kernel time{says.removeprefix('(30.0% of kernel time')}."
        in told(results).sentence
    )


@pytest.mark.parametrize(
    ("first", "second", "is_named"),
    [(0.5, 0.25, True), (0.5, 0.24, False), (0.3, 0.2, True), (0.3, 0.19, False)],
)
def test_a_second_kernel_is_named_if_it_is_nearly_as_large(
    first: float, second: float, is_named: bool
) -> None:
    results = tables({}, active_ns=100)
    families = pd.DataFrame({"family": ["gemm", "conv"], "share": [first, second]})
    results["kernels"] = Result({"families": families})
    assert (" and conv (" in told(results).sentence) == is_named


@pytest.mark.parametrize(("last", "says"), [("B", "(45.0% of kernel time)"), ("", "(30.0% of kernel time)")])
def test_kernels_that_look_alike_when_shortened_count_together(last: str, says: str) -> None:
    template = "moe_gemm<GridwiseMoeGemm<" + ", ".join(f"ck::Sequence{number}" for number in range(20))
    names = [f"{template}, A>>", f"{template}, {last}>>" if last else "softmax", "copy"]
    results = tables({}, active_ns=100)
    families = pd.DataFrame({"family": names, "share": [0.3, 0.15, 0.1]})
    results["kernels"] = Result({"families": families})
    assert f"\u2026> {says}" in told(results).sentence


PRODUCTS = ("nvjet_qqtst_v_bz_coopB_TNN", "sm90_xmma_gemm_bf16", "Cijk_Alik_Bljk", "triton_tem_fused_mm_1")


@pytest.mark.parametrize(
    ("share", "rated", "says"),
    [
        (0.063, 0.05, ", largest: matrix products (25.2% of kernel time, at 24.0% of their peak)"),
        (0.063, 0.031, ", largest: matrix products (25.2% of kernel time)"),  # known of less than half
        (0.062, 0.05, ""),
    ],
)
def test_products_of_all_families_are_named_together_where_none_is_large(
    share: float, rated: float, says: str
) -> None:
    """Also those whose work is unknown; neither convolutions nor attention nor what Inductor generates."""
    results = tables({}, active_ns=100)
    others = ("sm90_xmma_fprop_implicit_gemm", "flash_fwd_kernel", "triton_poi_fused__scaled_mm_clone")
    families = pd.DataFrame({"family": [*PRODUCTS, *others], "share": [share] * 4 + [0.09] * 3})
    results["kernels"] = Result({"families": families})
    rates = pd.DataFrame([{"family": name, **RATES, "share": rated} for name in (*PRODUCTS, *others)])
    results["roofline"] = Result({"kernels": rates})
    sentence = told(results).sentence
    assert says in sentence
    assert ("matrix products" in sentence) == bool(says)


@pytest.mark.parametrize(
    ("up_ns", "down_ns", "size", "says"),
    [
        (60, 40, 500, ", mostly H2D copies at 5.00 GB/s;"),
        (60, 40, pd.NA, ", mostly H2D copies;"),
        (50, 50, 500, "of the capture;"),
    ],
)
def test_the_direction_of_most_copies_is_named(up_ns: int, down_ns: int, size: object, says: str) -> None:
    results = tables({}, active_ns=10, movement_ns=100)
    rows = [
        {C.RANK: 0, C.DEVICE: 0, "what": what, "exposed_ns": ns, "sum_ns": 100, C.BYTES: moved}
        for what, ns, moved in (("all copies", 100, 900), ("H2D", up_ns, size), ("D2H", down_ns, 400))
    ]
    results["overlap"] = Result({"whole": pd.DataFrame(rows)})
    assert says in told(results).sentence


@pytest.mark.parametrize(
    ("kinds", "says"),
    [
        ({"all_gather": 51, "all_reduce": 49}, ", mostly all_gather;"),
        ({"all_gather": 50, "all_reduce": 50}, "of the capture;"),
        ({"other": 100}, "of the capture;"),
    ],
)
def test_the_kind_of_most_communication_is_named(kinds: dict[str, int], says: str) -> None:
    results = tables({}, active_ns=110, communication_exposed_ns=100)
    results["ranks"] = Result({"stragglers": pd.DataFrame([{C.RANK: 0, C.DEVICE: 0}])})
    rows = [{C.RANK: 0, C.DEVICE: 0, "collective": kind, "exposed_ns": ns} for kind, ns in kinds.items()]
    results["overlap"] = Result({"collectives": pd.DataFrame(rows)})
    assert says in told(results).sentence


@pytest.mark.parametrize(("share", "is_named"), [(0.25, True), (0.24, False)])
def test_the_op_with_most_late_launches_is_named(share: float, is_named: bool) -> None:
    results = tables({"launch_bound": 600}, active_ns=400)
    named = round(600 * share)
    ops = {"aten::mm": named, "(between ops)": 600 - named}
    rows = [
        {C.RANK: 0, C.DEVICE: 0, "cause": "launch_bound", "op": op, "idle_ns": ns, "recurring_ns": ns}
        for op, ns in ops.items()
    ]
    results["idle_gaps"].tables["by_op"] = pd.DataFrame(rows)
    assert (", 25.0% of it in aten::mm;" in told(results).sentence) == is_named


def test_nothing_is_told_of_what_is_unknown() -> None:
    found = told(tables({"unknown": 600, "sync": 100}, active_ns=300))
    assert found.bound is Bottleneck.UNKNOWN
    assert found.sentence.startswith("Cannot tell what bounds this run, too little is recorded")


@pytest.mark.parametrize(("reason", "says"), [("a sample", "a sample."), ("is it cut?", "is it cut?")])
def test_nothing_is_told_of_numbers_that_mislead(reason: str, says: str) -> None:
    results = tables({"sync": 100}, active_ns=300)
    bad = pd.DataFrame([{"verdict": "misleading", "reason": f"{reason}; and more"}])
    integrity = replace(results["integrity"], tables={**results["integrity"].tables, "verdict": bad})
    found = told({**results, "integrity": integrity})
    assert (found.bound, found.parts) == (Bottleneck.UNKNOWN, ())
    assert found.sentence == f"Cannot tell what bounds this run: {says}"


def test_findings_on_the_bound_and_the_loss_come_first() -> None:
    copies, loading = finding("pinned_memory", "pageable_copies"), finding("idle_gaps", "idle_dataload")
    note, kernels = finding("steps", "warmup_steps", Severity.INFO), finding("kernels", "eager_attention")
    found = told(tables({"dataload": 300}, active_ns=600), copies, note, loading, kernels)
    assert found.findings == (loading, kernels, copies)


def test_idle_time_without_its_analysis_is_unknown() -> None:
    results = {name: one for name, one in tables({"sync": 100}, active_ns=10).items() if name != "idle_gaps"}
    assert told(results).bound is Bottleneck.UNKNOWN


def run_tables(**more: Any) -> dict[str, Any]:
    call = {"kind": HostKind.RUNTIME, C.PARENT_ROW: 0, C.DEPTH: 1}
    first, second = ({C.LAUNCH_ROW: row, C.OP_ROW: 0, C.CORRELATION_ID: row} for row in (1, 2))
    return {
        "steps": [step(0, 0, 100_000)],
        "host_intervals": [
            host("aten::mm", 0, 90_000),
            host("cudaLaunchKernel", 0, 1_000, **call, **{C.CORRELATION_ID: 1}),
            host("cudaLaunchKernel", 80_000, 85_000, **call, **{C.CORRELATION_ID: 2}),
        ],
        "device_intervals": [
            kernel(0, 10_000, **first),
            memcpy(10_000, 12_000, **first),
            device(DeviceKind.IDLE, 12_000, 90_000),
            kernel(90_000, 99_000, **second),
            kernel(99_000, 99_500, **second),
            kernel(99_500, 100_000, **second),
        ],
        **more,
    }


def test_a_run_is_judged_by_its_analyses(tmp_path: Path) -> None:
    found = judge(make_run(tmp_path, **run_tables()))
    assert found.bound is Bottleneck.LAUNCH
    assert {part.bound: part.dur_ns for part in found.parts} == {
        Bottleneck.COMPUTE: 20_000,
        Bottleneck.COPIES: 2_000,
        Bottleneck.LAUNCH: 78_000,
    }


def test_a_run_without_a_device_is_described_by_its_ops(tmp_path: Path) -> None:
    ops = [host("aten::mm", at, at + 25_000) for at in (0, 25_000, 50_000)]
    ops += [host("aten::add", at, at + 12_500) for at in (75_000, 87_500)]
    found = judge(make_run(tmp_path, **run_tables(device_intervals=[], host_intervals=ops)))
    assert [(part.label, part.share) for part in found.parts] == [("ops", 1.0)]
    assert found.sentence.startswith("Bound by ops on the CPU: they take 100.0% of the ")
    assert "largest: aten::mm 75.0%, aten::add 25.0%" in found.sentence


@pytest.mark.parametrize(
    ("flops", "workload", "said"),
    [
        (
            10_000_000,
            {"threads": 2},
            "; matrix products and convolutions run at 400.00 GFLOP/s with 2 threads",
        ),
        (10_000_000, {}, "; matrix products and convolutions run at 400.00 GFLOP/s. "),
        (None, {"threads": 2}, ""),
    ],
)
def test_the_rate_of_ops_on_the_cpu_is_said(
    tmp_path: Path, flops: int | None, workload: dict[str, Any], said: str
) -> None:
    known = {C.FLOPS: flops, C.INPUT_SHAPES: "[[200,125],[125,200]]", C.INPUT_DTYPES: '["float","float"]'}
    ops = [host("aten::mm", at, at + 25_000, **known) for at in range(0, 75_000, 25_000)]
    ops += [host("aten::add", at, at + 12_500) for at in (75_000, 87_500)]
    tables = run_tables(device_intervals=[], host_intervals=ops)
    sentence = judge(make_run(tmp_path, meta={"workload": workload}, **tables)).sentence
    assert said in sentence
    assert ("FLOP/s" in sentence) == bool(said)


@pytest.mark.parametrize(("count", "is_enough"), [(4, False), (5, True)])
def test_a_few_kernels_are_too_little(tmp_path: Path, count: int, is_enough: bool) -> None:
    """The same number is too little on each of two ranks, for the verdict as for findings."""
    rows, calls = [], []
    for rank in (0, 1):
        for at in range(10_000, 10_000 * (count + 1), 10_000):
            place = {C.RANK: rank, C.DEVICE: rank}
            rows.append(kernel(at, at + 1_000, launch_row=len(calls), **place))
            if at < 10_000 * count:
                rows.append(device(DeviceKind.IDLE, at + 1_000, at + 10_000, **place))
            calls.append(host("cudaLaunchKernel", at - 1_000, at, kind=HostKind.RUNTIME, rank=rank))
    run = make_run(tmp_path, device_intervals=rows, host_intervals=calls)
    advice = advise(run)
    assert advice.verdict is not None
    says = f"too little is recorded, only {count} kernels and copies of each rank: record more"
    assert (says in advice.verdict.sentence) == (not is_enough)
    assert advice.findings
    assert ({ranked.finding.severity for ranked in advice.findings} == {Severity.INFO}) == (not is_enough)


@pytest.mark.parametrize(("count", "is_enough"), [(4, False), (5, True)])
def test_a_few_ops_are_too_little(tmp_path: Path, count: int, is_enough: bool) -> None:
    ops = [host("aten::empty", at, at + 2_000) for at in range(0, 10_000 * count, 10_000)]
    advice = advise(make_run(tmp_path, host_intervals=ops))
    assert advice.verdict is not None
    assert ("Bound by" in advice.verdict.sentence) == is_enough
    assert (f"only {count} ops and calls and no GPU work" in advice.verdict.sentence) == (not is_enough)
