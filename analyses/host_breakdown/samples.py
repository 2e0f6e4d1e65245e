"""What samples of the Python stack say: how often each function ran, also in the time that no row covers.

Samples are statistical. Of n samples, a function with the share p is in p n, give or take the root of
p (1 - p) n; what takes less than the time between samples may be in none.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pandas as pd

from tracekit.analysis.host_verdict import NOT_RECORDED, HostPart
from tracekit.runs.intervals import Ints, Union
from tracekit.runs.run import Run
from tracekit.schema import C

from ..shared.common import Bools, ints, share, sort_by
from .findings import PART, SOURCE, TIME_NS, TOTAL_NS

SAMPLES = "samples"
_COMPREHENSIONS = ("<genexpr>", "<listcomp>", "<setcomp>", "<dictcomp>")
MIN_SAMPLES = 3
"""Samples from which the time that no row covers is divided."""


def read_samples(run: Run, rank: int, window: Union) -> pd.DataFrame:
    """Return the samples of a rank inside a window."""
    samples = run.table("host_samples", columns=[C.T_NS, C.RANK, C.STACK, C.SOURCE_LINES])
    samples = samples[samples[C.RANK] == rank]
    return samples[_are_inside(ints(samples, C.T_NS), window)]


def count_functions(samples: pd.DataFrame, unrecorded: Union) -> pd.DataFrame:
    """Count the samples in which each function is, and in which it is the innermost one.

    Args:
        samples: Samples of a thread.
        unrecorded: Moments that no row of the thread covers.
    """
    outside = _are_inside(ints(samples, C.T_NS), unrecorded)
    frames = [
        (sample, name, line, depth == 0, outside[sample])
        for sample, stack in enumerate(zip(samples[C.STACK], samples[C.SOURCE_LINES], strict=True))
        for depth, (name, line) in enumerate(_functions(*map(str, stack)))
    ]
    table = pd.DataFrame(frames, columns=["sample", C.NAME, SOURCE, "innermost", "unrecorded"])
    by_name = table.groupby(C.NAME, sort=False)
    counts = by_name.agg(samples=("sample", "size"), self_samples=("innermost", "sum")).reset_index()
    counts["share"] = share(ints(counts, SAMPLES), len(samples))
    counts["unrecorded_samples"] = by_name["unrecorded"].sum().to_numpy()
    counts[SOURCE] = [_most_frequent(lines) for _, lines in by_name[SOURCE]]
    return sort_by(counts, f"-{SAMPLES}", "-self_samples", C.NAME)


def divide_unrecorded(names: pd.DataFrame, samples: pd.DataFrame, unrecorded: Union) -> pd.DataFrame:
    """Divide the time that no row covers by the functions of the samples in it; they sum to it exactly.

    Args:
        names: Times by part and name, with a row `NOT_RECORDED`.
        samples: Samples of the thread.
        unrecorded: Moments that no row of the thread covers.
    """
    is_rest = (names[C.NAME] == NOT_RECORDED).to_numpy()
    inside = samples[_are_inside(ints(samples, C.T_NS), unrecorded)]
    if len(inside) < MIN_SAMPLES or not is_rest.any():
        return names
    rest_ns = int(ints(names, TIME_NS)[is_rest].sum())
    counts = count_functions(inside, unrecorded)
    edges = np.cumsum(np.append(0, ints(counts, "self_samples"))) * rest_ns // len(inside)
    divided = pd.DataFrame(
        {
            PART: str(HostPart.OUTSIDE),
            C.NAME: counts[C.NAME],
            TIME_NS: np.diff(edges),
            TOTAL_NS: ints(counts, SAMPLES) * rest_ns // len(inside),
            "calls": 0,
            SOURCE: counts[SOURCE],
            SAMPLES: counts[SAMPLES].astype("Int64"),
        }
    )
    return pd.concat([names[~is_rest], divided], ignore_index=True)


def _functions(stack: str, lines: str) -> Sequence[tuple[str, str]]:
    """Return each function of a stack once, innermost first, and the line of it that runs.

    A comprehension is part of the function around it.
    """
    lines_by_name: dict[str, str] = {}
    for name, line in zip(stack.split(";"), lines.split(","), strict=False):
        file, _, rest = name.rpartition("(")
        if not rest.endswith(_COMPREHENSIONS):
            lines_by_name.setdefault(name, f"{file}({line}): {rest.partition('): ')[2]}")
    return list(lines_by_name.items())


def _most_frequent(lines: pd.Series) -> str:
    """Return the line that runs in more than half of the samples of a function; empty without one."""
    counts = lines.value_counts()
    return str(counts.index[0]) if 2 * int(counts.iloc[0]) > len(lines) else ""


def _are_inside(times: Ints, moments: Union) -> Bools:
    """Whether each time is in some moments."""
    begun = np.searchsorted(moments[0], times, side="right")
    inside: Bools = (begun > 0) & (times < np.append(0, moments[1])[begun])
    return inside
