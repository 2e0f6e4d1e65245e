"""What samples of the Python stack say: how often each function ran, also in the time that no row covers.

Where the profiled steps are too short for samples, those of other steps say at least what a function takes.
Samples are statistical. Of n samples, a function with the share p is in p n, give or take the root of
p (1 - p) n; what takes less than the time between samples may be in none.

`samples` are those of a thread in profiled steps, which begin at `starts`, `unprofiled` those in other steps,
`unrecorded` the moments that no row of the thread covers, `names` times by part and name with a row
`NOT_RECORDED`, and `loops` the functions that are only around what takes the time.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from typing import Any

import numpy as np
import pandas as pd

from tracekit.analysis.host_verdict import BLOCKED_SHARE, NOT_RECORDED, RAN_SHARE, HostPart
from tracekit.runs import intervals
from tracekit.runs.intervals import Ints, Union
from tracekit.runs.run import Run
from tracekit.schema import C

from ..shared.common import Bools, contains, ints, share, sort_by
from ..shared.host_rows import COMPREHENSIONS
from .findings import PART, SAMPLED_STEPS, SAMPLES, SOURCE, TIME_NS, TOTAL_NS

_LOADER = "torch/utils/data/dataloader.py("
_COUNTS = [SAMPLES, "self_samples", "unrecorded_samples", SAMPLED_STEPS]
_LINE = "line_samples"  # column with the samples in which the most frequent line of a function runs
LOOP_SHARE = 0.9
"""Share of all samples from which a function is the loop over steps, or around it."""
_NO_STEPS = np.zeros(0, np.int64)
MIN_SAMPLES = 4
"""Samples from which the time that no row covers is divided."""


def read_samples(run: Run, rank: int, window: Union) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Return samples of the thread of the steps: those in a window of profiled steps, and those in others."""
    columns = [C.T_NS, C.RANK, C.STACK, C.SOURCE_LINES, C.PROFILED, C.RAN_NS]
    samples = run.table("host_samples", columns=columns)
    samples = samples[(samples[C.RANK] == rank) & samples[C.RAN_NS].isna()]  # others have a CPU time
    is_profiled = samples[C.PROFILED].fillna(1).eq(1).to_numpy(np.bool_)
    return samples[is_profiled & _are_inside(ints(samples, C.T_NS), window)], samples[~is_profiled]


def compare_functions(
    samples: pd.DataFrame, unprofiled: pd.DataFrame, unrecorded: Union, starts: Ints
) -> pd.DataFrame:
    """Count the samples in which each function is in profiled steps and in others, most first."""
    both = count_functions(pd.concat([samples, unprofiled]), unrecorded)
    counts, others = (
        count_functions(part, unrecorded, starts)
        .set_index(C.NAME)[_COUNTS]
        .reindex(both[C.NAME], fill_value=0)
        for part in (samples, unprofiled)
    )
    return both[[C.NAME, SOURCE]].assign(
        **{name: ints(counts, name) for name in _COUNTS},
        share=share(ints(counts, SAMPLES), len(samples)),
        unprofiled_samples=ints(others, SAMPLES),
        unprofiled_share=share(ints(others, SAMPLES), len(unprofiled)),
        unprofiled_self_samples=ints(others, "self_samples"),
    )


def count_functions(samples: pd.DataFrame, unrecorded: Union, starts: Ints = _NO_STEPS) -> pd.DataFrame:
    """Count the samples in which each function is; of those in as many, the innermost one is first.

    Args:
        samples: The samples.
        unrecorded: Moments that no row covers.
        starts: Starts of the steps, to count the steps in which a function is.
    """
    outside = _are_inside(ints(samples, C.T_NS), unrecorded)
    steps = np.searchsorted(starts, ints(samples, C.T_NS), side="right")
    frames = [
        (sample, name, line, depth, outside[sample], steps[sample])
        for sample, stack in enumerate(zip(samples[C.STACK], samples[C.SOURCE_LINES], strict=True))
        for depth, (name, line) in enumerate(_functions(*map(str, stack)))
    ]
    table = pd.DataFrame(frames, columns=["sample", C.NAME, SOURCE, C.DEPTH, "unrecorded", SAMPLED_STEPS])
    by_name = table.groupby(C.NAME, sort=False)
    counts = by_name.agg(samples=("sample", "size"), depth=(C.DEPTH, "sum")).reset_index()
    counts["self_samples"] = (table[C.DEPTH] == 0).groupby(table[C.NAME], sort=False).sum().to_numpy()
    counts["share"] = share(ints(counts, SAMPLES), len(samples))
    counts["unrecorded_samples"] = by_name["unrecorded"].sum().to_numpy()
    counts[SAMPLED_STEPS] = by_name[SAMPLED_STEPS].nunique().to_numpy()
    counts[SOURCE] = [_most_frequent(lines) for _, lines in by_name[SOURCE]]
    counts[_LINE] = [int(lines.value_counts().iloc[0]) for _, lines in by_name[SOURCE]]
    return sort_by(counts, f"-{SAMPLES}", C.DEPTH, C.NAME)


