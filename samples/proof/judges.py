"""Judge single claims by the runs of recipes and the facts of their programs, with the numbers compared."""

from __future__ import annotations

import re
import statistics
from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING, Any

from tracekit.analyses.shared.pcie import link_rates

from tracekit.runs.nvml import M
from tracekit.schema import C, Memory

from . import evidence
from .processes import State

if TYPE_CHECKING:
    from tracekit.runs.run import Run

    from .processes import Ended

UNLINKED_SHARE = 0.01
CLOCK_SHARE = BOUND_IDLE_SHARE = 0.05
NSYS_SHARE = 0.03
ATTACHED_SHARE = 0.05
PEAK = (0.5, 1.0)
LINK = (0.6, 1.0)
SPIN_SHARE, PAUSE_SHARE = 0.05, 0.05
OCCUPANCY_POINTS = 1.0
PAUSE_SLACK_NS = 1_000_000
"""What a launch and the return of a synchronization may add to a pause."""


_COHERENT = re.compile(r"(?i)\b(?:GH200|GB\d+|MI300A|Thor|Orin|Xavier)")
"""Devices that another link than PCIe connects to the memory of the host."""


class Outcome(StrEnum):
    """Outcome of a claim."""

    PASS = "pass"  # noqa: S105 (no password)
    FAIL = "fail"
    NOT_APPLICABLE = "not-applicable"
    UNKNOWN = "unknown"


@dataclass(frozen=True, kw_only=True)
class Recorded:
    """A recipe, how it ended and its run."""

    ended: Ended
    run: Run | None = None


Judgement = tuple[Outcome, dict[str, Any], str]
"""Outcome, the numbers compared, and the reason unless the numbers say it."""


def _outcome(passes: bool) -> Outcome:  # noqa: FBT001 (a predicate of the caller)
    return Outcome.PASS if passes else Outcome.FAIL


def _run(one: Recorded) -> Run:
    if one.run is None:
        raise ValueError("there is no run")
    return one.run


def _missing(what: str, **numbers: Any) -> Judgement:
    return Outcome.UNKNOWN, numbers, what


def on_device(one: Recorded) -> Judgement:
    """Work of the device was recorded: nothing ran on the CPU instead."""
    run = _run(one)
    rows, device = len(evidence.device_rows(run)), (run.meta.workload or {}).get("device")
    return _outcome(rows > 0 and device == "cuda"), {"rows": rows, "device": device}, ""


def linked(one: Recorded) -> Judgement:
    """Device rows are linked to the call that launched them."""
    without, rows = evidence.unlinked(_run(one))
    if not rows:
        return _missing("no device rows")
    share = without / rows
    return _outcome(share < UNLINKED_SHARE), {"rows": rows, "unlinked": without, "share": share}, ""


def steady(one: Recorded) -> Judgement:
    """All steps launch the same number of kernels."""
    ranks = evidence.kernels_by_step(_run(one))
    if not ranks or min(map(len, ranks.values())) < 2:
        return _missing("fewer than two steps")
    numbers = {f"rank_{rank}_kernels": counts for rank, counts in ranks.items()}
    if not any(map(any, ranks.values())):
        return Outcome.NOT_APPLICABLE, numbers, "the steps launch no kernels"
    return _outcome(all(len(set(counts)) == 1 for counts in ranks.values())), numbers, ""


def event_clock(one: Recorded) -> Judgement:
    """Step times by CUDA events are wall times when the device is never idle."""
    run, facts = _run(one), one.ended.facts
    timings, idle = run.meta.timings, evidence.idle_share(run)
    if not timings or timings.clock != "cuda_event" or "wall_ns" not in facts or idle is None:
        return _missing("no step times by CUDA events, no wall time, or no device rows")
    steps = int(facts["steps"])
    by_events = statistics.median_low(timings.step_ns[-steps:])
    wall = round(facts["wall_ns"] / steps)
    numbers = {"event_step_ns": by_events, "wall_step_ns": wall, "idle_share": idle}
    if idle > BOUND_IDLE_SHARE:
        return Outcome.NOT_APPLICABLE, numbers, "the loop is not bound by the device"
    return _outcome(abs(by_events / wall - 1) <= CLOCK_SHARE), numbers, ""


def attached(bare: Recorded, recorded: Recorded) -> Judgement:
    """Before its window, tracekit does not slow a program down."""
    facts = [one.ended.facts for one in (bare, recorded)]
    if any("wall_ns" not in one for one in facts):
        return _missing("no wall times")
    alone, under = (round(one["wall_ns"] / one["steps"]) for one in facts)
    overhead = under / alone - 1
    numbers = {"bare_step_ns": alone, "attached_step_ns": under, "overhead_share": overhead}
    return _outcome(overhead <= ATTACHED_SHARE), numbers, ""


