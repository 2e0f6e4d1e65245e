"""What bounds a run without device work: the largest part of the time of the threads that drive its ranks.

The parts are those of `host_breakdown`. With one name of most of the part, it is named; where nothing is
recorded of most of it, the sentence says how to record it.

Example:
    >>> import pandas as pd
    >>> whole = pd.DataFrame({"part": ["loading", "ops"], "time_ns": [90, 10], "per_step_ns": [90, 10]})
    >>> by_name = pd.DataFrame({"part": ["loading"], "name": ["read"], "time_ns": [90], "total_ns": [90]})
    >>> describe_host(whole, by_name).sentence
    'Bound by input: loading data takes 90.0% of the profiled steps, mostly read; ops take 10.0%. \
No GPU work is recorded.'
"""

from __future__ import annotations

import re
from enum import StrEnum
from typing import TYPE_CHECKING

from tracekit.analysis.rules import Bottleneck
from tracekit.analysis.savings import HIGH_SHARE, MIN_EVENTS, MIN_SHARE, WARN_SHARE, Verdict, split_window
from tracekit.errors import clean
from tracekit.runs.text import human, shorten
from tracekit.schema import C

if TYPE_CHECKING:
    import pandas as pd

NOT_RECORDED = "(nothing recorded)"
"""Name of the time outside of all recorded rows."""
MAX_OPS = 3
NAME_WIDTH = 40
"""Most ops that are named, and the length to which names are shortened."""

RAN_SHARE, BLOCKED_SHARE = "ran_share", "blocked_share"
"""Columns of the table `other_threads` of `host_breakdown`."""
MIN_LOCK_WAIT_NS = 500_000
LOCK_THRESHOLDS = {"min_share": 0.1, "min_wait_ns": MIN_LOCK_WAIT_NS, "min_samples": 3}
"""From what share of the time another thread holds the interpreter lock, the mean wait, and samples of it."""


class HostPart(StrEnum):
    """A part of `host_breakdown`, which defines them; a moment belongs to the first that applies."""

    GARBAGE_COLLECTION = "garbage_collection"
    LOADING = "loading"
    COMPILATION = "compilation"
    START_UP = "start_up"
    PROFILER = "profiler"
    COMMUNICATION = "communication"
    WAITS = "waits"
    RUNTIME = "runtime"
    OPS = "ops"
    OTHER_THREADS = "other_threads"
    UNRECORDED_BACKWARD = "unrecorded_backward"
    OUTSIDE = "outside"


BOUNDS = {
    HostPart.GARBAGE_COLLECTION: Bottleneck.HOST,
    HostPart.LOADING: Bottleneck.INPUT,
    HostPart.COMPILATION: Bottleneck.START_UP,
    HostPart.START_UP: Bottleneck.START_UP,
    HostPart.PROFILER: Bottleneck.PROFILER,
    HostPart.COMMUNICATION: Bottleneck.COMMUNICATION,
    HostPart.WAITS: Bottleneck.SYNC,
    HostPart.RUNTIME: Bottleneck.LAUNCH,
    HostPart.OPS: Bottleneck.COMPUTE,
    HostPart.OTHER_THREADS: Bottleneck.COMPUTE,
    HostPart.UNRECORDED_BACKWARD: Bottleneck.UNKNOWN,
    HostPart.OUTSIDE: Bottleneck.HOST,
}
"""What bounds a run by each part."""
LIBRARY = r"^(?:<|torch/|site-packages/|python\d[\d.]*/|enumerate\(DataLoader\))"
"""Begin of the names of functions of Python and torch, and of the range around a data loader."""
_STARTS, _CALLS = (
    rf"^torch/utils/data/dataloader\.py\(\d+\): {name}$" for name in ("_get_iterator", "__(?:iter|next)__")
)
"""The function of torch that starts the workers of a data loader, and those that a program calls."""
_EVENT_LOOP, _SELECT = (
    rf"(?:^|/){name}$"
    for name in (r"asyncio/base_events\.py\(\d+\): _run_once", r"selectors\.py\(\d+\): select")
)
"""The function in which a loop of asyncio runs what is ready, and the one in which it waits."""
_RUNS_OPS = r"^torch/(?:nn|optim|autograd|linalg|fft|special|sparse|distributions|_\w+\.py|functional\.py)"
"""Begin of the names of functions of torch that do little but run ops; others load, save or compile."""
MIN_SAMPLED, MIN_SAMPLED_SHARE, MAX_SAMPLED_SHARE = 5, 0.25, 0.9
"""Samples of a function, and their share, from which it is named beside ops; one in more is the loop."""
_SUBJECTS = {
    Bottleneck.COMPUTE: "ops on the CPU",
    Bottleneck.HOST: "host work outside ops",
}
_SUBJECTS_OF_TIME = {
    Bottleneck.INPUT: "loading data takes",
    Bottleneck.START_UP: "it takes",
    Bottleneck.PROFILER: "it takes",
    Bottleneck.COMMUNICATION: "it takes",
    Bottleneck.SYNC: "waiting for a device takes",
    Bottleneck.LAUNCH: "calls of the runtime take",
    Bottleneck.COMPUTE: "they take",
    Bottleneck.HOST: "it takes",
}

