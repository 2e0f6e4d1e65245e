"""CUDA and HIP graphs: what each launch runs, the ops that captured it, and the layer that repeats in it.

A graph is a graph id with the same kernels, as often; where ids are not recorded, the same kernels alone. The
layer is found in the graph's first launch, in order of time.

Sources: CUDA C++ Programming Guide, CUDA Graphs; HIP documentation, HIP graph; TraceLens, graph capture.

Example:
    >>> tracekit.analyze(run, "graphs").tables["ops"].head(10)  # doctest: +SKIP
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np
import pandas as pd

from tracekit.analysis import Analysis, Column, Remark, Result, TableSpec
from tracekit.analysis.kernel_names import matches
from tracekit.runs.intervals import Ints
from tracekit.runs.run import Run, busy
from tracekit.schema import C, DeviceKind, HostKind

from ..shared.common import (
    GRAPH_CALL,
    PLACE_COLUMNS,
    RANK,
    STEP,
    absent_device_note,
    ids_or_absent,
    ints,
    is_kind,
    select,
    share,
    sort_by,
    spans,
    union_by,
)
from ..shared.groups import rows_by_number
from ..shared.host_rows import MODULE

NO_GRAPHS = Remark(
    "no CUDA or HIP graph was launched in this capture: `torch.compile(mode='reduce-overhead')` or "
    "`torch.cuda.graph()` record graphs"
)
OPAQUE = Remark(
    "{count:,} graph launches were recorded as a whole, without their kernels: record graph nodes "
    "(nsys: `--cuda-graph-trace=node`)"
)
NO_OPS = Remark(
    "the ops of {count:,} kernels are unknown: import the trace with that of the graph's capture "
    "(`tracekit import TRACE --capture-trace FILE`)"
)
DIFFERS = "graph_capture_differs"
"""Code of the importer's diagnostic for launches that replay no capture."""
_READ = [
    *(C.ROW_ID, C.KIND, C.NAME, C.RANK, C.DEVICE, C.STREAM, C.START_NS, C.DUR_NS, C.STEP, C.LAUNCH_ROW),
    *(C.GRAPH_ID, C.CAPTURED_OP, C.CAPTURED_CALL, C.CAPTURED_MODULE),
]
_LAUNCH = [C.RANK, C.DEVICE, C.LAUNCH_ROW]
_INSTANCE = re.compile(r"_\d+$")


def compute(run: Run) -> Result:
    """Compute the tables of graph launches."""
    work = busy(run, _READ)
    rows = _select_replays(run, work)
    if rows.empty:
        return Result(notes=(absent_device_note(run) if work.empty else NO_GRAPHS,))
    rows, numbers = _number_graphs(rows)
    launches = _launches(rows, numbers, _device_time(work))
    kernels = rows[rows[C.KIND] != DeviceKind.GRAPH]
    tables = {"graphs": _graphs(launches), "launches": select(launches, _LAUNCHES)}
    if len(kernels):
        tables |= layer_tables(kernels)
    if kernels[C.CAPTURED_OP].notna().any():
        tables["ops"] = _ops(kernels)
    return Result(tables, notes=_notes(run, rows, kernels))


def _select_replays(run: Run, work: pd.DataFrame) -> pd.DataFrame:
    """The device intervals launched by graph launches, in order of time."""
    where = is_kind(HostKind.RUNTIME, HostKind.SYNC)
    calls = run.table("host_intervals", columns=[C.ROW_ID, C.NAME], where=where)
    graphs = calls.loc[matches(calls[C.NAME], GRAPH_CALL), C.ROW_ID]
    rows = work[work[C.LAUNCH_ROW].isin(graphs)]
    return rows.sort_values([C.START_NS, C.STREAM, C.ROW_ID], ignore_index=True)