def same_kernels(torch_run: Recorded, nsys_run: Recorded) -> Judgement:
    """torch.profiler and nsys record the same kernels, of the same duration."""
    (one, one_ns), (other, other_ns) = (
        evidence.kernel_ns_in_steps(_run(each)) for each in (torch_run, nsys_run)
    )
    numbers = {"torch_kernels": one, "nsys_kernels": other, "torch_ns": one_ns, "nsys_ns": other_ns}
    if not one_ns:
        return _missing("no kernels in steps", **numbers)
    ratio = other_ns / one_ns
    return _outcome(one == other and abs(ratio - 1) <= NSYS_SHARE), {**numbers, "ratio": ratio}, ""


def matmul_rate(one: Recorded) -> Judgement:
    """A large matrix product reaches half of the listed peak, and never more than the peak."""
    facts, found = one.ended.facts, evidence.products(_run(one))
    if found is None or "size" not in facts:
        return _missing("no matrix products with known FLOPs")
    if found["peak_tflops"] is None:
        return Outcome.NOT_APPLICABLE, found, f"no peak is listed for {found['precision']} on this device"
    share = found["tflops"] / found["peak_tflops"]
    exact = found["flops_per_call"] == 2 * int(facts["size"]) ** 3
    right = exact and found["precision"] == facts["precision"]
    return _outcome(right and PEAK[0] <= share <= PEAK[1]), {**found, "share": share}, ""


def copy_rate(one: Recorded) -> Judgement:
    """Large pinned copies reach 60% of the link; no copy is faster than the link."""
    run, facts = _run(one), one.ended.facts
    copies, links = evidence.copies(run, int(facts.get("bytes", 0))), link_rates(run)
    if copies.empty:
        return _no_copies(run)
    link = links.get(int(copies[C.DEVICE].iloc[0]))
    rates = copies.groupby(C.COPY_KIND, observed=True)["gb_per_s"]
    median, fastest = rates.median(), float(copies["gb_per_s"].max())
    numbers: dict[str, Any] = {f"{kind}_gb_per_s": float(rate) for kind, rate in median.items()}
    numbers |= {"fastest_gb_per_s": fastest, "link_gb_per_s": link}
    if link is None or _COHERENT.search(evidence.device_name(run)):
        return Outcome.NOT_APPLICABLE, numbers, "the PCIe link is unknown, or not what connects the device"
    least = LINK[0] if facts["memory"] == "pinned" else 0.0
    passes = len(median) == 2 and bool((median >= least * link).all()) and fastest <= LINK[1] * link
    return _outcome(passes), numbers, ""


def _no_copies(run: Run) -> Judgement:
    if evidence.are_sized(run):
        return _missing("no copies of that size")
    return Outcome.NOT_APPLICABLE, {}, "the profiler records no sizes of copies"


def copy_memory(one: Recorded) -> Judgement:
    """Copies are recorded as of the memory that they are of."""
    facts = one.ended.facts
    copies = evidence.copies(_run(one), int(facts.get("bytes", 0)))
    if copies.empty:
        return _no_copies(_run(one))
    if (copies["memory"] == str(Memory.UNKNOWN)).all():
        return Outcome.NOT_APPLICABLE, {"copies": len(copies)}, "the profiler records no host memory"
    right = int((copies["memory"] == facts["memory"]).sum())
    return _outcome(right == len(copies)), {"copies": len(copies), "right": right}, ""


def nvml_memory(one: Recorded) -> Judgement:
    """NVML's memory of the device is at least what torch reserved."""
    found = evidence.sampled_memory(_run(one))
    reserved = found.get(evidence.RESERVED)
    seen = max((found[name] for name in (M.PROCESS_MEMORY, M.MEMORY_USED) if name in found), default=None)
    if seen is None:
        return Outcome.NOT_APPLICABLE, found, "NVML was not sampled"
    if reserved is None:
        return _missing("no peak of torch", **found)
    return _outcome(seen >= reserved), found, ""


