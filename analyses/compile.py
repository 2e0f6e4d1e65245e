"""What was compiled: regions, graph breaks, guards, compilations and kernels; and eager against compiled.

Parts are told by the names that PyTorch gives them, in profiled steps where steps are marked. Times are
integer nanoseconds.

* A region is `Torch-Compiled Region: i/j`, one call of compiled code. i is the frame it was compiled from and
  j the compilation that ran; j > 0 is one of a frame that was compiled again, because an input did not fit.
  `breaks` = distinct frames − 1 is the number of graph breaks at most: functions that were compiled one by
  one are frames, too. Older versions of PyTorch give no numbers: then frames are unknown.
* `graph_calls` are `CompiledFxGraph` calls, `lookups` are `TorchDynamo Cache Lookup`, in which guards run.
  `compilations` are the outermost ranges whose names end in `(dynamo_timed)`; recorded where compiling falls
  into the capture. `lookup_idle_ns` and `compile_idle_ns` are the time of the lookups and of the compilations
  in which no device of the rank ran anything.
* `resumes` are regions inside of a Python function `torch_dynamo_resume_in_…`, which runs what follows a
  graph break, and `break_idle_ns` is the time from the region before each, devices idle. Both are missing
  where no Python frames were recorded: without them a graph break and a function compiled apart look alike.
* Of a workload that tracekit ran at level `compile`, `compilation`, `graph_breaks` and `compilations` tell
  what torch itself counted from the first call on: time of compiling, graphs, guards, why graphs broke, and
  why frames were compiled again. `late` are compilations after the warm-up, in steps that should be steady.
* A kernel's origin: `inductor` (`triton_…`, which Inductor generates), `replayed` (launched by a CUDA graph),
  `library` (another kernel that compiled code launched), or `eager`.

`compare` takes the base for eager and the head for compiled and sets them beside each other, per step;
`level`, shapes of ops and the profiler's flags may differ. Peaks are the allocator's and the process's.
`fusion` lists the kernels that became others, matched by `tracekit.diff`.

`tracekit.analyses._compile.pairs.geomeans` sets many pairs beside each other, with geometric means.

Source: TorchBench (Hao et al., 2023), section 3.2, Fig. 3 and 4.

Example:
    >>> import tracekit
    >>> result = tracekit.analyze(tracekit.open("latest"), "compile")  # doctest: +SKIP
    >>> result.tables["kernels"]  # doctest: +SKIP
    >>> tracekit.compare(tracekit.open("latest~1"), tracekit.open("latest"), "compile")  # doctest: +SKIP
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pandas as pd

from tracekit import compilation
from tracekit.analysis import Analysis, Column, Result, TableSpec
from tracekit.savings import budget
from tracekit.schema import C, DeviceKind

from ._compile import compare, counted, reading, rules
from ._compile.reading import FRAME, ORIGIN, ORIGINS, VARIANT
from ._shared.common import RANK, absent_device_note, ints, share

if TYPE_CHECKING:
    from tracekit.run import Run

    from ._compile.reading import Compiled

NOTHING_COMPILED = (
    "no compiled code in this capture: nothing ran through `torch.compile`, or no CPU activity was recorded"
)
NO_NUMBERS = "regions carry no numbers, as of older versions of PyTorch: frames and variants are unknown"


def compute(run: Run) -> Result:
    """Describe the compiled parts of a run."""
    parts = reading.read(run)
    steps = budget(run)
    found = compilation.read(run.meta)
    tables = {"kernels": _kernels(parts)} if len(parts.kernels) else {}
    if parts.any:
        tables |= {"summary": _summary(run, parts), "regions": _regions(parts), "graphs": _graphs(parts)}
    if found is None:
        return Result(tables, rules.findings(run, parts, steps), _notes(run, parts))
    traced = rules.findings(run, parts, steps)
    told = {one.code for one in traced}
    late = [compilation.TIMED, *([] if rules.COMPILES.code in told else [compilation.PROFILED])]
    advice = (*traced, *counted.findings(run, found, parts=late))
    return Result(tables | counted.tables(run, found), advice, _notes(run, parts))


def _notes(run: Run, parts: Compiled) -> tuple[str, ...]:
    if not parts.any:
        return (NOTHING_COMPILED,)
    notes = [] if len(parts.kernels) else [absent_device_note(run)]
    return (*notes, *([NO_NUMBERS] if parts.regions[FRAME].isna().any() else []))


def _summary(run: Run, parts: Compiled) -> pd.DataFrame:
    """One row per rank."""
    ranks = sorted(
        {int(rank) for part in (parts.regions, parts.lookups, parts.kernels) for rank in part[C.RANK]}
    )
    gaps = parts.breaks if parts.breaks is not None else parts.regions[:0]
    idle = [reading.idle_during(run, rows) for rows in (parts.lookups, parts.compilations, gaps)]
    rows = []
    for rank in ranks:
        regions, graphs, lookups, compilations, replays, kernels = (
            part[part[C.RANK] == rank]
            for part in (
                *(parts.regions, parts.graphs, parts.lookups),
                *(parts.compilations, parts.replays, parts.kernels),
            )
        )
        row = {C.RANK: rank, "regions": len(regions), **_frames(regions), "graph_calls": len(graphs)}
        row |= {"lookups": len(lookups), "lookup_ns": int(ints(lookups, C.DUR_NS).sum())}
        row |= {"compilations": len(compilations), "compile_ns": int(ints(compilations, C.DUR_NS).sum())}
        row |= {"replays": len(replays), "kernels": len(kernels)}
        row |= {"resumes": int((gaps[C.RANK] == rank).sum())}
        row |= {
            name: found.get(rank, 0)
            for name, found in zip(("lookup_idle_ns", "compile_idle_ns", "break_idle_ns"), idle, strict=True)
        }
        rows.append(row)
    frame = pd.DataFrame(rows, columns=[column.name for column in _SUMMARY])
    if parts.breaks is None:
        frame[["resumes", "break_idle_ns"]] = pd.NA
    return frame.astype(
        dict.fromkeys(("frames", "breaks", "recompiled", "resumes", "break_idle_ns"), "Int64")
    )


def _frames(regions: pd.DataFrame) -> dict[str, int | None]:
    """Distinct frames and compilations of them; unknown where the names do not tell."""
    if regions[FRAME].isna().any():
        return {"frames": None, "breaks": None, "recompiled": None}
    frames = int(regions[FRAME].nunique())
    variants = regions.drop_duplicates([FRAME, VARIANT])
    recompiled = int((variants[VARIANT] > 0).sum())
    return {"frames": frames, "breaks": max(frames - 1, 0), "recompiled": recompiled}


def _regions(parts: Compiled) -> pd.DataFrame:
    """One row per rank and region, the longest first."""
    return _called(parts.regions, [FRAME, VARIANT])[[column.name for column in _REGIONS]]


def _graphs(parts: Compiled) -> pd.DataFrame:
    return _called(parts.graphs, [])[[column.name for column in _GRAPHS]]


def _called(rows: pd.DataFrame, more: list[str]) -> pd.DataFrame:
    """Calls and host time by rank and name."""
    keys = [C.RANK, C.NAME, *more]
    grouped = rows.astype({C.NAME: object}).groupby(keys, sort=True, dropna=False)
    table = grouped[C.DUR_NS].agg(calls="size", host_ns="sum").reset_index()
    return table.sort_values(["host_ns", C.RANK, C.NAME], ascending=[False, True, True], ignore_index=True)


def _kernels(parts: Compiled) -> pd.DataFrame:
    """One row per rank and origin, in the order of `ORIGINS`."""
    kernels = parts.kernels.assign(
        graph=(parts.kernels[C.KIND].astype(str) == DeviceKind.GRAPH).astype("int64")
    )
    kernels[ORIGIN] = pd.Categorical(kernels[ORIGIN], ORIGINS, ordered=True)
    grouped = kernels.groupby([C.RANK, ORIGIN], sort=True, observed=True)
    table = grouped.agg(
        count=(C.DUR_NS, "size"), sum_ns=(C.DUR_NS, "sum"), opaque=("graph", "sum")
    ).reset_index()
    table[ORIGIN] = table[ORIGIN].astype(object)
    table["share"] = share(ints(table, "sum_ns"), int(table["sum_ns"].sum()))
    return table[[column.name for column in _KERNELS]]


_NAME = Column(C.NAME, "", "name as recorded")
_CALLS = Column("calls", "count", "calls")
_HOST = Column("host_ns", "ns", "Σ of their durations on the host")

_SUMMARY = (
    Column("regions", "count", "calls of compiled regions"),
    Column("frames", "count", "distinct frames i of the regions i/j; missing where names carry no numbers"),
    Column(
        "breaks", "count", "frames − 1: graph breaks at most; functions compiled one by one count as well"
    ),
    Column("recompiled", "count", "distinct regions i/j with j > 0: compiled again for other inputs"),
    Column("graph_calls", "count", "calls of Inductor's graphs, forward and backward"),
    Column("lookups", "count", "searches for the compiled code that fits: guards run here"),
    Column("lookup_ns", "ns", "Σ of their durations on the host"),
    Column("lookup_idle_ns", "ns", "their part in which no device of the rank ran anything"),
    Column("resumes", "count", "regions after a graph break; missing without Python frames"),
    Column("break_idle_ns", "ns", "time from the region before each of them, devices idle; missing likewise"),
    Column("compilations", "count", "compilations inside of the capture"),
    Column("compile_ns", "ns", "Σ of their durations on the host"),
    Column("compile_idle_ns", "ns", "their part in which no device of the rank ran anything"),
    Column("replays", "count", "launches of CUDA graphs"),
    Column("kernels", "count", "kernels, with opaque graphs as one each"),
    RANK,
)
_REGIONS = (
    _NAME,
    _CALLS,
    _HOST,
    Column(FRAME, "", "the frame i it was compiled from; missing where the name does not tell"),
    Column(VARIANT, "", "which compilation j of the frame; missing where the name does not tell"),
    RANK,
)
_GRAPHS = (_NAME, _CALLS, _HOST, RANK)
_KERNELS = (
    Column(ORIGIN, "", "inductor, library, replayed or eager: see the definition"),
    Column("count", "count", "kernels, with opaque graphs as one each"),
    Column("sum_ns", "ns", "Σ of durations"),
    Column("share", "share", "Σ of durations over that of all kernels"),
    Column("opaque", "count", "of them CUDA graphs whose kernels were not recorded"),
    RANK,
)

ANALYSIS = Analysis(
    name="compile",
    title="Compiled code",
    question="What was compiled, what do guards and graph breaks cost, and what has compiling changed?",
    definition=(
        "Regions are `Torch-Compiled Region: i/j` (frame i, compilation j); breaks = distinct frames − 1, at "
        "most; recompiled = distinct i/j with j > 0; lookups = `TorchDynamo Cache Lookup`, where guards run; "
        "idle = the part in which no device of the rank ran anything. A kernel is Inductor's if its name "
        "begins with `triton_`. Compilation: what torch counted from the first call of a workload on; late = "
        "after the warm-up. Compared: eager base against compiled head, per step."
    ),
    tables=(
        TableSpec("summary", "Compiled code in profiled steps, per rank", _SUMMARY),
        TableSpec("kernels", "Kernels by origin", _KERNELS),
        TableSpec("regions", "Compiled regions", _REGIONS),
        TableSpec("graphs", "Graphs of Inductor", _GRAPHS),
        *counted.TABLES,
    ),
    sources=("TorchBench 3.2, Fig. 3 and 4",),
    order=90,
    compute=compute,
    rules=(*rules.RULES, *counted.RULES, *compare.RULES),
    compare=compare.compare,
    comparison=compare.TABLES,
)