_CANNOT_TELL = "Cannot tell what bounds this run"
_WAITS_FOR_AUTOGRAD = "backward, which waits for autograd's thread, of which nothing is recorded, takes"


def describe_host(
    whole: pd.DataFrame,
    by_name: pd.DataFrame,
    loops: pd.DataFrame | None = None,
    functions: pd.DataFrame | None = None,
    others: pd.DataFrame | None = None,
    states: pd.DataFrame | None = None,
    rates: pd.DataFrame | None = None,
) -> Verdict | None:
    """Return the verdict on the driving threads; None if their window has no length.

    The tables are those of `host_breakdown`, and `host` of `roofline`, which may be missing.
    """
    lengths: dict[tuple[Bottleneck, str], int] = {}
    times = dict.fromkeys(BOUNDS.values(), 0)
    for part, time in whole.groupby("part", sort=False)["time_ns"].sum().items():
        bound = BOUNDS[HostPart(str(part))]
        lengths[bound, str(part).replace("_", " ")] = int(time)
        times[bound] += int(time)
    total = sum(times.values())
    if not total:
        return None
    bound = max(times, key=lambda other: times[other])
    window = "the capture" if whole["per_step_ns"].isna().all() else "the profiled steps"
    names = by_name[by_name["part"].map(BOUNDS) == bound]
    begins = f"Bound by {_SUBJECTS.get(bound, bound)}" if bound in _SUBJECTS_OF_TIME else _CANNOT_TELL
    text = f"{begins}: {_SUBJECTS_OF_TIME.get(bound, _WAITS_FOR_AUTOGRAD)} "
    text += f"{human(times[bound] / total, 'share')} of {window}"
    collecting = lengths.get((Bottleneck.HOST, "garbage collection"), 0)
    holder, held = find_lock_holder(others)
    waits = _waits_for_lock(holder)
    if bound == Bottleneck.HOST and 2 * held * total > times[bound]:
        text, holder = f"{text}, mostly {waits.rstrip(',')}", ""
    elif bound == Bottleneck.HOST and 2 * collecting > times[bound]:
        text += ", mostly garbage collection"
    elif bound != Bottleneck.UNKNOWN:
        text += _name_largest(bound, names, times[bound], total, functions)
    text += f"; {waits} takes up to {human(held, 'share')}" * bool(holder)
    text += _name_loop(loops, total)
    if bound == Bottleneck.COMPUTE:
        text += _name_rate(rates, times[bound]) + _name_sampled(functions)
    start_up = "start-up takes {} (first calls that initialize, and compilation)"
    for length, is_other, words in (
        (collecting, collecting < times[bound], "garbage collection takes {}"),
        (times[Bottleneck.START_UP], bound != Bottleneck.START_UP, start_up),
        (times[Bottleneck.COMPUTE], bound != Bottleneck.COMPUTE, "ops take {}"),
        (times[Bottleneck.UNKNOWN], bound != Bottleneck.UNKNOWN, f"{_WAITS_FOR_AUTOGRAD} {{}}"),
    ):
        if is_other and length >= MIN_SHARE * total:
            text += f"; {words.format(human(length / total, 'share'))}"
    delayed = 0.0 if states is None else states["run_delay_ns"].sum() / max(int(states["step_ns"].sum()), 1)
    if delayed >= HIGH_SHARE:
        text += f"; for {human(delayed, 'share')} the thread waits for a core"
    sentence = f"{text}. No GPU work is recorded."
    return Verdict(bound, None, sentence, split_window(lengths), f"{window} on the host")