def sum_other_threads(run: Run, rank: int) -> pd.DataFrame:
    """Sum what threads other than that of the steps ran by function, most first; empty if none ran."""
    columns = [C.RANK, C.STACK, C.SOURCE_LINES, C.RAN_NS, C.SINCE_NS, C.ASLEEP_NS, C.LOCK_WAIT_NS]
    samples = run.table("host_samples", columns=columns).assign(**{C.T_NS: 0})  # for `count_functions`
    samples = samples[samples[C.RANK] == rank]
    # If other threads run, samples of the thread of the steps say how long ago the one before was.
    of_steps, others = (samples[samples[name].notna()] for name in (C.SINCE_NS, C.RAN_NS))
    if not len(of_steps) or not len(others):
        return pd.DataFrame()
    since_ns = int(ints(of_steps, C.SINCE_NS).sum())
    ran: Counter[str] = Counter()
    for stack, lines, ran_ns in zip(
        others[C.STACK], others[C.SOURCE_LINES], ints(others, C.RAN_NS).tolist(), strict=True
    ):
        ran.update({name: ran_ns for name, _ in _functions(str(stack), str(lines))})
    counts = count_functions(others, intervals.EMPTY)
    table = counts[[C.NAME, SOURCE, SAMPLES]].assign(
        **{C.RAN_NS: np.array([ran[name] for name in counts[C.NAME]], np.int64)}
    )
    table[RAN_SHARE] = share(ints(table, C.RAN_NS), since_ns)
    table[BLOCKED_SHARE] = int(ints(of_steps, C.ASLEEP_NS).sum()) / max(since_ns, 1)
    table[C.LOCK_WAIT_NS] = int(ints(of_steps, C.LOCK_WAIT_NS).mean())
    return table


def find_loops(functions: pd.DataFrame, count: int) -> set[str]:
    """Return the functions that are in nearly all samples, but each line in few, as the loop over steps.

    `functions` is a result of `compare_functions`, and `count` the number of all samples of the thread.
    """
    of_function = ints(functions, SAMPLES) + ints(functions, "unprofiled_samples")
    has_no_line = functions[SOURCE].eq("").to_numpy()  # none runs in most samples: `_most_frequent`
    return set(functions[C.NAME][(of_function >= LOOP_SHARE * count) & has_no_line])


def divide_unrecorded(
    names: pd.DataFrame, samples: pd.DataFrame, unrecorded: Union, loops: set[str]
) -> pd.DataFrame:
    """Divide the time that no row covers by the functions of the samples in it; they sum to it exactly.

    Loops have no total beyond their own time: what they call explains more.
    """
    is_rest = (names[C.NAME] == NOT_RECORDED).to_numpy()
    inside = samples[_are_inside(ints(samples, C.T_NS), unrecorded)]
    if len(inside) < MIN_SAMPLES or not is_rest.any():
        return names
    rest_ns = int(ints(names, TIME_NS)[is_rest].sum())
    counts = count_functions(inside, unrecorded)
    # Differences of rounded sums, unlike rounded parts, sum to the rounded whole.
    edges = np.cumsum(np.append(0, ints(counts, "self_samples"))) * rest_ns // len(inside)
    total_ns = ints(counts, SAMPLES) * rest_ns // len(inside)
    self_ns = np.diff(edges)
    total_ns = np.where(counts[C.NAME].isin(loops), self_ns, total_ns)
    divided = _to_names(HostPart.OUTSIDE, counts, self_ns, total_ns)
    return pd.concat([names[~is_rest], divided], ignore_index=True)


