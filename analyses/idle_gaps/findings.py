"""Rules of `idle_gaps`, and the findings on gaps of each cause."""

from __future__ import annotations

import re
from dataclasses import replace

import numpy as np
import pandas as pd

from tracekit.analysis import EVIDENCE_ROWS, Basis, Bottleneck, Finding, Rule, Severity, savings
from tracekit.analysis.idle_causes import CALL_NS, CAUSES, COVERED_NS, MANAGED, READS
from tracekit.analysis.idle_causes import IdleCause as Cause
from tracekit.analysis.kernel_names import brief
from tracekit.analysis.savings import CONFIDENT, MIN_SHARE, WARN_SHARE, Budget
from tracekit.runs import intervals
from tracekit.runs.run import Run
from tracekit.runs.step_times import unprofiled_step_time
from tracekit.runs.step_windows import END_NS, step_windows
from tracekit.schema import C

from ..shared.common import GRAPH_CALL, PLACE, Bools, contains, duration, ints, share
from ..shared.groups import group_rows
from ..shared.host_columns import read_host_columns
from ..shared.host_rows import host_rows
from ..shared.idle_neighbors import AFTER, inside_steps
from ..shared.programs import OWN_BUFFERS, keep_workers, program_of, replays_graphs
from ..steps import measure_steps
from .advice import (
    ADD_WORKERS,
    CHECKS,
    FASTER_WORKERS,
    FIRST_USES,
    LOAD_IN_WORKERS,
    MADE_IN_STEP,
    MEMORY,
    NO_FREE_CORES,
    READ_BACKS,
    amount,
    divide_launches,
    hint,
    largest_part,
    main_call,
    mostly,
    on_call,
    on_host,
    on_launches,
    one_off,
    with_kernels,
)
from .causes import (
    ALLOCATING,
    ANCHOR_ROW,
    ASIDE,
    BROADCASTING,
    CALL,
    CAUSE,
    CHECKING,
    COMPILED,
    HOST_NS,
    INITIAL,
    LATENCY_NS,
    NAMED,
    OP,
    READ_BACK,
    SECOND,
    SECOND_NS,
    SOURCE,
    STARTING,
    WAIT_ROW,
    WAITS_ELSEWHERE,
    idlest_devices,
    total_ns,
)
from .context import MIN_FIRST_RATIO, RUNTIME_CALL

_ON_IDLE = "on a device that is idle for at least {min_idle_share} of the steps"
_SHARES = {"min_saving_share": MIN_SHARE, "min_idle_share": 0.05}
"""Minimum share of the steps of the gaps of a rule, and of all gaps of their device."""

