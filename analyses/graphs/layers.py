"""The repeated layer of each graph: its kernels with their mean times, and what is before and after it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from tracekit.analysis import Column
from tracekit.runs.intervals import Ints
from tracekit.schema import C

from ..shared.common import ints, share
from .repeats import largest_repeat

if TYPE_CHECKING:
    from .repeats import Repeat

BEFORE, LAYERS, AFTER, WHOLE = "before", "layers", "after", "whole graph (nothing repeats)"


def tables(kernels: pd.DataFrame) -> dict[str, pd.DataFrame]:
    """Return the tables `structure` and `layer`.

    Args:
        kernels: The kernels of all graph launches in order of time, with `graph` and `launch`.
    """
    parts: list[dict[str, Any]] = []
    rows: list[pd.DataFrame] = []
    for graph, own in kernels.groupby("graph", sort=True):
        first, times = _equal_launches(own)
        found = largest_repeat(first[C.NAME].cat.codes.to_numpy().astype(np.int64))
        parts += _parts(int(str(graph)), times, found)
        if found:
            rows.append(_layer(int(str(graph)), first, times, found))
    layer = pd.concat(rows, ignore_index=True) if rows else pd.DataFrame(columns=[one.name for one in LAYER])
    structure = pd.DataFrame(parts, columns=[one.name for one in STRUCTURE])
    return {"structure": structure, "layer": layer}


def _equal_launches(own: pd.DataFrame) -> tuple[pd.DataFrame, Ints]:
    """Return the kernels of the first launch, and the mean time of each over the launches with its order."""
    launch = own["launch"].to_numpy(np.int64)
    order = np.argsort(launch, kind="stable")
    count = int((launch == launch[0]).sum())
    names = own[C.NAME].cat.codes.to_numpy(np.int64)[order].reshape(-1, count)
    durations = ints(own, C.DUR_NS)[order].reshape(-1, count)
    equal = (names == names[0]).all(axis=1)
    return own.iloc[order[:count]], durations[equal].sum(axis=0) // int(equal.sum())


def _parts(graph: int, times: Ints, found: Repeat | None) -> list[dict[str, Any]]:
    """Return the rows of `structure` of one graph."""
    if found is None:
        cuts = [(WHOLE, 0, len(times), 1)]
    else:
        cuts = [
            (BEFORE, 0, found.start, 1),
            (LAYERS, found.start, found.end, found.repeats),
            (AFTER, found.end, len(times), 1),
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


def _layer(graph: int, first: pd.DataFrame, times: Ints, found: Repeat) -> pd.DataFrame:
    """Return the rows of `layer` of one graph; names of ops are those of the first repeat."""
    inside = first.iloc[found.start : found.start + found.period]
    by_repeat = times[found.start : found.end].reshape(found.repeats, found.period)
    return pd.DataFrame(
        {
            "graph": graph,
            "position": np.arange(1, found.period + 1),
            C.NAME: inside[C.NAME].astype(object).to_numpy(),
            "op": _texts(inside, C.CAPTURED_OP),
            "module": _texts(inside, C.CAPTURED_MODULE),
            "mean_ns": by_repeat.sum(axis=0) // found.repeats,
            "min_ns": by_repeat.min(axis=0),
            "max_ns": by_repeat.max(axis=0),
            "share": share(by_repeat.sum(axis=0), int(times.sum())),
            C.ROW_ID: ints(inside, C.ROW_ID),
        }
    )


def _texts(rows: pd.DataFrame, column: str) -> list[str]:
    return [text if isinstance(text, str) else "" for text in rows[column].astype(object)]


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