def bound_outside(
    names: pd.DataFrame, unprofiled: pd.DataFrame, outside_ns: int, window_ns: int, loops: set[str]
) -> pd.DataFrame:
    """Divide the time that no row covers by samples of steps that were not profiled, as far as they tell.

    They do not tell which part of a function is inside of ops. At most all time of ops is, so it takes at
    least its share of the window minus that time outside of them. Of a function around nearly all samples,
    such as the loop over steps, the share is that of its most frequent line. The rest stays without a name.

    Args:
        names: Times by part and name.
        unprofiled: Samples of steps that were not profiled.
        outside_ns: Time outside of ops in the window.
        window_ns: Length of the window of profiled steps.
        loops: Functions that are only around what takes the time.
    """
    is_rest = (names[C.NAME] == NOT_RECORDED).to_numpy()
    if len(unprofiled) < MIN_SAMPLES or not is_rest.any():
        return names
    counts = count_functions(unprofiled, intervals.EMPTY)
    is_around = ints(counts, SAMPLES) >= LOOP_SHARE * len(unprofiled)
    in_total = np.where(is_around, ints(counts, _LINE), ints(counts, SAMPLES))
    total_ns, self_ns = (
        np.maximum(0, samples * window_ns // len(unprofiled) - (window_ns - outside_ns))
        for samples in (in_total, ints(counts, "self_samples"))
    )
    total_ns = np.maximum(total_ns, self_ns)
    rest_ns = int(ints(names, TIME_NS)[is_rest].sum())
    # The bounds are those of other steps, so together they may exceed the time that there is.
    self_ns = self_ns * min(rest_ns, int(self_ns.sum())) // max(1, int(self_ns.sum()))
    total_ns = np.where(counts[C.NAME].isin(loops), self_ns, total_ns)
    left = names.copy()
    left.loc[is_rest, [TIME_NS, TOTAL_NS]] = rest_ns - int(self_ns.sum())
    bounded = _to_names(HostPart.OUTSIDE, counts, self_ns, np.minimum(total_ns, outside_ns))
    return pd.concat([left[ints(left, TOTAL_NS) > 0], bounded[total_ns > 0]], ignore_index=True)


def name_loading(
    names: pd.DataFrame, samples: pd.DataFrame, unprofiled: pd.DataFrame, loading: Union
) -> pd.DataFrame:
    """Add the functions that data loaders call, with their part of the time of loading.

    That time is already in the rows of the loaders and of ops, so they have a total time only. Samples of
    other steps count if few are in the moments of loading.
    """
    inside = samples[_are_inside(ints(samples, C.T_NS), loading)]
    if len(inside) < MIN_SAMPLES:
        inside = unprofiled[contains(unprofiled[C.STACK], re.escape(_LOADER))]
    if len(inside) < MIN_SAMPLES or not intervals.length(loading):
        return names
    # Stacks are written innermost first, so what the loader calls is before its own frame.
    stacks = inside[C.STACK].astype(str).str.split(_LOADER, regex=False).str[0]
    counts = count_functions(inside.assign(**{C.STACK: stacks}), loading)
    counts = counts[counts[C.NAME] != ""]  # the place of the loader's frame
    total_ns = ints(counts, SAMPLES) * intervals.length(loading) // len(inside)
    functions = _to_names(HostPart.LOADING, counts, np.zeros(len(counts), np.int64), total_ns)
    return pd.concat([names, functions], ignore_index=True)


def _to_names(part: HostPart, counts: pd.DataFrame, self_ns: Ints, total_ns: Ints) -> pd.DataFrame:
    """Return rows of the table by name of counted functions."""
    estimates: dict[str, Any] = {PART: str(part), TIME_NS: self_ns, TOTAL_NS: total_ns, "calls": 0}
    counted = counts[[C.NAME, SOURCE]].assign(**{SAMPLES: counts[SAMPLES].astype("Int64")})
    return counted.assign(**estimates)


def _functions(stack: str, lines: str) -> Sequence[tuple[str, str]]:
    """Return each function of a stack once, innermost first, and the line of it that runs.

    A comprehension is part of the function around it.

    Example:
        >>> _functions("data.py(3): read;train.py(9): main", "4,12")
        [('data.py(3): read', 'data.py(4): read'), ('train.py(9): main', 'train.py(12): main')]
    """
    lines_by_name: dict[str, str] = {}
    for name, line in zip(stack.split(";"), lines.split(","), strict=False):
        file, _, rest = name.rpartition("(")
        if not rest.endswith(COMPREHENSIONS):
            lines_by_name.setdefault(name, f"{file}({line}): {rest.partition('): ')[2]}")
    return list(lines_by_name.items())


def _most_frequent(lines: pd.Series) -> str:
    """Return the line that runs in more than half of the samples of a function; empty without one.

    Twice its samples must exceed all by their root, which is a standard deviation: fewer may be more than
    half by chance.
    """
    counts = lines.value_counts()
    return str(counts.index[0]) if 2 * int(counts.iloc[0]) > len(lines) + len(lines) ** 0.5 else ""


def _are_inside(times: Ints, moments: Union) -> Bools:
    """Whether each time is in some moments."""
    begun = np.searchsorted(moments[0], times, side="right")
    # `begun` is the number of moments that began, so that it is also the index of the last end behind a zero.
    inside: Bools = (begun > 0) & (times < np.append(0, moments[1])[begun])
    return inside