LAUNCHES = Rule(
    "idle_launch_bound",
    states=f"launch_bound gaps sum to at least {{min_saving_share}} of the steps, {_ON_IDLE}; those "
    "and host_work gaps in DistributedDataParallel's broadcasts of buffers are reported apart; without a "
    "saving if at most one step is marked and the host was late only before it got ahead, or if the device "
    "waits at least as long for workers of a data loader",
    why="such a gap is the dispatch of one or a few ops: fewer launches remove it, faster kernels do not",
    bound=Bottleneck.LAUNCH,
    thresholds=_SHARES,
)
COMPUTES = Rule(
    "idle_host_work",
    states=f"host_work gaps sum to at least {{min_saving_share}} of the steps, {_ON_IDLE}; without a saving "
    "where it was not recorded what the host did, unless it had waited for a copy to the host and went on "
    "without another copy, where Inductor's code checked tensors (these gaps and "
    "launch_bound ones are reported apart), or, with at most one step marked, was late only before "
    "it got ahead, or if the device waits at least as long for workers of a data loader",
    why="dispatching an op does not take that long: the host did other work, or waited",
    bound=Bottleneck.HOST,
    thresholds={**_SHARES, "min_saving_share": WARN_SHARE},
)
CALLS = Rule(
    "idle_slow_call",
    states=f"slow_call gaps sum to at least {{min_saving_share}} of the steps, {_ON_IDLE}; launches of "
    "graphs are not counted, and memory calls that occur less than {min_recurring_calls} times have no "
    "saving",
    why="a launch call takes some µs: one that takes far longer loads code, allocates memory or waits for a "
    "lock; a graph's launch takes longer while each of its kernels is recorded",
    bound=Bottleneck.HOST,
    thresholds={**_SHARES, "min_recurring_calls": 3},
)
FIRST_CALLS = Rule(
    "idle_first_calls",
    states=f"first_call gaps sum to at least {{min_saving_share}} of the steps, {_ON_IDLE}; where slow_call "
    "gaps do so, too, and first uses are most of both, these are one finding by the larger part",
    why="the first call with a shape loads code, chooses an algorithm or allocates a workspace",
    bound=Bottleneck.HOST,
    thresholds=_SHARES,
)
STALLS = Rule(
    "idle_stalls",
    states=f"stall gaps sum to at least {{min_saving_share}} of the steps, {_ON_IDLE}; without a saving",
    why="calls of several ops that once take far longer than otherwise do no more work: the thread waited",
    bound=Bottleneck.HOST,
    thresholds=_SHARES,
)
LOADING = Rule(
    "idle_dataload",
    states=f"dataload gaps sum to at least {{min_saving_share}} of the steps, {_ON_IDLE}",
    why="the device waits for a batch; workers can prepare the next one concurrently",
    bound=Bottleneck.INPUT,
    thresholds=_SHARES,
)
DEPENDS = Rule(
    "idle_stream_dependency",
    states=f"stream_dependency gaps sum to at least {{min_saving_share}} of the steps, {_ON_IDLE}",
    why="a device starts queued work within a few µs, so it waited for something else",
    bound=Bottleneck.QUEUED,
    thresholds=_SHARES,
)
SUBMITS = Rule(
    "idle_submission",
    states=f"submission gaps sum to at least {{min_saving_share}} of the steps, {_ON_IDLE}",
    why="a device starts queued work within a few µs, and with one stream there is no other work to wait for",
    bound=Bottleneck.QUEUED,
    thresholds=_SHARES,
)
SMALL = Rule(
    "idle_between_kernels",
    states=f"kernel_to_kernel gaps sum to at least {{min_saving_share}} of the steps, {_ON_IDLE}",
    why="below that fewer or fused kernels make no visible difference; savings are not estimated",
    bound=Bottleneck.QUEUED,
    thresholds={**_SHARES, "min_saving_share": 0.05},
)
RULES = (LAUNCHES, COMPUTES, CALLS, FIRST_CALLS, STALLS, LOADING, DEPENDS, SUBMITS, SMALL)


def evidence(rows: pd.DataFrame) -> dict[str, list[int]]:
    """Row ids of the longest gaps, and of the host rows responsible."""
    host = rows[WAIT_ROW].fillna(rows[ANCHOR_ROW]).fillna(rows[C.LAUNCH_ROW]).dropna().drop_duplicates()
    result = {"device_intervals": [int(row) for row in rows[C.ROW_ID][:EVIDENCE_ROWS]]}
    if len(host):
        result["host_intervals"] = [int(row) for row in host[:EVIDENCE_ROWS]]
    return result


_NEEDED = [
    *(C.RANK, C.DEVICE, C.START_NS, C.DUR_NS, C.ROW_ID, C.LAUNCH_ROW),
    *(COVERED_NS, CALL_NS, SECOND, SECOND_NS, LATENCY_NS),
    *(CAUSE, OP, CALL, SOURCE, HOST_NS, WAITS_ELSEWHERE, ALLOCATING, WAIT_ROW, ANCHOR_ROW),
    *(ASIDE, STARTING, INITIAL, NAMED, AFTER, COMPILED, CHECKING, BROADCASTING, READ_BACK),
]
_IDLE_SHARE = "idle_share"
"""Column of the idle share of the steps (of the capture without any) of a gap's device."""

_FIRST_USES = (Cause.HOST_WORK, Cause.SLOW_CALL, Cause.FIRST_CALL)
"""Causes of which start-up is spoken of; what else is start-up is a search for algorithms."""
_WORKERS = "_MultiProcessing"  # name of iterators of data loaders that take batches from workers
_HOW = "Σ of these gaps{inside}, on the device of each rank with most idle time, {per}"
_AT_MOST = "; an upper bound, because it is unknown what the device waited for"
_NOT_RECORDED = "; an upper bound, because it was not recorded what the host did"
_START = (
    "the queue was empty when the capture began, and at its end the host is further ahead than it was late "
    "in all: the gaps recur only if the program waits for the device after each round"
)
_PROFILED = "; the profiler slows the host, so gaps are shorter without it"
_UNPROFILED = (
    "; of the {gaps} per step in this profile, at most the idle time of an unprofiled step: {step}, of "
    "which the device is busy for {busy}"
)
_FIRST_BATCHES = (
    "; without those for the first batch of an iterator made inside a step, which no worker prepares earlier"
)
_MAKES_ITERATOR = r"torch/utils/data/dataloader\.py\(\d+\): _get_iterator$"
_NEVER = "saving not estimated: unprofiled steps take {step}, and the device is busy for {busy} of them"


