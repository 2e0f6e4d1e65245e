"""The repeated layer of each graph: its kernels with their mean times, and what is before and after it.

A repeat is a sequence of p elements that follows itself directly, k ≥ 2 times; it covers k·p elements. Where
it repeats, every element equals the one p later. Candidates for p are the distances between successive equal
subsequences of 1, 2, 4, ... elements, most frequent first: a subsequence that occurs once per repeat has the
next one p later.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np
import pandas as pd

from tracekit.analysis import Column
from tracekit.runs.intervals import Ints
from tracekit.schema import C

from ..shared.common import ints, share

MAX_CANDIDATES = 16
"""Distances that are tried for each length of a subsequence, the most frequent ones."""
BEFORE, LAYERS, AFTER, WHOLE = "before", "layers", "after", "whole graph (nothing repeats)"


def tables(kernels: pd.DataFrame) -> dict[str, pd.DataFrame]:
    """Tables of the layers of graphs, from the kernels of their launches in order of time."""
    parts: list[dict[str, Any]] = []
    rows: list[pd.DataFrame] = []
    for graph, of_graph in kernels.groupby("graph", sort=True):
        first, times = _equal_launches(of_graph)
        repeat = largest_repeat(first[C.NAME].cat.codes.to_numpy().astype(np.int64))
        parts += _parts(int(str(graph)), times, repeat)
        if repeat:
            rows.append(_layer(int(str(graph)), first, times, repeat))
    structure = pd.DataFrame(parts, columns=[column.name for column in STRUCTURE])
    empty = pd.DataFrame(columns=[column.name for column in LAYER])
    return {"structure": structure, "layer": pd.concat(rows, ignore_index=True) if rows else empty}


def _equal_launches(rows: pd.DataFrame) -> tuple[pd.DataFrame, Ints]:
    """Return the kernels of the first launch, and the mean time of each over the launches with its order."""
    launch = rows["launch"].to_numpy(np.int64)
    order = np.argsort(launch, kind="stable")
    count = int((launch == launch[0]).sum())
    names = rows[C.NAME].cat.codes.to_numpy(np.int64)[order].reshape(-1, count)
    durations = ints(rows, C.DUR_NS)[order].reshape(-1, count)
    equal = (names == names[0]).all(axis=1)
    return rows.iloc[order[:count]], durations[equal].sum(axis=0) // int(equal.sum())


def _parts(graph: int, times: Ints, repeat: Repeat | None) -> list[dict[str, Any]]:
    """Return the rows of `structure` of one graph."""
    if repeat is None:
        cuts = [(WHOLE, 0, len(times), 1)]
    else:
        cuts = [
            (BEFORE, 0, repeat.start, 1),
            (LAYERS, repeat.start, repeat.end, repeat.repeats),
            (AFTER, repeat.end, len(times), 1),
        ]
    total = int(times.sum())
    return [
        {
            "graph": graph,
            "part": part,
            "repeats": count,
            "kernels": (last - first) // count,
            "sum_ns": int(times[first:last].sum()),
            "mean_ns": int(times[first:last].sum()) // count,
            "share": float(share(pd.Series([int(times[first:last].sum())]), total)[0]),
        }
        for part, first, last, count in cuts
        if last > first
    ]


def _layer(graph: int, first: pd.DataFrame, times: Ints, repeat: Repeat) -> pd.DataFrame:
    """Return the rows of `layer` of one graph; names of ops are those of the first repeat."""
    inside = first.iloc[repeat.start : repeat.start + repeat.period]
    by_repeat = times[repeat.start : repeat.end].reshape(repeat.repeats, repeat.period)
    return pd.DataFrame(
        {
            "graph": graph,
            "position": np.arange(1, repeat.period + 1),
            C.NAME: inside[C.NAME].astype(object).to_numpy(),
            "op": _texts(inside, C.CAPTURED_OP),
            "module": _texts(inside, C.CAPTURED_MODULE),
            "mean_ns": by_repeat.sum(axis=0) // repeat.repeats,
            "min_ns": by_repeat.min(axis=0),
            "max_ns": by_repeat.max(axis=0),
            "share": share(by_repeat.sum(axis=0), int(times.sum())),
            C.ROW_ID: ints(inside, C.ROW_ID),
        }
    )


def _texts(rows: pd.DataFrame, column: str) -> list[str]:
    return [text if isinstance(text, str) else "" for text in rows[column].astype(object)]


class Repeat(NamedTuple):
    """A repeated part of a sequence."""

    start: int  # position of its first element
    period: int  # number of its elements
    repeats: int  # how often it occurs in succession

    @property
    def end(self) -> int:
        """Position after the last repeat."""
        return self.start + self.period * self.repeats


def largest_repeat(sequence: Ints) -> Repeat | None:
    """Return the repeat that covers most elements: the shortest of these, and the first of equals.

    Args:
        sequence: Codes of the elements.

    Returns:
        None if no element follows itself and no part does.

    Example:
        >>> largest_repeat(np.array([9, 1, 2, 3, 1, 2, 3, 1, 2, 3, 1, 8]))
        Repeat(start=1, period=3, repeats=3)
    """
    repeats = (_with_period(sequence, period) for period in dict.fromkeys(_periods(sequence)))
    return min(
        (repeat for repeat in repeats if repeat),
        key=lambda repeat: (-repeat.period * repeat.repeats, repeat.period, repeat.start),
        default=None,
    )


def _periods(sequence: Ints) -> Iterator[int]:
    """Yield candidates of the period, for subsequences of each length."""
    _, codes = np.unique(sequence, return_inverse=True)
    length = 1
    while len(codes) > 1:
        order = np.argsort(codes, kind="stable")
        same = codes[order[1:]] == codes[order[:-1]]
        distances, counts = np.unique(np.diff(order)[same], return_counts=True)
        if not len(distances):
            return  # no subsequence of this length occurs twice, so no longer one does
        yield from distances[np.lexsort((distances, -counts))[:MAX_CANDIDATES]].tolist()
        pairs = codes[:-length] * (int(codes.max()) + 1) + codes[length:]
        _, codes = np.unique(pairs, return_inverse=True)
        length *= 2


def _with_period(sequence: Ints, period: int) -> Repeat | None:
    """Return the repeat of a period that covers most; the first of equals."""
    equal = np.concatenate(([False], sequence[period:] == sequence[:-period], [False]))
    changes = np.diff(equal.astype(np.int8))
    begin, end = np.flatnonzero(changes > 0), np.flatnonzero(changes < 0)
    count = (end - begin) // period + 1
    if not len(count) or count.max() < 2:
        return None
    longest = int(np.argmax(count))
    return Repeat(int(begin[longest]), period, int(count[longest]))


_GRAPH = Column("graph", "", "number of the graph")
STRUCTURE = (
    _GRAPH,
    Column("part", "", "before, layers (the repeats), after; or the whole graph if nothing repeats"),
    Column("repeats", "count", "how often the sequence occurs in succession"),
    Column("kernels", "count", "kernels of one repeat"),
    Column("mean_ns", "ns", "Σ of durations of one repeat, mean over repeats and launches"),
    Column("sum_ns", "ns", "Σ of durations of all repeats, mean over launches"),
    Column("share", "share", "over Σ of the durations of a launch"),
)
LAYER = (
    _GRAPH,
    Column("position", "", "position within the layer"),
    Column(C.NAME, "", "name of the kernel"),
    Column("op", "", "op that launched it in the capture; empty if unknown"),
    Column("module", "", "module around the op in the first layer; empty if unknown"),
    Column("mean_ns", "ns", "duration, mean over repeats and launches"),
    Column("min_ns", "ns", "shortest repeat, mean over launches"),
    Column("max_ns", "ns", "longest repeat, mean over launches"),
    Column("share", "share", "of all its repeats, over Σ of the durations of a launch"),
    Column(C.ROW_ID, "", "device row of the first repeat in the first launch"),
)
