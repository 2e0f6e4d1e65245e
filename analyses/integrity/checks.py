"""Checks of a run: device rows against host rows, times, the profiler's cost, and who used the CPU."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass

import numpy as np
import pandas as pd

from tracekit.analysis import trace_quality
from tracekit.analysis.kernel_names import matches
from tracekit.runs import intervals
from tracekit.runs.conditions import describe_load, find_contention
from tracekit.runs.intervals import Ints, Union
from tracekit.runs.run import Run, busy
from tracekit.runs.step_windows import backlog
from tracekit.schema import C, DeviceKind, HostKind, Memory

from ..idle_gaps.causes import missing_kernels_ns
from ..shared.common import (
    GRAPH_CALL,
    NO_PARENT,
    NOT_RECORDED,
    Bools,
    extent,
    ids_or_absent,
    ints,
    is_kind,
    is_launch,
    positions,
    spans,
)
from ..shared.groups import group_rows
from ..shared.intervals_by_class import find_overruns
from ..steps import measure_steps, overhead

OK, INFO, WARN, ERROR = "ok", "info", "warn", "error"


@dataclass(frozen=True)
class Check:
    """Result of one check; `detail` names what `share` refers to."""

    check: str
    level: str
    count: int | None = None
    share: float | None = None
    detail: str = ""


LIMITS: dict[str, tuple[float, float | None]] = {
    "device_without_launch": (0.05, None),
    "launched_before_capture": (1.0, None),
    "launch_without_device": (0.01, 0.2),
    "graph_without_device": (0.0, 0.1),
    "launched_past_end": (0.01, None),
    "graph_kernels_missing": (0.1, None),
    "copy_without_device": (1.0, None),
    "device_before_launch": (0.01, None),
    "zero_duration": (0.1, None),
    "kernel_overruns": (0.0, None),
    "empty_steps": (0.0, None),
    "negative_duration": (0.0, None),
    "step_outlives_events": (0.0, None),
    "profiler_intervals": (0.05, 0.5),
    "profiler_overhead": (0.2, 1.0),
}
"""Share above which a check warns, and above which it is an error."""


def check_share(name: str, count: int, total: int, text: str) -> Check:
    """Return a check with a level by a share.

    The text says what is counted and, after a semicolon, the consequence.

    Example:
        >>> check_share("zero_duration", 3, 10, "device intervals have no duration").level
        'warn'
    """
    plain = text.split(";")[0]  # the consequence applies only to a count above 0
    if not total:
        return Check(name, OK, 0, None, f"0 of 0 {plain}")
    detail = f"{count:,} of {total:,} {text if count else plain}"
    return Check(name, level_of(name, count / total), count, count / total, detail)


def level_of(name: str, share: float) -> str:
    """Level of a share; above 0 it is at least information."""
    warn, error = LIMITS[name]
    if error is not None and share > error:
        return ERROR
    if share > warn:
        return WARN
    return INFO if share > 0 else OK


def limits_of(name: str) -> str:
    """Return the limits of a check, as in `5% / 20%`."""
    warn, error = LIMITS[name]
    return " / ".join(f"{limit:.0%}" if limit else "any" for limit in (warn, error) if limit is not None)


MAX_SILENT_END = 0.01
"""Part of the capture after the last work of a device, below which more work was queued at its end."""

_GRAPH, _KERNEL, _COPY, _PAST = "graph", "kernel", "copy", "past end"


def device_checks(run: Run) -> list[Check]:
    """Checks of device rows against the host rows that launched them."""
    columns = [C.START_NS, C.DUR_NS, C.STEP, C.KIND, C.LAUNCH_ROW, C.SRC_MEMORY, C.CORRELATION_ID]
    device = busy(run, [*columns, C.RANK, C.DEVICE, C.GRAPH_ID])
    calls = _launch_calls(run)
    if device.empty:
        return [_check_no_device(run, int((~calls["captured"]).sum()))]
    call = positions(calls[C.ROW_ID], device[C.LAUNCH_ROW])
    return [
        Check("device_events", OK, len(device), None, f"{len(device):,} device intervals were recorded"),
        *_check_unlinked(device),
        *_check_without_interval(run, calls, call, device),
        *_check_graph_kernels(run, calls, device),
        _check_before_launch(calls, call, device),
        _check_durations(device),
        _check_overruns(run, device),
        _check_empty_steps(run, device),
    ]


def _launch_calls(run: Run) -> pd.DataFrame:
    """Calls that launch device work, with the kind of work and whether they are captured into a graph."""
    calls = trace_quality.runtime_calls(run)
    names = calls[C.NAME]
    patterns = [matches(names, GRAPH_CALL), matches(names, r"(?i)launch")]
    calls_of, codes = pd.Index([_GRAPH, _KERNEL, _COPY, _PAST]), np.select(patterns, [0, 1], 2)
    kinds = pd.Categorical.from_codes(codes.astype(np.int8), calls_of)
    return calls.assign(call=kinds)[is_launch(names)].reset_index(drop=True)


def _check_no_device(run: Run, launches: int) -> Check:
    gpus = len(run.meta.environment.get("gpus") or [])
    machine = f"the machine has {gpus} GPU{'s' * (gpus != 1)}"
    level, detail = OK, "no GPU and no launch: a CPU-only run"
    if on_gpu := _find_op_of_gpu(run):
        level, detail = ERROR, f"{on_gpu} runs on a GPU only, and no activity of a GPU was recorded"
    elif launches:
        level, detail = ERROR, f"{launches:,} launches: {NOT_RECORDED}"
    elif gpus and (run.meta.workload or {}).get("device") == "cpu":
        detail = f"a run on the CPU: {machine}, and nothing was launched"
    elif gpus:
        them = "them" if gpus > 1 else "it"
        not_used = "the program did not use a GPU, or its activity was not recorded"
        level, detail = ERROR, f"{machine} and nothing was recorded on {them}: {not_used}"
    return Check("device_events", level, 0, None, detail)


def _find_op_of_gpu(run: Run) -> str:
    """Return an op of the run that exists for GPUs only; empty without one."""
    ops = run.table("host_intervals", columns=[C.NAME], where=is_kind(HostKind.OP))[C.NAME]
    return min(map(str, ops[matches(ops, _OF_GPU)].unique()), default="")


_OF_GPU = (
    r"^aten::_?(?:cudnn(?!_is_acceptable)|miopen|cuda)_|^\[?(?:MEMCPY|MEMSET|KERNEL|CUDA|GPU)\]|"
    r"^(?:cuda|hip)[A-Z]|^nccl\w*Kernel|^cu(?:Launch|Mem|Stream|Event|Ctx)[A-Z]|"
    r"(?i:memcpy)\W*(?:HtoD|DtoH|H2D|D2H)|^void .*(?i:kernel)"
)
"""Ops of a GPU, and what tracers that imitate torch.profiler write as ops: calls, copies and kernels."""


def _check_unlinked(device: pd.DataFrame) -> list[Check]:
    by_driver = (device[C.SRC_MEMORY] == Memory.UNIFIED) & device[C.CORRELATION_ID].isna()
    launched = device[~by_driver]
    earlier = len(backlog(launched))
    missing = int(launched[C.LAUNCH_ROW].isna().sum()) - earlier
    what = "device intervals have no launching call; their time can't be attributed to ops"
    before = "device intervals were launched before the capture; they belong to no step"
    return [
        check_share("device_without_launch", missing, len(launched), what),
        check_share("launched_before_capture", earlier, len(launched), before),
    ]


def _check_without_interval(run: Run, calls: pd.DataFrame, call: Ints, device: pd.DataFrame) -> list[Check]:
    is_linked = device[C.LAUNCH_ROW].notna()
    calls = calls.assign(missing=~np.isin(np.arange(len(calls)), call))
    calls = calls[~calls["captured"]].reset_index(drop=True)
    missing = calls["missing"]
    past_end = missing & _is_past_end(run, calls, missing, device)
    lost = calls.assign(call=calls["call"].where(~past_end, _PAST))[missing]
    counts = _count_lost(lost, device[~is_linked])
    checks = [check_share("launched_past_end", counts[_PAST], len(calls), _PAST_END)]
    for name, kind, text in _WITHOUT_INTERVAL:
        total = int((calls["call"] == kind).sum())
        if total and not is_linked.any():
            checks.append(Check(name, INFO, detail=f"{total:,} {kind} calls: {_UNKNOWN}"))
        else:
            checks.append(check_share(name, counts[kind], total, text))
    return checks


def _count_lost(calls: pd.DataFrame, unlinked: pd.DataFrame) -> Counter[str]:
    """Count calls by kind whose device work is not in the file, of the calls without linked work.

    Work without an id may be that of any call of its rank, and calls without an id may have launched any
    work: copies that of calls for copies, graph nodes that of replays, and then what is left that of others.
    """
    lost: Counter[str] = Counter()
    for rank, of_rank in calls.groupby(C.RANK):
        rows = unlinked[(unlinked[C.RANK] == rank) & (unlinked[C.SRC_MEMORY] != Memory.UNIFIED)]
        with_id = ~_lacks_id(rows)
        no_one = _lacks_id(of_rank) | of_rank.duplicated(C.CORRELATION_ID, keep=False)
        spare = min(int(with_id.sum()), int(no_one.sum()))  # may be work of calls without an id of their own
        rows = rows[~with_id]
        is_copy = rows[C.KIND].isin([str(DeviceKind.MEMCPY), str(DeviceKind.MEMSET)])
        is_node = rows[C.GRAPH_ID].notna()
        counts = Counter(of_rank["call"])
        if is_node.any():  # a replay launches many nodes, so that one is enough
            del counts[_GRAPH]
        copies = int((is_copy & ~is_node).sum())
        spare += int((~is_copy & ~is_node).sum()) + max(0, copies - counts[_COPY])
        counts[_COPY] = max(0, counts[_COPY] - copies)
        for call in (_GRAPH, _KERNEL, _COPY, _PAST):
            covered = min(spare, counts[call])
            spare -= covered
            counts[call] -= covered
        lost += counts
    return lost


_NO_ID = 2**32 - 1  # CUPTI's correlation id of no call, beside 0


def _lacks_id(rows: pd.DataFrame) -> pd.Series:
    ids = rows[C.CORRELATION_ID].fillna(0)
    return (ids <= 0) | (ids == _NO_ID)


_UNKNOWN = "unknown how many have a device interval, since no launch is linked to one"


def _is_past_end(run: Run, calls: pd.DataFrame, missing: pd.Series, device: pd.DataFrame) -> Bools:
    """Whether each launch comes after the last one with device work, and its device was busy to the end."""
    last = calls[C.RANK].map(calls[C.START_NS][~missing].groupby(calls[C.RANK]).max())
    is_after = (calls[C.START_NS] > last).fillna(value=False).to_numpy(bool) & (calls["call"] != _COPY)
    if not (is_after & missing).any():
        return np.zeros(len(calls), np.bool_)
    host = run.table("host_intervals", columns=[C.RANK, C.START_NS, C.DUR_NS])
    first, end = host[C.START_NS].groupby(host[C.RANK]).min(), _last_ends(host)
    silent = (end - _last_ends(device)) / (end - first).clip(lower=1)
    is_busy = calls[C.RANK].map(silent < MAX_SILENT_END).fillna(value=False)
    past: Bools = is_after & is_busy.to_numpy(bool)
    return past


def _last_ends(rows: pd.DataFrame, chosen: Bools | slice = slice(None)) -> pd.Series:
    """Last end of the chosen rows of each rank, first of neighbors of the same rank, which most are."""
    rank, end = rows[C.RANK].to_numpy()[chosen], spans(rows)[1][chosen]
    first = np.flatnonzero(np.append(True, rank[1:] != rank[:-1])[: len(rank)])
    return pd.Series(np.maximum.reduceat(end, first)).groupby(rank[first]).max()


_PAST_END = "launches come after the last one with device work; their work lies past the end of the capture"
_COPIES_LOST = "copy and memset calls have no device interval; calls of 0 bytes launch no device work"
_WITHOUT_INTERVAL = (
    ("launch_without_device", _KERNEL, "kernel launches have no device interval; that GPU time is missing"),
    ("graph_without_device", _GRAPH, "graph replays have no device interval; the kernels inside are missing"),
    ("copy_without_device", _COPY, _COPIES_LOST),
)


def _check_graph_kernels(run: Run, calls: pd.DataFrame, device: pd.DataFrame) -> list[Check]:
    """Whether time of replays that is idle by what was recorded is that of other kernels."""
    if not (calls["call"] == _GRAPH).any():
        return []
    missing_ns = missing_kernels_ns(run)
    start, end = spans(device)
    part = missing_ns / max(int(end.max() - start.min()), 1)
    detail = (
        f"{100 * part:.1f}% of the capture is idle time of the same length in each replay of a graph"
        f"{': other kernels of it were not recorded' * (part > 0)}"
    )
    return [Check("graph_kernels_missing", level_of("graph_kernels_missing", part), None, part, detail)]


def _check_before_launch(calls: pd.DataFrame, call: Ints, device: pd.DataFrame) -> Check:
    linked = call != NO_PARENT
    early = ints(device, C.START_NS)[linked] < ints(calls, C.START_NS)[call[linked]]
    text = "linked device intervals start before their launch; host and device clocks disagree"
    return check_share("device_before_launch", int(early.sum()), int(linked.sum()), text)


def _check_durations(device: pd.DataFrame) -> Check:
    empty = int((ints(device, C.DUR_NS) == 0).sum())
    what = "device intervals have no duration; shares of short kernels are inexact"
    return check_share("zero_duration", empty, len(device), what)


def _check_overruns(run: Run, device: pd.DataFrame) -> Check:
    kernels = (device[C.KIND] == str(DeviceKind.KERNEL)) & device[C.GRAPH_ID].isna()
    what = "kernels run over whole later work of their stream; sums of durations leave them out"
    return check_share("kernel_overruns", len(find_overruns(run)), int(kernels.sum()), what)


def _check_empty_steps(run: Run, device: pd.DataFrame) -> Check:
    steps = run.table("steps", columns=[C.RANK, C.STEP])
    first = group_rows(device, [C.RANK, C.STEP]).first
    ranks, numbers = ints(device, C.RANK)[first], ids_or_absent(device[C.STEP])[first]
    filled = set(zip(ranks.tolist(), numbers.tolist(), strict=True))
    recorded = zip(ints(steps, C.RANK).tolist(), ints(steps, C.STEP).tolist(), strict=True)
    empty = sum(step not in filled for step in recorded)
    return check_share("empty_steps", empty, len(steps), "steps launched no device work")


CONTENTION = "cpu_contention"
MAX_GAP_NS = 10_000_000_000
"""Time without any event from which a clock jump is assumed."""
MAX_FASTER = 0.1
"""Share by which profiled steps are shorter than others, which a profiler cannot make them."""
MAX_SILENT_SHARE, MAX_SILENT_NS = 0.5, 1_000_000_000
"""Part of a step after the last event, and its length, from which the step outlives its events."""

PROFILER_PATTERN = r"(?i)activity buffer request|buffer flush|instrumentation|cupti|resource"
"""Overhead rows of the profiler; others, such as lazy loading, belong to the program."""


def time_checks(run: Run) -> list[Check]:
    """Checks of the times of all rows."""
    host = run.table("host_intervals", columns=[C.START_NS, C.DUR_NS])
    device = busy(run, [C.START_NS, C.DUR_NS])
    tables = [rows for rows in (host, device) if len(rows)]
    unions = intervals.union(*spans(host)), intervals.union(*spans(device))
    covered = intervals.union(*(np.concatenate(both) for both in zip(*unions, strict=True)))
    negative = sum(int((ints(rows, C.DUR_NS) < 0).sum()) for rows in tables)
    extents = np.array([extent(rows) for rows in tables], np.int64).reshape(-1, 2)
    capture_ns = int(extents[:, 1].max() - extents[:, 0].min()) if tables else 0
    what = "intervals have a negative duration"
    return [
        check_share("negative_duration", negative, len(host) + len(device), what),
        _check_jumps(covered),
        _check_profiler_intervals(run, capture_ns),
        check_overhead(run),
    ]


def _check_jumps(covered: Union) -> Check:
    holes = covered[0][1:] - covered[1][:-1]
    long = holes[holes > MAX_GAP_NS]
    if not len(long):
        return Check(
            "clock_jump", OK, 0, None, f"no gap of more than {MAX_GAP_NS // 10**9} s without any event"
        )
    longest = int(long.max()) / 1e9
    detail = f"gaps without any event, the longest {longest:.1f} s: a clock jump or a suspended process"
    return Check("clock_jump", WARN, len(long), None, detail)


def _check_profiler_intervals(run: Run, capture: int) -> Check:
    where = is_kind(HostKind.OVERHEAD)
    rows = run.table("host_intervals", columns=[C.NAME, C.START_NS, C.DUR_NS], where=where)
    rows = rows[matches(rows[C.NAME], PROFILER_PATTERN)]
    if rows.empty:
        return Check("profiler_intervals", INFO, detail="no profiler overhead intervals were recorded")
    overhead_ns = intervals.length(intervals.union(*spans(rows)))
    part = overhead_ns / capture if capture else 0.0
    detail = f"the profiler's overhead intervals cover {100 * part:.1f}% of the capture"
    return Check("profiler_intervals", level_of("profiler_intervals", part), None, part, detail)


def check_overhead(run: Run) -> Check:
    """Check how much longer profiled steps take than others."""
    table = overhead(run, measure_steps(run))
    if table.empty:
        unknown = "unknown: no profiled steps of known length, or no unprofiled steps"
        return Check("profiler_overhead", INFO, detail=unknown)
    part = float(table["overhead_share"].max())
    longer = "longer" if part >= 0 else "less"
    detail = f"a profiled step takes {100 * abs(part):.1f}% {longer} than an unprofiled one"
    level = level_of("profiler_overhead", max(part, 0.0))
    if part < -MAX_FASTER:
        level, detail = WARN, f"{detail}; those were disturbed, or do other work"
    return Check("profiler_overhead", level, None, part, detail)


def check_contention(run: Run) -> Check:
    """Check whether other programs, or limits, kept the program from the CPU around its timed steps."""
    loads = run.meta.cpu_loads
    if not loads:
        unknown = "unknown: the run does not say who used the CPU around its timed steps"
        return Check(CONTENTION, INFO, detail=unknown)
    contention = find_contention(loads)
    if contention is None:
        return Check(CONTENTION, OK, detail=describe_load(loads))
    return Check(
        CONTENTION, WARN if contention.is_external else INFO, None, contention.share, contention.message
    )


def evidence_checks(run: Run) -> list[Check]:
    """Whether the file holds a whole execution."""
    sampled, captured = map(run.compute_once, (trace_quality.describe_sample, trace_quality.describe_capture))
    is_whole, executed = "no sample by its correlation ids", "no capture of a graph"
    return [
        Check("sampled", ERROR if sampled else OK, detail=sampled or is_whole),
        Check("graph_capture", WARN if captured else OK, detail=captured or executed),
        _check_outliving(run),
    ]


def _check_outliving(run: Run) -> Check:
    """Whether steps last long after the last event in them."""
    steps = run.table("steps", columns=[C.RANK, C.START_NS, C.DUR_NS])
    columns = [C.RANK, C.START_NS, C.DUR_NS]
    host = run.table("host_intervals", columns=[*columns, C.KIND])
    ends = [_last_ends(host, host[C.KIND].array != HostKind.ANNOTATION), _last_ends(busy(run, columns))]
    last = steps[C.RANK].map(pd.concat(ends).groupby(level=0).max())
    end = steps[C.START_NS] + steps[C.DUR_NS]
    after = (end - last.fillna(steps[C.START_NS])).clip(lower=0)
    long = (after > MAX_SILENT_SHARE * steps[C.DUR_NS]) & (after > MAX_SILENT_NS)
    what = "steps last far longer than the events in them; the capture ended before, or the marker is wrong"
    return check_share("step_outlives_events", int(long.sum()), len(steps), what)