def findings(run: Run, gaps: pd.DataFrame, summary: pd.DataFrame) -> tuple[Finding, ...]:
    """Findings on the gaps of idle devices, inside the profiled steps if there are any."""
    budget = savings.budget(run)
    gaps = _with_idle_share(run, gaps[_NEEDED], summary)
    searching = gaps[INITIAL] & ~gaps[CAUSE].isin(_FIRST_USES)
    gaps = gaps[~(gaps[ASIDE] | searching).to_numpy(bool)]
    is_named = gaps[NAMED].to_numpy(bool)
    replays = contains(gaps[CALL], GRAPH_CALL)
    caused = {cause: gaps[CAUSE].cat.codes.to_numpy() == CAUSES.index(cause) for cause in Cause}
    is_unknown, reads = caused[Cause.HOST_WORK] & ~is_named, contains(gaps[OP], READS)
    managed = (gaps[OP] == MANAGED).to_numpy(bool)
    unrecorded = is_unknown & ~reads & ~managed
    recurs = gaps[READ_BACK].to_numpy(bool) & ~gaps[INITIAL].to_numpy(bool)  # compilation copies as well
    read_back = _if_matters(COMPUTES, gaps, unrecorded & recurs, budget)
    late = caused[Cause.LAUNCH_BOUND] | caused[Cause.HOST_WORK]
    checks = _if_matters(COMPUTES, gaps, late & gaps[CHECKING].to_numpy(bool), budget)
    buffers = _if_matters(LAUNCHES, gaps, late & gaps[BROADCASTING].to_numpy(bool), budget)
    others = unrecorded & ~read_back
    loads = _if_matters(COMPUTES, gaps, others & gaps[INITIAL].to_numpy(bool), budget)
    ordinary = ~checks & ~buffers
    slow, first = caused[Cause.SLOW_CALL] & ~replays, caused[Cause.FIRST_CALL]
    starts_up, rule_of_start = _join_first_uses(gaps, slow, first, budget)
    cases = (
        (LAUNCHES, buffers, "GPU idle while DDP broadcasts buffers"),
        (COMPUTES, checks, "GPU idle while Inductor's code checks tensors"),
        (LAUNCHES, caused[Cause.LAUNCH_BOUND] & ordinary, "GPU is launch-bound"),
        (
            COMPUTES,
            caused[Cause.HOST_WORK] & is_named & ordinary,
            "GPU idle: CPU busy outside kernel launches",
        ),
        (COMPUTES, read_back, "GPU idle while the CPU uses what it copied"),
        (COMPUTES, loads, "GPU idle while the CPU compiles or loads code"),
        (COMPUTES, others & ~loads, "GPU idle while the CPU activity is unknown"),
        (COMPUTES, is_unknown & managed, "GPU idle while the CPU uses managed memory"),
        (COMPUTES, is_unknown & reads, "GPU idle while the CPU reads files or input"),
        (rule_of_start, starts_up, "GPU idle during slow first calls (ops, runtime)"),
        (CALLS, slow & ~starts_up, "GPU idle during slow runtime calls"),
        (FIRST_CALLS, first & ~starts_up, "GPU idle during first calls of ops"),
        (STALLS, caused[Cause.STALL], "GPU idle while the CPU thread stalled"),
        (LOADING, caused[Cause.DATALOAD], "GPU idle during data loading"),
        (DEPENDS, caused[Cause.STREAM_DEPENDENCY], "GPU idle on a stream dependency, with work queued,"),
        (SUBMITS, caused[Cause.SUBMISSION], "GPU idle while launched work had not started"),
        (SMALL, caused[Cause.KERNEL_TO_KERNEL], "Short gaps between queued kernels take"),
    )
    of_workers = caused[Cause.DATALOAD] & contains(gaps[OP], _WORKERS)
    by_workers = total_ns(idlest_devices(gaps[of_workers])) if of_workers.any() else 0
    stalls = _select(STALLS, gaps, caused[Cause.STALL], budget) is not None
    result = []
    for rule, chosen, title in cases:
        rows = _select(rule, gaps, chosen, budget)
        if rows is None:
            continue
        idle = total_ns(rows)
        first_ns = _first_batches_ns(run, rows) if rule is LOADING else 0
        inside = " inside the profiled steps" if budget.marked else ""
        is_queued, is_read_back = rule in (DEPENDS, SUBMITS), chosen is read_back
        at_most = _AT_MOST if is_queued else _NOT_RECORDED if is_read_back else ""
        is_estimated = bool(at_most)
        finding = budget.finding(
            rule,
            idle - first_ns,
            f"{title} {amount(rows, budget)}",
            _advise(run, rule, rows, budget, stalls=stalls) + _before_capture(rule, rows, summary, budget),
            _HOW.format(inside=inside, per=budget.per)
            + (at_most or (_FIRST_BATCHES if first_ns else _PROFILED)),
            basis=Basis.ESTIMATED if is_estimated else Basis.MEASURED,
            confidence=0.6 if is_estimated else CONFIDENT,
            evidence=evidence(rows),
        )
        if finding.severity is Severity.HIGH and (is_read_back or mostly(rows, rows[INITIAL])):
            finding = replace(finding, severity=Severity.WARN)  # it is not known well, or happens once
        reason = _why_no_saving(rule, rows, budget, len(run.ranks))
        if rule in (LAUNCHES, COMPUTES) and idle <= by_workers:
            reason = reason or "workers of the data loader set the pace: a faster CPU would wait for them"
        result.append(finding.without_saving(f"saving not estimated: {reason}") if reason else finding)
    return _limit_savings(run, result, budget)