def describe_few_calls(names: pd.DataFrame, functions: pd.DataFrame | None) -> str:
    """Return that too little is recorded of the CPU for a verdict, and what; empty if enough is."""
    most = int(names.groupby(C.RANK)["calls"].sum().max())
    if most >= MIN_EVENTS or functions is not None:
        return ""
    return f"too little is recorded, only {most} ops and calls and no GPU work: record more of the program"


def _waits_for_lock(holder: str) -> str:
    return f"waiting for the interpreter lock, which {_shown(holder)} holds on another thread,"


def find_lock_holder(
    others: pd.DataFrame | None,
    min_share: float = LOCK_THRESHOLDS["min_share"],
    min_wait_ns: float = LOCK_THRESHOLDS["min_wait_ns"],
    min_samples: float = LOCK_THRESHOLDS["min_samples"],
) -> tuple[str, float]:
    """Return the function that holds the interpreter lock on another thread, and for what share; else empty.

    It is one of the program, if it is in more than half of what other threads ran. The share is that of the
    rank with most: a thread holds the lock at most while it runs and the driving one is blocked.

    Args:
        others: Table `other_threads` of `host_breakdown`.
        min_share: Least share.
        min_wait_ns: Least mean wait for the lock at a sample: threads in C code without it cause none.
        min_samples: Least number of samples of other threads.
    """
    holder, most = "", 0.0
    for _, rows in () if others is None else others.groupby(C.RANK):
        held = min(float(rows[RAN_SHARE].max()), float(rows[BLOCKED_SHARE].iloc[0]))
        waits = int(rows[C.LOCK_WAIT_NS].iloc[0]) >= min_wait_ns and rows["samples"].max() >= min_samples
        if waits and held >= max(min_share, most):
            total_ns = int(rows[C.RAN_NS].max())
            function, _ = find_main_function(rows.assign(total_ns=rows[C.RAN_NS]), total_ns)
            name = function or str(rows[C.NAME].iloc[0])
            holder, most = name + describe_line(rows, name), held
    return holder, most


def describe_samples(functions: pd.DataFrame | None, others: pd.DataFrame | None, why: str) -> Verdict | None:
    """Return the verdict by samples of unprofiled steps; None if there are fewer than `MIN_SAMPLED`.

    They tell functions, and not whether these run an op or Python. The tables are those of `host_breakdown`;
    `why` says why the profiled steps are not judged.
    """
    if functions is None:
        return None
    names, counts = functions[C.NAME].astype(str), functions["unprofiled_samples"]
    total = int(counts.groupby(functions[C.RANK]).max().sum())
    if total < MIN_SAMPLED:
        return None
    loading = int(counts[names.str.contains(_CALLS)].sum())
    in_torch = int(functions["unprofiled_self_samples"][names.str.contains(_RUNS_OPS)].sum())
    part, bound, takes = total - in_torch, Bottleneck.HOST, "code that is not known to run ops takes"
    if 2 * loading > total:
        part, bound, takes = loading, Bottleneck.INPUT, "loading data takes"
    elif 2 * in_torch > total:
        part, bound, takes = in_torch, Bottleneck.COMPUTE, "code of torch that runs ops takes"
    is_loop = (counts >= MAX_SAMPLED_SHARE * total) & (functions["source"] == "")
    inside = functions[~is_loop].assign(total_ns=counts, samples=counts)
    function, _ = find_main_function(inside, total)
    place = f", mostly in {_shown(function)}{describe_line(inside, function)}" if function else ""
    if waits_in_event_loop(inside, total):
        place = f", mostly {IDLE_LOOP}"
    share = human(part / total, "share")
    holder, held = find_lock_holder(others)
    if 2 * held > 1:  # samples of a thread that waits for the lock are in whatever it waits to go on with
        bound, place = Bottleneck.HOST, ""
        takes, share = _waits_for_lock(holder) + " takes up to", human(held, "share")
    elif holder:
        place += f"; {_waits_for_lock(holder)} takes up to {human(held, 'share')}"
    sentence = f"{why}, so samples of unprofiled steps are judged. Bound by {_SUBJECTS.get(bound, bound)}: "
    sentence += f"{takes} {share} of {total:,} samples{place}. No GPU work is recorded."
    return Verdict(bound, None, sentence, window="samples of unprofiled steps")


