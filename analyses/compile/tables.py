"""Tables of `compile`: compiled regions, graphs, kernels by origin, and torch's own counters."""

from __future__ import annotations

from typing import Any

import pandas as pd

from tracekit.analysis import Column, TableSpec
from tracekit.runs.compilation import Compilation
from tracekit.runs.run import Run
from tracekit.schema import C, DeviceKind

from ..shared.common import RANK, ints, select, share, typed_table
from .regions import FRAME, ORIGIN, VARIANT, CompiledRun, idle_during

_NAME = Column(C.NAME, "", "name as recorded")
_CALLS = Column("calls", "count", "number of calls")
_HOST = Column("host_ns", "ns", "Σ of their durations on the host")
_SUMMARY = (
    Column("regions", "count", "calls of compiled regions"),
    Column("frames", "count", "distinct frames i of the regions i/j; missing if names have no numbers"),
    Column(
        "breaks",
        "count",
        "frames − 1: upper bound of graph breaks; separately compiled functions count too",
    ),
    Column("recompiled", "count", "distinct regions i/j with j > 0: recompiled for other inputs"),
    Column("graph_calls", "count", "calls of Inductor graphs, forward and backward"),
    Column("lookups", "count", "lookups in Dynamo's code cache, where guards run"),
    Column("lookup_ns", "ns", "Σ of the lookups' durations on the host"),
    Column("lookup_idle_ns", "ns", "the part of it with all devices of the rank idle"),
    Column("resumes", "count", "regions after a graph break; missing without Python frames"),
    Column("break_idle_ns", "ns", "time since the region before each, devices idle; missing without frames"),
    Column("compilations", "count", "compilations during the capture"),
    Column("compile_ns", "ns", "Σ of their durations on the host"),
    Column("compile_idle_ns", "ns", "the part of it with all devices of the rank idle"),
    Column("replays", "count", "launches of CUDA graphs"),
    Column("kernels", "count", "kernels; an opaque graph counts as one"),
    RANK,
)
SUMMARY = TableSpec("summary", "Compiled code in profiled steps, per rank", _SUMMARY)
_KERNELS = (
    Column(ORIGIN, "", "inductor, called, replayed or eager: see the definition"),
    Column("count", "count", "kernels; an opaque graph counts as one"),
    Column("sum_ns", "ns", "Σ of durations"),
    Column("share", "share", "Σ of durations over that of all kernels"),
    Column("opaque", "count", "CUDA graphs among them whose kernels were not recorded"),
    RANK,
)
KERNELS = TableSpec("kernels", "Kernels by origin", _KERNELS)
_REGIONS = (
    _NAME,
    _CALLS,
    _HOST,
    Column(FRAME, "", "frame i it was compiled from; missing if the name has no number"),
    Column(VARIANT, "", "compilation j of the frame; missing if the name has no number"),
    RANK,
)
REGIONS = TableSpec("regions", "Compiled regions", _REGIONS)
GRAPHS = TableSpec("graphs", "Inductor graphs", (_NAME, _CALLS, _HOST, RANK))
_COMPILATION = (
    Column("backend", "", "backend of torch.compile"),
    Column("first_call_ns", "ns", "time of the first warm-up step, which compiles"),
    Column("compile_ns", "ns", "Σ of the compilation times measured by torch, in whole microseconds"),
    Column("compilations", "count", "compilations, including separate ones of the backward pass"),
    Column("compiled_frames", "count", "distinct frames i of their ids i/j"),
    Column("backend_graphs", "count", "graphs handed to the backend"),
    Column("cached", "count", "graphs whose code Inductor found in its cache, so that compiling was faster"),
    Column("ops", "count", "Σ of the operations of their graphs"),
    Column("guards", "count", "Σ of the guards of all compilations"),
    Column("graph_breaks", "count", "frames ended by a graph break, per reason"),
    Column("recompilations", "count", "recompilations of a frame: ids i/j with j > 0"),
    Column("late", "count", "compilations after the warm-up, in timed or profiled steps"),
)
COMPILATION = TableSpec("compilation", "Compilation, as counted by torch", _COMPILATION)
_GRAPH_BREAKS = (
    Column("reason", "prose", "torch's reason of the graph break"),
    Column("frames", "count", "frames it ended"),
    Column("times", "count", "times that a compilation met it, including recompilations"),
    Column("functions", "", "Python functions it is in"),
    Column("explanation", "prose", "torch's explanation and advice"),
)
BREAKS = TableSpec("graph_breaks", "Graph breaks by reason, most frequent first", _GRAPH_BREAKS)
_COMPILATIONS = (
    Column("id", "", "torch's i/j: frame i, its compilation j"),
    Column("function", "", "the Python function, or backward"),
    Column("part", "", "part of the recording: warm-up, timed or profiled steps"),
    Column(C.DUR_NS, "ns", "compilation time, in whole microseconds"),
    Column("ops", "count", "operations of its graph; missing for a backward pass"),
    Column("guards", "count", "guards to check before each call; missing for a backward pass"),
    Column("reason", "prose", "guard that failed; empty for the first compilation of a frame"),
    Column("failed", "prose", "why compilation failed and the frame runs eagerly; else empty"),
)
COMPILATIONS = TableSpec("compilations", "Compilations, in order", _COMPILATIONS)


