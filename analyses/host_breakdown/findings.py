"""Rules of `host_breakdown`.

Those on parts of the host's time are for runs without device work: the idle time of devices has causes of its
own. Those on the program itself are for all runs.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from math import ceil
from typing import Any

import numpy as np
import pandas as pd

from tracekit.analysis import Basis, Bottleneck, Finding, Rule, Severity
from tracekit.analysis.host_verdict import (
    IDLE_LOOP,
    LOCK_THRESHOLDS,
    MAX_SAMPLED_SHARE,
    MIN_SAMPLED,
    NOT_RECORDED,
    HostPart,
    describe_line,
    find_lock_holder,
    find_main_function,
    name_more_work,
    starts_workers,
    waits_in_event_loop,
)
from tracekit.analysis.kernel_names import brief
from tracekit.analysis.savings import CONFIDENT, HIGH_SHARE, MIN_SHARE, WARN_SHARE, Budget, budget
from tracekit.runs import intervals
from tracekit.runs.conditions import find_free_share, is_disturbed
from tracekit.runs.environment import program_settings
from tracekit.runs.intervals import Ints
from tracekit.runs.range_names import COLLECTION
from tracekit.runs.run import Run, busy
from tracekit.runs.step_times import StepTime
from tracekit.runs.text import human
from tracekit.schema import C, HostKind

from ..shared.common import contains, ints, spans
from ..shared.host_columns import HostColumns
from ..shared.programs import COLLECT_LESS, keep_workers, program_of
from .states import bound_waits, count_iterations, find_blocked, find_recurring_share, select_rare, sum_part

PART, TIME_NS, TOTAL_NS, SOURCE = "part", "time_ns", "total_ns", "source"
SAMPLES, SAMPLED_STEPS = "samples", "sampled_steps"
LOADS = Rule(
    "host_loading",
    states="a run without device work loads data for at least {min_share} of its steps, also without the one "
    "with most of it",
    why="less is hidden by one worker, which loads while the step runs",
    bound=Bottleneck.INPUT,
    thresholds={"min_share": HIGH_SHARE},
)
OUTSIDE = Rule(
    "host_outside_ops",
    states="a run without device work is outside of all recorded rows for at least {min_share} of its steps",
    why="Python between ops takes up to some 10% of steps of a few ms; {min_share} is other work",
    bound=Bottleneck.HOST,
    thresholds={"min_share": 0.3},
)
COLLECTS = Rule(
    "host_garbage_collection",
    states="a run without device work collects Python's garbage for at least {min_share} of its steps",
    why="new objects are collected in some 1%; more are many new objects, or many old ones looked at again",
    bound=Bottleneck.HOST,
    thresholds={"min_share": WARN_SHARE},
)
COMPILES = Rule(
    "host_compilation",
    states="a run without device work compiles in at least {min_steps} of its steps, for {min_share} of them",
    why="what is compiled once, or in the first step only, does not recur",
    bound=Bottleneck.START_UP,
    thresholds={"min_share": HIGH_SHARE, "min_steps": 3},
)
LATE = Rule(
    "host_straggler",
    states="ranks without device work communicate longer than the one that does least, by {min_share} of "
    "their steps",
    why="a collective ends when the last rank arrives; ranks with equal work wait equally",
    bound=Bottleneck.STRAGGLERS,
    thresholds={"min_share": HIGH_SHARE},
)
ANOMALIES = Rule(
    "anomaly_detection",
    states="at least {min_node_share} of the nodes of backward look for NaN in what they return",
    why="`torch.autograd.set_detect_anomaly(True)` lets every node do so; nothing else does",
    thresholds={"min_node_share": 0.5},
)
THREADS = Rule(
    "more_threads_than_cores",
    states="torch uses more intra-op threads than the process may use cores, by affinity and control groups",
    why="an op ends with its last thread, which waits for one that shares its core",
)
RESTARTS = Rule(
    "workers_restarted",
    states="a data loader has workers that end with each epoch, and of the unprofiled steps of at least "
    "{min_epochs} epochs the slowest, one per epoch and whole epochs apart, take {min_share} of the time "
    "more than the median",
    why="starting a process, and importing torch in it, takes seconds on some machines",
    bound=Bottleneck.INPUT,
    thresholds={"min_share": HIGH_SHARE, "min_epochs": 2},
)
ITERATIONS = Rule(
    "steps_of_many_iterations",
    states="each profiled step holds at least {min_iterations} optimizer steps, each after a backward pass",
    why="a GAN or an actor with its critic takes a few; {min_iterations} are a loop over batches",
    thresholds={"min_iterations": 8},
)
LOCK = Rule(
    "interpreter_lock",
    states="for at least {min_share} of the time other Python threads run while that of the steps is "
    "blocked, and at samples the interpreter lock is waited for for {min_wait_ns} on average",
    why="threads that sleep or run C code without the lock let samples be taken at once; one in Python keeps "
    "it for 5 ms, or as long as a call in C lasts; {min_samples} samples of them are needed",
    bound=Bottleneck.HOST,
    thresholds=LOCK_THRESHOLDS,
)
SLOW = Rule(
    "slow_steps_by_function",
    states="at least {min_steps} unprofiled steps take {min_share} of their time above their median, and a "
    "function of the program is in half as many of the samples of such steps, and in fewer than half as many "
    "of those of profiled steps, at least {min_samples}; with fewer of them the times must recur. Where they "
    "recur, it may also be in samples of as few profiled steps as are slow",
    why="saving, logging or evaluation in every nth step is in no profiled one, or in few of them",
    bound=Bottleneck.HOST,
    thresholds={"min_share": 0.25, "min_steps": 20, "min_samples": MIN_SAMPLED},
)
RULES = (*(LOADS, OUTSIDE, COLLECTS, COMPILES, LATE, ANOMALIES, THREADS), RESTARTS, ITERATIONS, LOCK, SLOW)
MIN_RANKS = 2


def findings(run: Run, tables: dict[str, pd.DataFrame], host: HostColumns) -> Iterator[Finding]:
    """Findings on the program and, without device work, on the parts of its time."""
    yield from _judge_program(run, host, tables.get("by_function"))
    if "whole" not in tables:  # no window has a length, as where the clock was set back
        return
    against, whole, names = budget(run), tables["whole"], tables["by_name"]
    locked = _report_lock(run, tables.get("other_threads"), against)
    if locked:
        yield locked
    if not busy(run, [C.DUR_NS]).empty:
        return
    times = {part: sum_part(whole, part) for part in HostPart}
    window_ns = sum(times.values())
    if not window_ns:
        return
    recurring = find_recurring_share(tables, HostPart.LOADING)
    if min(recurring, times[HostPart.LOADING] / window_ns) >= LOADS["min_share"]:
        rows = names[names[PART] == HostPart.LOADING]
        at_most_ns = min(bound_waits(tables), int(recurring * window_ns))
        yield _report_loading(run, rows, times[HostPart.LOADING], window_ns, against, at_most_ns)
    is_named = locked and 2 * (locked.saving_ns_per_step or 0) > against.per_step(times[HostPart.OUTSIDE])
    if times[HostPart.OUTSIDE] >= OUTSIDE["min_share"] * window_ns and not is_named:
        rows = names[names[PART] == HostPart.OUTSIDE]
        yield _report_outside(run, rows, times[HostPart.OUTSIDE], find_blocked(tables, times), against)
    if (collecting_ns := times[HostPart.GARBAGE_COLLECTION]) >= COLLECTS["min_share"] * window_ns:
        start, end = host.spans(np.flatnonzero(host.name_matches(f"^{COLLECTION}")))
        yield against.finding(
            COLLECTS,
            max(0, collecting_ns - int((end - start).max())) or None,
            f"Garbage collection takes {against.describe(collecting_ns)}",
            COLLECT_LESS,
            "upper bound: all collections in the profiled steps but the longest, which may be the only one",
            basis=Basis.MEASURED,
        )
    compiling = ints(tables["per_step"], "compilation_ns") if "per_step" in tables else np.zeros(0, np.int64)
    recurs = int((compiling > 0).sum()) >= COMPILES["min_steps"]
    if recurs and times[HostPart.COMPILATION] >= COMPILES["min_share"] * window_ns:
        yield _report_compilation(run, compiling, times[HostPart.COMPILATION], against)
    if late := _report_straggler(whole, names, window_ns, against):
        yield late


def _report_lock(run: Run, others: pd.DataFrame | None, against: Budget) -> Finding | None:
    """The finding on a thread that holds the interpreter lock, which costs a device at most idle time."""
    function, share = find_lock_holder(others, **LOCK.thresholds)
    if not function:
        return None
    total_ns = against.steps * against.step_ns
    work = busy(run, [C.RANK, C.START_NS, C.DUR_NS])
    worked = [intervals.length(intervals.union(*spans(rows))) for _, rows in work.groupby(C.RANK)]
    held_ns = min(int(share * total_ns), max(0, total_ns - sum(worked)))
    return against.finding(
        LOCK,
        held_ns,
        f"Another thread holds the interpreter lock for up to {against.describe(held_ns)}",
        f"It runs {brief(function)}, and the thread of the steps waits: one thread at a time runs Python. Do "
        "that in another process (`multiprocessing`, workers of a data loader), less often, or in calls that "
        "release the lock, as most of NumPy and torch do",
        "upper bound: the time for which other threads ran while that of the steps was blocked, by samples",
        confidence=LIKELY,
    )


def _report_loading(
    run: Run, names: pd.DataFrame, time_ns: int, window_ns: int, against: Budget, blocked_ns: int
) -> Finding:
    """The finding on data loading: in the process itself, waiting for workers, or receiving from them.

    `names` are the rows of that part in the table `by_name`; for `blocked_ns` of it the threads may be
    blocked.
    """
    waits = contains(names[C.NAME], "_MultiProcessing").any()
    function, _ = find_main_function(names, time_ns)
    place = f"Most of it is in {brief(function)}{describe_line(names, function)}. " if function else ""
    wanted_ns, how = (blocked_ns, _MAY_WAIT) if waits else (min(time_ns, window_ns - time_ns), _BESIDE_STEP)
    saving = min(wanted_ns, round((free := find_free_share(run.meta.cpu_loads)) * window_ns))
    advice = _WAIT_FOR_WORKERS.format(keep=keep_workers(run)) if waits else _LOAD_IN_WORKERS
    if waits and 2 * blocked_ns < time_ns:
        advice = _RECEIVE.format(rest=human(against.per_step(time_ns - blocked_ns), "ns"), per=against.per)
    elif free < MIN_SHARE:
        advice = _NO_CORES
    disturbed = is_disturbed(run.meta.cpu_loads)
    if disturbed and waits:
        place = f"Other programs took the cores of the workers too: record again on a quiet machine. {place}"
    return against.finding(
        LOADS,
        (None if disturbed and waits else saving) or None,
        f"Data loading takes {against.describe(time_ns)}",
        place + advice,
        how if saving == wanted_ns else "upper bound: the time for which cores are free",
        confidence=LIKELY if disturbed else CONFIDENT,
    )


_MAY_WAIT = "upper bound: for how long the thread may be blocked"
_BESIDE_STEP = "what one worker loads while the rest of a step runs"
_NO_CORES = "No core is free for workers: make the dataset and the collate function cheaper, or add cores"
_WAIT_FOR_WORKERS = (
    "The process waits for its workers: use more of them, {keep}or make the dataset and the collate function "
    "cheaper"
)
_RECEIVE = (
    "For {rest} {per} or more the thread is not blocked, so it does not wait for its workers: it receives "
    "what they send, or waits for a core. Let them return fewer and smaller tensors instead of lists, and "
    "use as many threads and workers as there are cores"
)
_LOAD_IN_WORKERS = (
    "The process loads by itself: load in workers (`DataLoader(num_workers=..., persistent_workers=True)`), "
    "and stack arrays (`np.stack`, `torch.from_numpy`) instead of nested lists"
)


def _report_outside(
    run: Run, names: pd.DataFrame, time_ns: int, states: tuple[int, int], against: Budget
) -> Finding:
    """The finding on time outside of ops, with the function that most of it is in.

    `names` are the rows of that part in the table `by_name`; `states` says for how long of it the threads are
    blocked at least, and wait for a core.
    """
    function, saving_ns = find_main_function(names, time_ns)
    blocked_ns, delay_ns = states
    saving_ns = min(saving_ns, time_ns - delay_ns)
    unmeasured = "" if program_settings(run.meta.environment) else "garbage collection, "
    is_python = program_of(run).is_pytorch
    move = _MOVE.format(what=f"{_PYTHON}{unmeasured}" if is_python else "computation, ")
    if 2 * blocked_ns > time_ns:
        move = _WAIT.format(blocked=human(against.per_step(blocked_ns), "ns"), per=against.per)
    saving, advice = saving_ns or None, _FUSE if function.startswith("Optimizer.") else move
    place = f"Most of it is in {brief(function)}{describe_line(names, function)}"
    if starts_workers(names, time_ns):
        place += ", which starts workers of a data loader"
        advice = _KEEP
    if waits_in_event_loop(names, time_ns):
        saving, place, advice = None, f"Most of it is {IDLE_LOOP}", _IDLE
    elif not function and names[SAMPLES].notna().any():
        largest = zip(names[C.NAME].head(MAX_NAMED), names[TIME_NS].head(MAX_NAMED), strict=True)
        shares = [f"{brief(str(name))} {human(against.share(time), 'share')}" for name, time in largest]
        saving, place = None, f"No function has most of it: {', '.join(shares)} ({_CALLERS})"
    elif function in ("", NOT_RECORDED):
        saving, place = None, f"To see the functions, {program_of(run).stacks}"
    if 2 * delay_ns > time_ns:
        delayed = human(against.per_step(delay_ns), "ns")
        saving, advice = None, _DELAYED.format(delayed=delayed, per=against.per)
    return against.finding(
        OUTSIDE,
        saving,
        f"Code outside ops takes {against.describe(time_ns)}",
        f"{place}. {advice}",
        "upper bound: the time of that function outside of ops",
        confidence=LIKELY,
    )


_CALLERS = "`call_tree.samples` shows what calls them"
_IDLE = "It waits for timers (`asyncio.sleep`, time-outs), requests or I/O: shorten delays, or ask for more"
_KEEP = (
    "Keep them between epochs (`DataLoader(..., persistent_workers=True)`), or use fewer: each starts a "
    "process, and gets the dataset"
)
_PYTHON = "Python (loops, conversions, tokenizing), "
_MOVE = (
    "It is {what}reading of files, or waiting: do it once for a batch or before the loop, or in another "
    "process"
)
_WAIT = (
    "For at least {blocked} {per} the thread is blocked: it sleeps, or waits for a file, a socket, a lock or "
    "other threads. Do that beside the steps: in another thread or process, or ahead of time"
)
_DELAYED = (
    "For {delayed} {per} the thread is ready and waits for a core, which other threads or programs use: "
    "record again on a quiet machine, or use fewer threads and workers"
)
_FUSE = "It is the optimizer's loop over parameters: use `foreach=True` or `fused=True`"


def _report_compilation(run: Run, compiling: Ints, time_ns: int, against: Budget) -> Finding:
    program = program_settings(run.meta.environment)
    recompiled = max(
        program.get("recompilations") or [], key=lambda item: int(item["recompilations"]), default=None
    )
    why = (
        "A guard fails (`TORCH_LOGS=recompiles` names it), or `torch.compile` is called for a new function. "
    )
    if recompiled:
        count = int(recompiled["recompilations"])
        why = f"{recompiled['function']} was compiled again {'once' if count == 1 else f'{count} times'}" + (
            ", up to the limit of recompilations: from then on it runs uncompiled"
        ) * bool(recompiled.get("limit_reached"))
        why += f". The guard that failed last: `{recompiled['guard']}`. "
    return against.finding(
        COMPILES,
        time_ns - int(compiling.max()),
        f"Compilation takes {against.describe(time_ns)}, in "
        f"{int((compiling > 0).sum())} of {len(compiling)} steps",
        why + "Mark dimensions that vary with `torch._dynamo.mark_dynamic`, and keep values that change each "
        "step out of compiled functions",
        "the compilation in all steps but the one with most of it",
        basis=Basis.MEASURED,
    )


def _report_straggler(
    whole: pd.DataFrame, names: pd.DataFrame, window_ns: int, against: Budget
) -> Finding | None:
    """The finding on a rank that the others wait for in communication, None if they wait alike."""
    rows = whole[whole[PART] == HostPart.COMMUNICATION]
    waits = dict.fromkeys(whole[C.RANK].tolist(), 0)
    waits |= dict(zip(rows[C.RANK].tolist(), rows[TIME_NS].tolist(), strict=True))
    saving = sum(waits.values()) - len(waits) * min(waits.values())
    if len(waits) < MIN_RANKS or saving < LATE["min_share"] * window_ns:
        return None
    late, waiting = min(waits, key=waits.__getitem__), max(waits, key=waits.__getitem__)
    work = name_more_work(whole, names, late)
    largest = f", most in {brief(work)}" * bool(work)
    per_step = [human(against.per_step(waits[rank] * len(waits)), "ns") for rank in (waiting, late)]
    return against.finding(
        LATE,
        saving,
        f"Rank {late} is waited for: rank {waiting} communicates for {per_step[0]} {against.per}, "
        f"rank {late} for {per_step[1]}",
        f"Rank {late} runs other work meanwhile{largest}: give the ranks equal work, or make that faster",
        "what the ranks communicate longer than the one that does least, if its work were spread evenly",
        confidence=LIKELY,
    )


MAX_NAMED = 3
LIKELY = 0.7
"""Confidence that the time of a function outside ops can be saved: it may be needed."""


def _judge_program(run: Run, host: HostColumns, functions: pd.DataFrame | None) -> Iterator[Finding]:
    """Findings on switches, threads and steps of the program."""
    against = budget(run)
    if anomalies := _report_anomaly_detection(host, functions, against):
        yield anomalies
    program = program_settings(run.meta.environment)
    threads = program.get("threads") or {}
    limits = {name: threads[name] for name in ("affinity", "cgroup_limit") if threads.get(name)}
    cores = ceil(min(limits.values(), default=0))
    if limits and (used := threads.get("intra_op") or 0) > cores:
        yield against.finding(
            THREADS,
            None,
            f"torch uses {used} intra-op threads on {cores} core{'s' * (cores != 1)}",
            f"Set `torch.set_num_threads({cores})` or OMP_NUM_THREADS={cores}, or allow more cores",
        )
    yield from (restarts := list(_report_restarts(run, program.get("data_loaders") or [], against)))
    if functions is not None and not restarts and (slow := _report_slow_steps(run, functions, against)):
        yield slow
    least = int(count_iterations(run, host).min(initial=1 << 31)) if against.marked else 0
    if ITERATIONS["min_iterations"] <= least < 1 << 31:
        finding = against.finding(
            ITERATIONS,
            None,
            f"A profiled step of {human(against.step_ns, 'ns')} holds {least} optimizer steps or more: it is "
            "not one iteration",
            f"Times per step are those of {least} iterations of {human(against.step_ns // least, 'ns')} or "
            "less: call `step()` of the profiler, or `tracekit.step()`, after each batch",
        )
        yield replace(finding, severity=Severity.WARN)  # it costs nothing, but all times per step mislead


def _report_restarts(run: Run, loaders: list[dict[str, Any]], against: Budget) -> Iterator[Finding]:
    """The finding on workers that start anew each epoch, by the unprofiled steps after the profile."""
    timings = run.meta.timings
    times = np.array(timings.step_ns[-timings.later :] if timings and timings.later else [], np.int64)
    for loader in loaders:
        samples, size = loader.get("samples"), loader.get("batch_size")
        if not loader.get("num_workers") or loader.get("persistent_workers") or not samples or not size:
            continue
        batches = ceil(samples / size)
        epochs = len(times) // batches
        slow = np.sort(np.argsort(-times, kind="stable")[:epochs])
        if epochs < RESTARTS["min_epochs"] or (np.diff(slow) % batches).any():
            continue
        usual, first = int(np.median(times)), int(np.median(times[slow]))
        excess = int((times[slow] - usual).sum())
        if excess < RESTARTS["min_share"] * int(times.sum()):
            continue
        yield against.finding(
            RESTARTS,
            excess * against.steps // len(times),
            f"Workers of a data loader start anew every {batches} steps: {human(first, 'ns')}, else "
            f"{human(usual, 'ns')}",
            f"Keep the workers of `{loader.get('dataset')}`: `DataLoader(..., persistent_workers=True)`",
            "what the slowest step of each epoch takes above the median, over all unprofiled steps",
            basis=Basis.MEASURED,
        )


def _report_slow_steps(run: Run, functions: pd.DataFrame, against: Budget) -> Finding | None:
    """The finding on a function that makes some unprofiled steps far longer than most."""
    timings = run.meta.timings
    times = np.array(timings.step_ns if timings else [], np.int64)
    if len(times) < SLOW["min_steps"] or not against.marked:
        return None
    excess = np.maximum(times - int(np.median(times)), 0)
    share = int(excess.sum()) / max(int(times.sum()), 1)
    period = StepTime.of(times.tolist(), later=timings.later if timings else 0).period
    chosen = select_rare(functions, SLOW["min_samples"], against.steps, period)
    chosen = chosen[chosen["unprofiled_share"].between(share / 2, MAX_SAMPLED_SHARE, inclusive="left")]
    if share < SLOW["min_share"] or not len(chosen):
        return None
    row = chosen.iloc[int((chosen["unprofiled_share"] - share).abs().argmin())]
    function, taken = brief(str(row[C.NAME])), float(row["unprofiled_share"])
    every = f"Every {period} steps one takes" if period else "Some steps take"
    return against.finding(
        SLOW,
        None
        if is_disturbed(run.meta.cpu_loads)
        else int(min(share, taken) * against.steps * against.step_ns),
        f"{every} far longer: up to {human(int(times.max()), 'ns')}, where most take "
        f"{human(int(np.median(times)), 'ns')}",
        f"{human(taken, 'share')} of the samples of unprofiled steps are in {function}: call it less often, "
        "for a part of the data, or beside the steps in another process",
        "upper bound: its samples, or the time of unprofiled steps above their median",
        confidence=LIKELY,
    )


_STACK_TRACES = r"traceback\.py\(\d+\): (?:format_stack|extract_stack|format_list)$"
_CHECKS = r"^aten::(isnan|_is_any_true|item)$"  # what a node of backward runs to look for NaN


def _report_anomaly_detection(
    host: HostColumns, functions: pd.DataFrame | None, against: Budget
) -> Finding | None:
    """The finding on checks for NaN in the nodes of backward, None without them.

    In forward each op keeps a stack trace, which no row shows, but samples do.
    """
    is_op = host.of_kind(HostKind.OP)
    is_node = is_op & host.name_matches(r"^autograd::engine::evaluate_function: (?!.*AccumulateGrad)")
    inside = np.flatnonzero(is_op & (host.parent >= 0) & host.name_matches(_CHECKS))
    checks = inside[is_node[host.parent[inside]]]
    is_first = host.name[checks].is_any_of("aten::isnan")
    checking = np.unique(host.parent[checks[is_first]])
    if not len(checking) or len(checking) < ANOMALIES["min_node_share"] * int(is_node.sum()):
        return None
    start, end = host.spans(checks)
    traced_ns = 0
    if functions is not None and (traces := contains(functions[C.NAME], _STACK_TRACES)).any():
        traced_ns = int(functions["share"][traces].max() * against.steps * against.step_ns)
    return against.finding(
        ANOMALIES,
        int((end - start).sum()) + traced_ns,
        f"Anomaly detection is on: {len(checking):,} nodes of backward look for NaN",
        "Remove `torch.autograd.set_detect_anomaly(True)` or `detect_anomaly()`, which are for debugging",
        "the checks in backward; and, as samples say, the stack traces of the ops in forward",
        basis=Basis.ESTIMATED if traced_ns else Basis.MEASURED,
    )