def _name_loop(loops: pd.DataFrame | None, total_ns: int) -> str:
    """Name the line that reads values one at a time and the share of the window; empty if it is small."""
    if loops is None or int(loops["time_ns"].sum()) < WARN_SHARE * total_ns:
        return ""
    line = str(loops.sort_values("time_ns")["source"].iloc[-1])
    place = f" at {_shown(line)}" * bool(line)
    taken = human(int(loops["time_ns"].sum()) / total_ns, "share")
    return f"; values of tensors are read one at a time{place}, {taken}"


def _name_rate(rates: pd.DataFrame | None, part_ns: int) -> str:
    """Name the rate and the threads of the ops with known FLOPs; empty if they are a small part."""
    took_ns = 0 if rates is None else int(rates["host_ns"].sum())
    if rates is None or took_ns < HIGH_SHARE * part_ns:
        return ""
    rate, threads = human(float(rates[C.FLOPS].sum()) / took_ns / 1_000, "TFLOP/s"), rates["threads"].dropna()
    count = int(threads.iloc[0]) if len(threads) else 0
    on_threads = f" with {count} thread{'s' * (count != 1)}" * (count > 0)
    return f"; matrix products and convolutions run at {rate}{on_threads}"


def _name_sampled(functions: pd.DataFrame | None) -> str:
    """Name the function of the program in which most samples are; empty if they are few.

    It is one with most of its samples in a line, or the innermost one of most samples that is not the loop.
    """
    if functions is None:
        return ""
    counts = functions["samples"] + functions["unprofiled_samples"]
    share = counts / counts.groupby(functions[C.RANK]).transform("max")  # the outermost function is in all
    inside = (counts >= MIN_SAMPLED) & (share >= MIN_SAMPLED_SHARE) & (share < 1)
    inside &= ~functions[C.NAME].astype(str).str.contains(LIBRARY)
    chosen = functions[inside].assign(share=share[inside])
    with_line = chosen[(chosen["source"] != "") & (chosen["share"] < MAX_SAMPLED_SHARE)]
    is_loop = (chosen["share"] >= MAX_SAMPLED_SHARE) & (chosen["source"] == "")
    most = chosen[(2 * chosen["share"] > 1) & ~is_loop]
    if not len(with_line) and not len(most):
        return ""
    row = with_line.nlargest(1, "share") if len(with_line) else most.nsmallest(1, "share")
    place = str(row["source" if len(with_line) else C.NAME].iloc[0])
    taken = human(float(row["share"].iloc[0]), "share")
    return f"; {taken} of the samples of Python are in {_shown(place)}"