def _select(rule: Rule, gaps: pd.DataFrame, chosen: Bools, budget: Budget) -> pd.DataFrame | None:
    """Return these gaps of the idlest devices of ranks; None if they take too little for the rule."""
    is_selected = chosen & (gaps[_IDLE_SHARE] >= rule["min_idle_share"]).to_numpy(bool)
    least = rule["min_saving_share"]
    if not budget.matters(int(ints(gaps, C.DUR_NS)[is_selected].sum()), least=least):
        return None  # the idlest devices have no more than all
    rows = idlest_devices(gaps[is_selected])
    return rows if budget.matters(total_ns(rows), least=least) else None


def _first_batches_ns(run: Run, rows: pd.DataFrame) -> int:
    """Time of the gaps in which the first batch of a data loader's iterator is loaded that a step makes."""
    host = read_host_columns(run)
    made = np.flatnonzero(host.name_matches(_MAKES_ITERATOR))
    made = made[host_rows(run, host.ids(made), [C.STEP])[C.STEP].notna().to_numpy(bool)]
    total = 0
    for rank, gaps in rows.groupby(C.RANK):
        ordered = gaps.sort_values(C.START_NS)
        end = ints(ordered, C.START_NS) + ints(ordered, C.DUR_NS)
        place = np.unique(np.searchsorted(end, host.start[made[host.rank[made] == rank]], side="right"))
        total += int(ints(ordered, C.DUR_NS)[place[place < len(end)]].sum())
    return total


def _if_matters(rule: Rule, gaps: pd.DataFrame, chosen: Bools, budget: Budget) -> Bools:
    """Return which gaps are reported apart: these, or none if they take too little for the rule."""
    return chosen if _select(rule, gaps, chosen, budget) is not None else np.zeros_like(chosen)


def _join_first_uses(gaps: pd.DataFrame, slow: Bools, first: Bools, budget: Budget) -> tuple[Bools, Rule]:
    """Return slow runtime calls and first calls of ops that are one start-up, and the rule with more of it.

    None are if only one of both matters, or has more than first uses: then each is a finding by itself.
    """
    parts = _select(CALLS, gaps, slow, budget), _select(FIRST_CALLS, gaps, first, budget)
    known = [part for part in parts if part is not None and mostly(part, part[INITIAL])]
    if len(known) < len(parts):
        return np.zeros_like(slow), CALLS
    starts_up: Bools = (slow | first) & gaps[INITIAL].to_numpy(bool)
    return starts_up, CALLS if total_ns(known[0]) >= total_ns(known[1]) else FIRST_CALLS


def _before_capture(rule: Rule, rows: pd.DataFrame, summary: pd.DataFrame, budget: Budget) -> str:
    """Sentence on a slow call before the first work on a device, which is in no gap without marked steps."""
    if budget.marked or rule not in (CALLS, FIRST_CALLS) or not mostly(rows, rows[INITIAL]):
        return ""
    longest = summary.sort_values("lead_work_ns", ascending=False).iloc[0]
    name, took = str(longest["lead_work"]), longest["lead_work_ns"]
    if pd.isna(took) or not re.search(RUNTIME_CALL, name) or not budget.matters(int(took), least=MIN_SHARE):
        return ""
    return f". {brief(name)} takes {duration(int(took))} more before the first work, where the capture begins"