def summarize(run: Run, compiled: CompiledRun) -> pd.DataFrame:
    """Return one row per rank with compiled regions, lookups or kernels."""
    no_gaps = compiled.regions[:0]
    rows_by_name = {
        "lookups": compiled.lookups,
        "compilations": compiled.compilations,
        "resumes": no_gaps if compiled.breaks is None else compiled.breaks,
        "replays": compiled.replays,
        "kernels": compiled.kernels,
        "graph_calls": compiled.graphs,
        "regions": compiled.regions,
    }
    idle = {
        f"{label}_idle_ns": idle_during(run, rows_by_name[name])
        for label, name in (("lookup", "lookups"), ("compile", "compilations"), ("break", "resumes"))
    }
    ranks = {int(rank) for name in ("regions", "lookups", "kernels") for rank in rows_by_name[name][C.RANK]}
    table: list[dict[str, int | None]] = []
    for rank in sorted(ranks):
        of_rank = {name: rows[rows[C.RANK] == rank] for name, rows in rows_by_name.items()}
        table.append(
            {
                C.RANK: rank,
                **{name: len(rows) for name, rows in of_rank.items()},
                **_count_frames(of_rank["regions"]),
                "lookup_ns": int(ints(of_rank["lookups"], C.DUR_NS).sum()),
                "compile_ns": int(ints(of_rank["compilations"], C.DUR_NS).sum()),
                **{name: by_rank.get(rank, 0) for name, by_rank in idle.items()},
            }
        )
    frame = pd.DataFrame(table, columns=[column.name for column in SUMMARY.columns])
    if compiled.breaks is None:
        frame[["resumes", "break_idle_ns"]] = pd.NA
    unknown = ("frames", "breaks", "recompiled", "resumes", "break_idle_ns")
    return frame.astype(dict.fromkeys(unknown, "Int64"))


def _count_frames(regions: pd.DataFrame) -> dict[str, int | None]:
    """Count distinct frames and their compilations; None if the names have no numbers."""
    if regions[FRAME].isna().any():
        return {"frames": None, "breaks": None, "recompiled": None}
    frames = int(regions[FRAME].nunique())
    variants = regions.drop_duplicates([FRAME, VARIANT])
    recompiled = int((variants[VARIANT] > 0).sum())
    return {"frames": frames, "breaks": max(frames - 1, 0), "recompiled": recompiled}


def sum_calls(rows: pd.DataFrame, spec: TableSpec) -> pd.DataFrame:
    """Return calls and host time of regions or graphs by rank and name, longest first."""
    keys = [C.RANK, C.NAME, *(column.name for column in spec.columns if column.name in (FRAME, VARIANT))]
    grouped = rows.astype({C.NAME: object}).groupby(keys, sort=True, dropna=False)
    table = grouped[C.DUR_NS].agg(calls="size", host_ns="sum").reset_index()
    return select(table, spec.columns, "-host_ns", C.RANK, C.NAME)


def sum_kernels(compiled: CompiledRun) -> pd.DataFrame:
    """Return one row per rank and origin, in the order of `ORIGINS`."""
    kernels = compiled.kernels.assign(graph=(compiled.kernels[C.KIND] == DeviceKind.GRAPH).astype("int64"))
    table = (
        kernels.groupby([C.RANK, ORIGIN], sort=True, observed=True)
        .agg(count=(C.DUR_NS, "size"), sum_ns=(C.DUR_NS, "sum"), opaque=("graph", "sum"))
        .reset_index()
        .astype({ORIGIN: object})
    )
    table["share"] = share(ints(table, "sum_ns"), int(table["sum_ns"].sum()))
    return select(table, KERNELS.columns)


def list_counters(run: Run, counters: Compilation) -> dict[str, pd.DataFrame]:
    """Return torch's counters of all compilations, reasons of graph breaks, and each compilation."""
    compilations = counters.compilations
    total = {
        "backend": (run.meta.workload or {}).get("backend", ""),
        "first_call_ns": counters.first_call_ns,
        "compile_ns": counters.compile_ns,
        "compilations": len(compilations),
        "compiled_frames": len({compilation.frame for compilation in compilations}),
        "backend_graphs": counters.graphs,
        "cached": counters.cached,
        "ops": sum(compilation.ops or 0 for compilation in compilations),
        "guards": counters.guards,
        "graph_breaks": counters.graph_breaks,
        "recompilations": len(counters.recompilations),
        "late": len(counters.late),
    }
    breaks = [
        _fields(graph_break, BREAKS) | {"functions": ", ".join(graph_break.functions)}
        for graph_break in counters.breaks
    ]
    tables = {
        COMPILATION: [total],
        BREAKS: breaks,
        COMPILATIONS: [_fields(compilation, COMPILATIONS) for compilation in compilations],
    }
    return {spec.name: typed_table(rows, spec) for spec, rows in tables.items() if rows}


def _fields(counted: object, spec: TableSpec) -> dict[str, Any]:
    return {column.name: getattr(counted, column.name) for column in spec.columns}