def _name_largest(
    bound: Bottleneck, names: pd.DataFrame, part_ns: int, total_ns: int, functions: pd.DataFrame | None
) -> str:
    """Name the ops with most time and their share of the window, or the function of most of another part."""
    if bound == Bottleneck.COMPUTE:
        times = names.groupby(C.NAME, sort=False)["time_ns"].sum().sort_values(ascending=False)
        largest = times.head(MAX_OPS).items()
        named = [
            f"{_shown(name)} {human(int(time) / total_ns, 'share')}"
            for place, (name, time) in enumerate(largest)
            if not place or time >= MIN_SHARE * total_ns
        ]
        small = len(times) and times.iloc[0] < HIGH_SHARE * total_ns
        calls = (
            f", in calls of {human(part_ns // int(names['calls'].sum()), 'ns')} on average" if small else ""
        )
        return f"{calls}, largest: {', '.join(named)}" if named else ""
    if waits_in_event_loop(names, part_ns):
        return f", mostly {IDLE_LOOP}"
    function, _ = find_main_function(names, part_ns)
    if function in ("", NOT_RECORDED):
        unknown = ", where nothing is recorded (stacks would show it)"
        return _name_sampled(functions) or unknown * bool(function)
    starting = "starting workers of a data loader in " * starts_workers(names, part_ns)
    return f", mostly {starting}{_shown(function)}{describe_line(names, function)}"


def starts_workers(names: pd.DataFrame, part_ns: int) -> bool:
    """Return whether data loaders that start workers take more than half of a part, as samples say."""
    functions = names[C.NAME].astype(str)
    starts, calls = functions.str.contains(_STARTS), functions.str.contains(_CALLS)
    return bool(starts.any()) and 2 * int(names["total_ns"][calls].sum()) > part_ns


IDLE_LOOP = "waiting in the event loop of asyncio, where nothing is ready to run"


def waits_in_event_loop(names: pd.DataFrame, part_ns: int) -> bool:
    """Return whether a loop of asyncio waits for more than half of a part, as samples say."""
    functions = names[C.NAME].astype(str)
    waits = int(names["total_ns"][functions.str.contains(_SELECT)].sum())
    return 2 * waits > part_ns and bool(functions.str.contains(_EVENT_LOOP).any())


def describe_line(names: pd.DataFrame, function: str) -> str:
    """Return the line that most samples of a function are in, to be added to its name; empty without."""
    if "samples" not in names:
        return ""
    sampled = names[(names[C.NAME] == function) & names["samples"].notna()]
    line = re.search(r"\((\d+)\): ", str(sampled["source"].iloc[0])) if len(sampled) else None
    return f", line {line[1]}" if line and f"({line[1]})" not in function else ""


def find_main_function(names: pd.DataFrame, part_ns: int) -> tuple[str, int]:
    """Return the innermost function that more than half of a part is in, and its time; empty without one.

    It is one of the program: what it calls of Python, torch or other packages says less. `names` are the rows
    of the part in the table `by_name` of `host_breakdown`.
    """
    totals = names.groupby(C.NAME, sort=False)["total_ns"].sum()
    totals = totals[~totals.index.astype(str).str.contains(LIBRARY)]
    most = totals[2 * totals > part_ns]
    if len(most) > 1:  # what samples of other steps tell is at least that long, and the rest has no name
        most = most.drop(NOT_RECORDED, errors="ignore")
    if not len(most):
        return "", 0
    return str(most.idxmin()), min(int(most.min()), part_ns)


def name_more_work(whole: pd.DataFrame, by_name: pd.DataFrame, rank: int) -> str:
    """Return the op or the function in which a rank works longest beyond the others; empty if unknown."""
    times = whole.groupby(["part", C.RANK])["time_ns"].sum().unstack(C.RANK, fill_value=0)
    work = times.drop(index=str(HostPart.COMMUNICATION), errors="ignore")
    if work.empty:
        return ""
    part = str((work[rank] - work.drop(columns=rank).mean(axis=1)).idxmax())
    rows = by_name[(by_name[C.RANK] == rank) & (by_name["part"] == part)]
    function, _ = find_main_function(rows, int(work[rank][part]))
    if part == HostPart.OPS and len(rows):
        return str(rows[C.NAME].iloc[0])
    return "" if function in ("", NOT_RECORDED) else function + describe_line(rows, function)


def _shown(name: object) -> str:
    return shorten(clean(str(name)), NAME_WIDTH)
