"""CUDA and HIP graphs: what each launch runs, the ops that captured it, and the layer that repeats in it.

A graph is a graph id with the same kernels, as often; where ids are not recorded, the same kernels alone. The
layer is found in the graph's first launch, in order of time.

Sources: CUDA C++ Programming Guide, CUDA Graphs; HIP documentation, HIP graph; TraceLens, graph capture.

Example:
    >>> import tracekit
    >>> result = tracekit.analyze(tracekit.open("latest"), "graphs")  # doctest: +SKIP
    >>> result.tables["ops"].head(10)  # doctest: +SKIP
"""

from __future__ import annotations

import re
from itertools import pairwise
from typing import Any

import numpy as np
import pandas as pd

from tracekit.analysis import Analysis, Column, Remark, Result, TableSpec
from tracekit.analysis.kernel_names import matches
from tracekit.runs.intervals import Ints
from tracekit.runs.run import Run, busy
from tracekit.schema import C, DeviceKind, HostKind

from ..shared.common import (
    PLACE_COLUMNS,
    RANK,
    STEP,
    absent_device_note,
    ids_or_absent,
    is_kind,
    select,
    share,
    sort_by,
    spans,
    union_by,
)
from ..shared.host_rows import MODULE
from . import layers

GRAPH_CALL = r"(?i)graphlaunch"
NO_GRAPHS = Remark("no CUDA or HIP graph was launched in this capture")
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
        tables |= layers.tables(kernels)
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
        TableSpec(
            "structure",
            "Repeated sequence; what is before and after it",
            layers.STRUCTURE,
        ),
        TableSpec("layer", "Kernels of one repeat, in order", layers.LAYER),
        TableSpec("launches", "Every launch", _LAUNCHES),
    ),
    sources=("CUDA C++ Programming Guide, CUDA Graphs", "TraceLens graph capture"),
    order=87,
    compute=compute,
)