def _number_graphs(rows: pd.DataFrame) -> tuple[pd.DataFrame, Ints]:
    """Number the launches and the graphs, in order of their first start.

    Returns:
        The rows with the columns `launch` and `graph`, and the graph of each launch.
    """
    launch, _ = pd.factorize(pd.MultiIndex.from_frame(rows[_LAUNCH].astype(np.int64)))
    names = rows[C.NAME].cat.codes.to_numpy(np.int64)
    ids = ids_or_absent(rows[C.GRAPH_ID])
    order = np.lexsort((names, launch))
    keys: dict[tuple[int, int, bytes], int] = {}
    numbers = []
    ends = np.searchsorted(launch[order], np.arange(int(launch.max()) + 2))
    places = rows[C.RANK].to_numpy(np.int64)
    for first, last in pairwise(ends.tolist()):
        kernels = order[first:last]
        # the names are sorted: replays run the same kernels, but not always in the same order
        key = (int(places[kernels[0]]), int(ids[kernels[0]]), names[kernels].tobytes())
        numbers.append(keys.setdefault(key, len(keys)))
    graph = np.array(numbers, np.int64)
    return rows.assign(launch=launch, graph=graph[launch]), graph


def _device_time(work: pd.DataFrame) -> dict[Any, int]:
    """Union of all work of each device."""
    places, names = pd.factorize(pd.MultiIndex.from_frame(work[[C.RANK, C.DEVICE]]))
    lengths = union_by(places.astype(np.int64), len(names), *spans(work))
    return {
        (int(rank), int(device)): int(length) for (rank, device), length in zip(names, lengths, strict=True)
    }


def _launches(rows: pd.DataFrame, numbers: Ints, device_time: dict[Any, int]) -> pd.DataFrame:
    """One row per graph launch and device."""
    grouped = rows.groupby("launch", sort=True)
    first = grouped.first()
    start, end = spans(rows)
    launch = rows["launch"].to_numpy(np.int64)
    union = union_by(launch, len(first), start, end)
    span = (pd.Series(end).groupby(launch).max() - pd.Series(start).groupby(launch).min()).to_numpy(np.int64)
    device_ns = np.array(
        [device_time[place] for place in zip(first[C.RANK], first[C.DEVICE], strict=True)], np.int64
    )
    is_kernel = (rows[C.KIND] != DeviceKind.GRAPH).to_numpy(bool)
    return first.assign(
        graph=numbers,
        kernels=np.bincount(launch[is_kernel], minlength=len(first)),
        attributed=grouped[C.CAPTURED_OP].count().to_numpy(np.int64),
        sum_ns=grouped[C.DUR_NS].sum().to_numpy(np.int64),
        span_ns=span,
        union_ns=union,
        gap_ns=span - union,
        share=share(union, device_ns),
    ).reset_index(drop=True)


def _graphs(launches: pd.DataFrame) -> pd.DataFrame:
    """One row per graph."""
    grouped = launches.groupby("graph", sort=True)
    first, size = grouped.first(), grouped.size().to_numpy(np.int64)
    sums = grouped[["sum_ns", "span_ns", "union_ns", "gap_ns", "share", "attributed"]].sum()
    table = first.assign(
        launches=size,
        attributed=sums["attributed"] // size,
        mean_span_ns=sums["span_ns"] // size,
        mean_gap_ns=sums["gap_ns"] // size,
        sum_ns=sums["sum_ns"],
        union_ns=sums["union_ns"],
        share=sums["share"],
    ).reset_index()
    return select(table, _GRAPHS)


def _ops(kernels: pd.DataFrame) -> pd.DataFrame:
    """Kernels by the op that captured them and the class of its module, most time first."""
    keys = ["op", "module"]
    owned = kernels.assign(
        op=kernels[C.CAPTURED_OP].astype(object).where(kernels[C.CAPTURED_OP].notna(), ""),
        module=[module_class(name) for name in kernels[C.CAPTURED_MODULE].astype(object)],
    )
    calls = owned.drop_duplicates([*keys, "launch", C.CAPTURED_CALL]).groupby(keys)
    counted = calls[C.CAPTURED_CALL].count()
    grouped = owned.groupby(keys)
    table = pd.DataFrame(
        {
            "calls": counted.astype(np.int64),
            "kernels": grouped.size().astype(np.int64),
            "sum_ns": grouped[C.DUR_NS].sum(),
        }
    ).reset_index()
    table["share"] = share(table["sum_ns"], int(table["sum_ns"].sum()))
    return sort_by(table, "-sum_ns", *keys)