def spin(one: Recorded) -> Judgement:
    """A spin takes as long as CUDA events say, and twice the cycles twice as long."""
    rows, facts = evidence.spins(_run(one)), one.ended.facts
    lengths = [group[C.DUR_NS].tolist() for _, group in rows.groupby(C.STEP, observed=True)]
    if not lengths or any(len(pair) != 2 for pair in lengths) or "event_ns" not in facts:
        return _missing("not two spins in each step", spins=len(rows))
    short, long = (statistics.median_low(values) for values in zip(*lengths, strict=True))
    numbers = {"spin_ns": short, "event_ns": facts["event_ns"], "double_spin_ns": long}
    fits = abs(short / facts["event_ns"] - 1) <= SPIN_SHARE and abs(long / (2 * short) - 1) <= SPIN_SHARE
    return _outcome(fits), {**numbers, "cycles": facts.get("cycles")}, ""


def pause(one: Recorded) -> Judgement:
    """The device is idle for as long as the host paused."""
    run, pauses = _run(one), one.ended.facts.get("pause_ns")
    steps, spins = run.rows("steps"), evidence.spins(run)
    if not pauses or not steps or spins.empty:
        return _missing("no pauses, no steps or no spins")
    expected = statistics.median_low(pauses)
    idle = [ns for ns in evidence.idle_between(run, spins) if ns >= expected // 2]
    numbers = {"pause_ns": expected, "idle_ns": idle, "steps": steps}
    most = expected + max(PAUSE_SLACK_NS, round(PAUSE_SHARE * expected))
    fits = len(idle) == steps and min(pauses) <= min(idle) and statistics.median_low(idle) <= most
    return _outcome(fits), numbers, ""


def occupancy(one: Recorded) -> Judgement:
    """The resident blocks of `launch_config` give the occupancy that Kineto wrote."""
    run = _run(one)
    if not (evidence.kernels(run)[C.OCCUPANCY_PCT] > 0).any():
        return Outcome.NOT_APPLICABLE, {}, "the profiler recorded no occupancy"
    table = evidence.occupancies(run)
    if table.empty:
        return _missing("the limits of the device are unknown")
    off = (table["recorded_pct"] - table["expected_pct"]).abs()
    differing = int((off > OCCUPANCY_POINTS).sum())
    return (
        _outcome(not differing),
        {
            "configurations": len(table),
            "differing": differing,
            "largest_difference_points": float(off.max()),
        },
        "",
    )


def graph_nodes(one: Recorded) -> Judgement:
    """Each replay shows the kernels of its graph, as many in each step."""
    run = _run(one)
    rows = evidence.graph_kernels(run)
    nodes = rows[rows[C.STEP].notna()].groupby(C.STEP).size()
    numbers = {"steps": run.rows("steps"), "graph_kernels": [int(count) for count in nodes]}
    passes = len(nodes) == run.rows("steps") > 0 and len(set(nodes)) == 1
    return _outcome(passes), numbers, ""


def compiled(one: Recorded) -> Judgement:
    """Kernels of Triton were recorded."""
    names = evidence.kernels(_run(one))[C.NAME].astype(str)
    count = int(names.str.startswith("triton_").sum())
    return _outcome(count > 0), {"kernels": len(names), "triton_kernels": count}, ""


def every_rank(one: Recorded) -> Judgement:
    """All ranks have kernels and steps."""
    run, world = _run(one), one.ended.facts.get("world_size")
    ranks = sorted({int(rank) for rank in evidence.kernels(run)[C.RANK]})
    numbers = {"ranks": ranks, "world_size": world, "backend": one.ended.facts.get("backend")}
    return _outcome(ranks == list(range(int(world or 0))) and len(ranks) > 1), numbers, ""


def chosen_device(one: Recorded) -> Judgement:
    """The environment has the GPU that the program chose, and no other."""
    gpus, facts = _run(one).meta.environment.get("gpus") or [], one.ended.facts
    if not gpus or not facts.get("uuid"):
        return _missing("no GPU or no UUID was recorded")
    uuids = [str(gpu.get("uuid")).removeprefix("GPU-") for gpu in gpus]
    same = uuids == [str(facts["uuid"]).removeprefix("GPU-")]
    return _outcome(same), {"gpus": len(gpus), "same_uuid": same}, ""


def mig_named(one: Recorded) -> Judgement:
    """A MIG instance is named as one."""
    gpus = _run(one).meta.environment.get("gpus") or []
    named = [str(gpu.get("name")) for gpu in gpus]
    return _outcome(bool(named) and all("MIG" in name for name in named)), {"names": named}, ""


def failure_named(one: Recorded) -> Judgement:
    """The command failed, and its error names the cause; `processes` has compared them."""
    ended = one.ended
    return _outcome(ended.state is State.OK), {"exit_code": ended.code}, ended.reason