def _why_no_saving(rule: Rule, rows: pd.DataFrame, budget: Budget, ranks: int) -> str:
    """Reason why no saving of these gaps can be given; empty if one can."""
    # Advice to warm up is right of the start of a capture too; other gaps there do not recur.
    if rule not in (CALLS, FIRST_CALLS) and budget.steps <= ranks and mostly(rows, rows[STARTING]):
        return _START
    if rule is STALLS:
        return "the stalls are the machine's, not the program's, and vary from run to run"
    if rule is SMALL:
        return f"how much of {duration(total_ns(rows))} fusion removes is unknown"
    if rule is COMPUTES and rows[CHECKING].all():
        return "recording each check takes most of this time"
    if rule is COMPUTES and not rows[NAMED].all():
        if rows[READ_BACK].all() and not rows[INITIAL].any():
            return ""
        return (
            "what it reads is needed"
            if contains(rows[OP], READS).all() or (rows[OP] == MANAGED).all()
            else "it was not recorded what the host did"
        )
    if rule is COMPUTES and mostly(rows, rows[WAITS_ELSEWHERE]):
        return "without work the device has to be idle"
    once = len(rows) == 1 and budget.marked and budget.steps > 1
    is_rare = len(rows) < CALLS["min_recurring_calls"]
    if rule is CALLS and (once or (is_rare and re.search(MEMORY, main_call(_split_by_call(rows))))):
        return "the call does not recur"
    return ""


def _limit_savings(run: Run, findings: list[Finding], budget: Budget) -> tuple[Finding, ...]:
    """Lower savings to the idle time of a step without the profiler, which lengthens gaps, if it is known."""
    timed = unprofiled_step_time(run.meta.timings)
    if timed is None or not budget.marked or not findings:
        return tuple(findings)
    on_device = measure_steps(run)["device_busy_ns"]
    busy_ns = int(on_device.sum()) // len(on_device)
    limit = timed.mean_ns - busy_ns
    text = {"step": duration(timed.mean_ns), "busy": duration(busy_ns)}
    return tuple(_limit_saving(finding, limit, budget, text) for finding in findings)


def _limit_saving(finding: Finding, limit: int, budget: Budget, text: dict[str, str]) -> Finding:
    saving = finding.saving_ns_per_step
    if saving is None or saving <= limit:
        return finding
    if not budget.matters(limit * budget.steps):
        return finding.without_saving(_NEVER.format(**text))
    return replace(
        finding,
        severity=budget.severity(limit * budget.steps),
        saving_ns_per_step=limit,
        basis=Basis.ESTIMATED,
        how=finding.how.removesuffix(_PROFILED) + _UNPROFILED.format(gaps=duration(saving), **text),
    )


def _with_idle_share(run: Run, gaps: pd.DataFrame, summary: pd.DataFrame) -> pd.DataFrame:
    """Add the idle share of their device to gaps, with their lengths inside the steps if there are any."""
    windows = step_windows(run)
    if len(windows):
        inside = inside_steps(gaps, windows)
        latency = np.minimum(ints(gaps, LATENCY_NS), inside)
        gaps = gaps.assign(**{C.DUR_NS: inside, LATENCY_NS: latency})[inside > 0]
    devices = group_rows(gaps, PLACE)
    ranks, indices = (ints(gaps, name)[devices.first].tolist() for name in PLACE)
    if len(windows):
        steps = {rank: windows[windows[C.RANK] == rank] for rank in ranks}
        unions = [intervals.union(ints(steps[rank], C.START_NS), ints(steps[rank], END_NS)) for rank in ranks]
        window_ns = [intervals.length(union) for union in unions]
    else:
        places = zip(*(summary[name].tolist() for name in PLACE), strict=True)
        length = dict(zip(places, summary["window_ns"].tolist(), strict=True))
        window_ns = [length[place] for place in zip(ranks, indices, strict=True)]
    idle_share = share(devices.sums(ints(gaps, C.DUR_NS)), np.array(window_ns, np.int64))
    return gaps.assign(**{_IDLE_SHARE: idle_share[devices.codes]})