def module_class(name: object) -> str:
    """Class of a module, empty if unknown.

    Example:
        >>> module_class("nn.Module: Qwen3Attention_12"), module_class(None)
        ('Qwen3Attention', '')
    """
    return _INSTANCE.sub("", name.removeprefix(MODULE)) if isinstance(name, str) else ""


def _notes(run: Run, rows: pd.DataFrame, kernels: pd.DataFrame) -> tuple[str, ...]:
    notes: list[str] = []
    opaque = int((rows[C.KIND] == DeviceKind.GRAPH).sum())
    if opaque:
        notes.append(Remark(OPAQUE.format(count=opaque)))
    refused = [diagnostic.message for diagnostic in run.meta.diagnostics if diagnostic.code == DIFFERS]
    count = int(kernels[C.CAPTURED_OP].isna().sum())
    if count and not refused:
        notes.append(Remark(NO_OPS.format(count=count)))
    return (*notes, *(Remark(message) for message in refused))


MAX_CANDIDATES = 16
"""Distances that are tried for each length of a subsequence, the most frequent ones."""
BEFORE, LAYERS, AFTER, WHOLE = "before", "layers", "after", "whole graph (nothing repeats)"


def layer_tables(kernels: pd.DataFrame) -> dict[str, pd.DataFrame]:
    """Tables of the layers of graphs, from the kernels of their launches in order of time."""
    parts: list[dict[str, Any]] = []
    rows: list[pd.DataFrame] = []
    columns = ints(kernels, "launch"), ints(kernels, C.DUR_NS)
    names = kernels[C.NAME].cat.codes.to_numpy().astype(np.int64)
    for graph, of_graph in rows_by_number(ints(kernels, "graph")):
        first, times = _equal_launches(of_graph, *columns, names)
        repeat = largest_repeat(names[first])
        parts += _parts(graph, times, repeat)
        if repeat:
            rows.append(_layer(graph, kernels.iloc[first], times, repeat))
    structure = pd.DataFrame(parts, columns=[column.name for column in _STRUCTURE])
    empty = pd.DataFrame(columns=[column.name for column in _LAYER])
    return {"structure": structure, "layer": pd.concat(rows, ignore_index=True) if rows else empty}


def _equal_launches(rows: Ints, launch: Ints, duration: Ints, name: Ints) -> tuple[Ints, Ints]:
    """Return the kernels of the first launch, and the mean time of each over the launches with its order.

    `rows` are the positions of a graph's kernels; the others have a value, or the code of the name, of each
    kernel.
    """
    order = rows[np.argsort(launch[rows], kind="stable")]
    count = int((launch[rows] == launch[rows[0]]).sum())
    names, durations = (column[order].reshape(-1, count) for column in (name, duration))
    equal = (names == names[0]).all(axis=1)
    return order[:count], durations[equal].sum(axis=0) // int(equal.sum())


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
    rows = []
    for part, first, last, count in cuts:
        if last > first:
            sum_ns = int(times[first:last].sum())
            row = {"graph": graph, "part": part, "repeats": count, "kernels": (last - first) // count}
            share_of_graph = sum_ns / total if total else np.nan
            rows.append({**row, "sum_ns": sum_ns, "mean_ns": sum_ns // count, "share": share_of_graph})
    return rows


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
    """Part of a sequence: p elements that follow themselves directly, k ≥ 2 times, so that it covers k·p."""

    start: int  # position of its first element
    period: int  # number of its elements
    repeats: int  # how often it occurs in succession

    @property
    def end(self) -> int:
        """Position after the last repeat."""
        return self.start + self.period * self.repeats


def largest_repeat(sequence: Ints) -> Repeat | None:
    """Return the repeat that covers most elements: the shortest of these, and the first of equals.

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
    """Yield candidates of the period: distances between successive equal subsequences, most frequent first.

    Subsequences have 1, 2, 4, ... elements; one that occurs once per repeat has the next one a period later.
    """
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
    """Return the repeat of a period that covers most; the first of equals.

    Where it repeats, every element equals the one a period later.
    """
    equal = np.concatenate(([False], sequence[period:] == sequence[:-period], [False]))
    changes = np.diff(equal.astype(np.int8))
    begin, end = np.flatnonzero(changes > 0), np.flatnonzero(changes < 0)
    count = (end - begin) // period + 1
    if not len(count) or count.max() < 2:
        return None
    longest = int(np.argmax(count))
    return Repeat(int(begin[longest]), period, int(count[longest]))


_GRAPH = Column("graph", "", "number of the graph")
_KERNELS = Column("kernels", "count", "kernels, copies and memsets of a launch")
_ATTRIBUTED = Column("attributed", "count", "those of them with the op that captured them")
_SHARE = Column("share", "share", "union over that of all work of the device")
_GRAPHS = (
    _GRAPH,
    RANK,
    Column(C.GRAPH_ID, "", "recorded id of the graph; missing if not recorded"),
    Column("launches", "count", "launches of the graph; on several devices each counts"),
    _KERNELS,
    _ATTRIBUTED,
    Column("mean_span_ns", "ns", "mean span of a launch"),
    Column("mean_gap_ns", "ns", "mean gap of a launch"),
    Column("sum_ns", "ns", "Σ of durations over all launches"),
    Column("union_ns", "ns", "Σ of unions over all launches"),
    _SHARE,
)
_LAUNCHES = (
    _GRAPH,
    *PLACE_COLUMNS,
    STEP,
    Column(C.START_NS, "ns", "first start on the device"),
    _KERNELS,
    _ATTRIBUTED,
    Column("sum_ns", "ns", "Σ of durations"),
    Column("span_ns", "ns", "first start to last end"),
    Column("union_ns", "ns", "union of the intervals"),
    Column("gap_ns", "ns", "span − union"),
    _SHARE,
    Column(C.LAUNCH_ROW, "", "host row of the launching call"),
)
_OPS = (
    Column("op", "", "innermost op that launched it in the capture; empty if unknown"),
    Column("module", "", "class of the torch.nn.Module around the op; empty if unknown"),
    Column("calls", "count", "calls of the op, over all launches"),
    Column("kernels", "count", "kernels, copies and memsets"),
    Column("sum_ns", "ns", "Σ of durations"),
    Column("share", "share", "over Σ of the durations of all graph launches"),
)
_STRUCTURE = (
    _GRAPH,
    Column("part", "", "before, layers (the repeats), after; or the whole graph if nothing repeats"),
    Column("repeats", "count", "how often the sequence occurs in succession"),
    Column("kernels", "count", "kernels of one repeat"),
    Column("mean_ns", "ns", "Σ of durations of one repeat, mean over repeats and launches"),
    Column("sum_ns", "ns", "Σ of durations of all repeats, mean over launches"),
    Column("share", "share", "over Σ of the durations of a launch"),
)
_LAYER = (
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

ANALYSIS = Analysis(
    name="graphs",
    title="Graphs",
    question="What do CUDA and HIP graph launches run, which ops captured it, and which layer repeats?",
    definition=(
        "Per graph launch and device: span = first start to last end; gap = span − union of its intervals; "
        "share = union over the union of all work of the device. A graph is a graph id with the same "
        "kernels; without ids, the same kernels. Ops: the innermost op that launched a kernel when the graph "
        "was captured, by a trace of the capture with the same kernels in the same order. Layer: the "
        "sequence of kernels that directly follows itself, whose repeats cover most kernels of the graph's "
        "first launch (the shortest, then the first of equals); times are means over repeats and launches."
    ),
    tables=(
        TableSpec("graphs", "Graphs", _GRAPHS),
        TableSpec("ops", "Ops that captured the kernels", _OPS),
        TableSpec("structure", "Repeated sequence; what is before and after it", _STRUCTURE),
        TableSpec("layer", "Kernels of one repeat, in order", _LAYER),
        TableSpec("launches", "Every launch", _LAUNCHES),
    ),
    sources=("CUDA C++ Programming Guide, CUDA Graphs", "TraceLens graph capture"),
    order=87,
    reads=("device_intervals",),
    compute=compute,
)