def _split_by_call(rows: pd.DataFrame) -> pd.DataFrame:
    """Split gaps between the two calls that took most of each; the rest of a gap is in no row."""
    length, first = ints(rows, C.DUR_NS), ints(rows, CALL_NS)
    first = np.where(first > 0, np.minimum(first, length), length)
    second = np.minimum(ints(rows, SECOND_NS), length - first)
    parts = (
        rows.assign(**{C.DUR_NS: first}),
        rows.assign(**{C.DUR_NS: second, CALL: rows[SECOND].astype(object)}),
    )
    return pd.concat([part[part[C.DUR_NS] > 0].astype({CALL: object}) for part in parts], ignore_index=True)


_ADVICE = {
    FIRST_CALLS.code: (
        f"These calls took at least {MIN_FIRST_RATIO} times as long as the other calls of the op, because "
        "they load code, choose an algorithm or allocate a workspace for a shape: run each shape before "
        "recording, and in production before the first request"
    ),
    STALLS.code: (
        f"These calls took at least {MIN_FIRST_RATIO} times as long as most others of the same op and did no "
        "more work: the thread was descheduled, or waited for a lock (Python's GIL, garbage collection). "
        "Leave cores free for it: no more DataLoader workers and threads than other cores, ranks pinned to "
        "cores, no other programs"
    ),
    DEPENDS.code: (
        "The work was launched in time, so the device waited for something else: an event of another device "
        "or stream, a host function in the stream, another process on the device, work that is missing from "
        "the trace, or on Windows (WDDM) the driver, which submits launches in batches. Record "
        "{system_trace} of all ranks to find out which"
    ),
    SUBMITS.code: (
        "One stream ran, so there was no other work to wait for: the driver had not submitted the launches "
        "yet (Windows and WSL submit them in batches), or kernels are missing from the trace, such as those "
        "of graphs or of another process. Submit less often (graph replays, fewer waits for the device)"
    ),
    SMALL.code: (
        "The work was queued in time: only fewer kernels, or one launch for many, shorten these gaps "
        "{launch_less}"
    ),
}


def _advise(run: Run, rule: Rule, rows: pd.DataFrame, budget: Budget, *, stalls: bool) -> str:
    """Name the ops with most of the time, and say what to do; cores may be short where threads stall."""
    program = program_of(run)
    if rule is COMPUTES and rows[CHECKING].all():
        return f"{largest_part(rows)}. {CHECKS}"
    if rule is LAUNCHES and rows[BROADCASTING].all():
        return f"{largest_part(rows)}. It launches some ops per buffer: {OWN_BUFFERS}"
    if rule is COMPUTES and rows[READ_BACK].all() and not rows[[NAMED, INITIAL]].any(axis=None):
        return f"{largest_part(rows)}. {READ_BACKS.format(stacks=program.stacks)}"
    if rule is COMPUTES:
        named = with_kernels(rows) if rows[NAMED].all() else rows
        return f"{largest_part(named)}. {on_host(rows, program)}{one_off(rows, budget, len(run.ranks))}"
    if rule is LOADING:
        loads_itself = not mostly(rows, contains(rows[OP], _WORKERS))
        add = NO_FREE_CORES if stalls else ADD_WORKERS
        faster = FASTER_WORKERS.format(add=add, keep=keep_workers(run))
        anew = MADE_IN_STEP if _first_batches_ns(run, rows) else ""
        return f"{largest_part(rows)}. {LOAD_IN_WORKERS if loads_itself else faster}{anew}"
    if rows[CAUSE].nunique() > 1 and rule in (CALLS, FIRST_CALLS):
        parts = _split_by_call(rows)
        return f"{largest_part(parts, [CALL, OP, SOURCE], of_ns=total_ns(rows))}. {FIRST_USES}"
    if rule is CALLS:
        parts = _split_by_call(rows)
        largest = largest_part(parts, [CALL, OP, SOURCE], of_ns=total_ns(rows))
        return f"{largest}. {on_call(rows, main_call(parts))}{one_off(rows, budget, len(run.ranks))}"
    others = ["foreach or fused variants"] if program.is_pytorch else ["larger kernels"]
    compiled = int(ints(rows, C.DUR_NS)[rows[COMPILED].to_numpy(bool)].sum()) / total_ns(rows)
    launch_less = program.launch_less(*others, compiled=compiled, replays=replays_graphs(run))
    if rule is LAUNCHES:
        advice = f"{divide_launches(rows, budget)}{on_launches(run, rows, budget, launch_less)}"
    else:
        advice = _ADVICE[rule.code].format(launch_less=launch_less, system_trace=program.system_trace)
    return f"{largest_part(rows)}. {advice}{hint(rows)}"
