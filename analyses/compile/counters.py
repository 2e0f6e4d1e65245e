"""Compilation counters of torch: tables, and findings on graph breaks and late compilations."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np
import numpy.typing as npt
import pandas as pd
import pyarrow.compute as pc

from tracekit.analysis import Basis, Bottleneck, Column, Finding, Rule, Severity, TableSpec
from tracekit.analysis.kernel_names import matches
from tracekit.analysis.savings import CONFIDENT, HIGH_SHARE
from tracekit.runs import intervals
from tracekit.runs.compilation import TIMED, Compilation, Compiled
from tracekit.runs.intervals import Ints, Union
from tracekit.runs.run import Run, busy
from tracekit.runs.text import human
from tracekit.schema import C, DeviceKind, HostKind

from ..launch_latency import GRAPH_CALL
from ..shared.common import NO_PARENT, ints, positions, segments_by, spans

LATE = Rule(
    "compile_late",
    states="torch compiled code in the timed or the profiled steps, after the warm-up",
    why="one compilation takes longer than many steps: times that include it are not steady-state step times",
    bound=Bottleneck.COMPUTE,
)
BROKEN = Rule(
    "compile_graph_breaks",
    states="torch counted a graph break",
    why="a graph ends there, so nothing is fused across it; torch reports the reason",
    bound=Bottleneck.COMPUTE,
)
RULES = (LATE, BROKEN)


def tables(run: Run, found: Compilation) -> dict[str, pd.DataFrame]:
    """Tables of all compilations together, of reasons of graph breaks, and of each compilation."""
    found_tables = {"compilation": _frame([_whole(run, found)], _WHOLE)}
    if found.breaks:
        rows = [
            {
                "reason": one.reason,
                "frames": one.frames,
                "times": one.times,
                "functions": ", ".join(one.functions),
                "explanation": one.explanation,
            }
            for one in found.breaks
        ]
        found_tables["graph_breaks"] = _frame(rows, _BREAKS)
    if found.compilations:
        names = [column.name for column in _EACH]
        found_tables["compilations"] = _frame(
            [{name: getattr(one, name) for name in names} for one in found.compilations], _EACH
        )
    return found_tables


def _whole(run: Run, found: Compilation) -> dict[str, Any]:
    every = found.compilations
    return {
        "backend": (run.meta.workload or {}).get("backend", ""),
        "first_call_ns": found.first_call_ns,
        "compile_ns": found.compile_ns,
        "compilations": len(every),
        "compiled_frames": len({one.frame for one in every}),
        "backend_graphs": found.graphs,
        "cached": found.cached,
        "ops": sum(one.ops or 0 for one in every),
        "guards": found.guards,
        "graph_breaks": found.graph_breaks,
        "recompilations": len(found.recompilations),
        "late": len(found.late),
    }


def _frame(rows: list[dict[str, Any]], columns: tuple[Column, ...]) -> pd.DataFrame:
    """Build a table with nullable integers."""
    frame = pd.DataFrame(rows, columns=[column.name for column in columns])
    whole = [column.name for column in columns if column.unit in {"ns", "count"}]
    return frame.astype(dict.fromkeys(whole, "Int64"))


def findings(run: Run, found: Compilation, *, parts: Sequence[str]) -> tuple[Finding, ...]:
    """Findings on torch's compilation counters.

    Args:
        run: The run.
        found: Torch's counters.
        parts: Parts of the recording whose compilations no other rule reports.
    """
    late = [_late(run, part, own) for part in parts if (own := _in(found, part))]
    return (*late, *([_broken(found)] if found.breaks else []))


def _in(found: Compilation, part: str) -> list[Compiled]:
    return [one for one in found.late if one.part == part]


def _late(run: Run, part: str, own: list[Compiled]) -> Finding:
    timed = run.meta.timings.step_ns if run.meta.timings and part == TIMED else []
    steps = len(timed) if timed else run.rows("steps") or 1
    total = sum(one.dur_ns for one in own)
    guard = next((f": {one.reason}" for one in own if one.reason), "")
    count = f"{len(own):,} compilation{'s' * (len(own) != 1)}"
    grave = not timed or total >= HIGH_SHARE * sum(timed)
    return Finding(
        code=LATE.code,
        severity=Severity.HIGH if grave else Severity.WARN,
        title=f"{count} ran in {part} steps, {human(total // steps, 'ns')} per step{guard}",
        advice=(
            "mark varying dimensions with `torch._dynamo.mark_dynamic` or `dynamic=True`, pad inputs to few "
            "shapes, or warm up with each shape; `TORCH_LOGS=recompiles` shows each guard that fails"
        ),
        saving_ns_per_step=total // steps,
        basis=Basis.MEASURED,
        how=f"time of these compilations as measured by torch, over the number of {part} steps",
        confidence=CONFIDENT,
    )


def _broken(found: Compilation) -> Finding:
    most, count = found.breaks[0], found.graph_breaks
    title = f"{count:,} graph break{'s' * (count != 1)}"
    others = len(found.breaks) - 1
    more = f" and {others} other reason{'s' * (others != 1)}" if others else ""
    return Finding(
        code=BROKEN.code,
        severity=Severity.INFO,
        title=f"{title}: {most.reason}{more}",
        advice=(
            f"in {', '.join(most.functions) or 'an unnamed function'}: "
            f"{most.explanation or 'see `TORCH_LOGS=graph_breaks`'}"
        ),
        confidence=CONFIDENT,
    )


_WHOLE = (
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
_BREAKS = (
    Column("reason", "prose", "torch's reason of the graph break"),
    Column("frames", "count", "frames it ended"),
    Column("times", "count", "times that a compilation met it, including recompilations"),
    Column("functions", "", "Python functions it is in"),
    Column("explanation", "prose", "torch's explanation and advice"),
)
_EACH = (
    Column("id", "", "torch's i/j: frame i, its compilation j"),
    Column("function", "", "the Python function, or backward"),
    Column("part", "", "part of the recording: warm-up, timed or profiled steps"),
    Column(C.DUR_NS, "ns", "compilation time, in whole microseconds"),
    Column("ops", "count", "operations of its graph; missing for a backward pass"),
    Column("guards", "count", "guards to check before each call; missing for a backward pass"),
    Column("reason", "prose", "guard that failed; empty for the first compilation of a frame"),
    Column("failed", "prose", "why compilation failed and the frame runs eagerly; else empty"),
)
TABLES = (
    TableSpec("compilation", "Compilation, as counted by torch", _WHOLE),
    TableSpec("graph_breaks", "Graph breaks by reason, most frequent first", _BREAKS),
    TableSpec("compilations", "Compilations, in order", _EACH),
)


if TYPE_CHECKING:
    Bools: TypeAlias = npt.NDArray[np.bool_]

REGION = r"^Torch-Compiled Region"
NUMBERED = r"^Torch-Compiled Region: (\d+)/(\d+)"
GRAPH = r"CompiledFxGraph "
LOOKUP = r"^TorchDynamo Cache Lookup$"
COMPILING = r"\(dynamo_timed\)$"
COMPILED = r"^Torch-Compiled Region|CompiledFxGraph |^CompiledFunction(?:Backward)?$"
INDUCTOR = r"^triton_"
RESUMES = r"torch_dynamo_resume_in_"
FRAME, VARIANT, ORIGIN, INSIDE = "frame", "variant", "origin", "inside"
GENERATED, REPLAYED, CALLED, EAGER = "inductor", "replayed", "called", "eager"
ORIGINS = (GENERATED, CALLED, REPLAYED, EAGER)

_READ = (C.ROW_ID, C.KIND, C.NAME, C.RANK, C.PID, C.TID, C.START_NS, C.DUR_NS, C.STEP, C.PARENT_ROW)
_LANE = (C.RANK, C.PID, C.TID)
_DEVICE = (
    *(C.ROW_ID, C.KIND, C.NAME, C.RANK, C.DEVICE, C.START_NS, C.DUR_NS, C.STEP),
    *(C.LAUNCH_ROW, C.OP_ROW, C.GRAPH_ID),
)


@dataclass(frozen=True)
class CompiledRun:
    """The compiled parts of a run, in its steps if steps are marked.

    Attributes:
        regions: Calls of compiled regions, with `frame` and `variant` if the name has numbers.
        graphs: Calls of Inductor graphs.
        lookups: Lookups in Dynamo's code cache, where guards run.
        compilations: Outermost interval of each compilation.
        replays: Calls that replay a CUDA graph.
        kernels: Kernels and opaque graphs with their `origin`, and whether compiled code launched them.
        breaks: Time of the host from a region to the one after a graph break; None without Python frames.
    """

    regions: pd.DataFrame
    graphs: pd.DataFrame
    lookups: pd.DataFrame
    compilations: pd.DataFrame
    replays: pd.DataFrame
    kernels: pd.DataFrame
    breaks: pd.DataFrame | None

    @property
    def any(self) -> bool:
        """Whether anything of the run was compiled."""
        parts = (self.regions, self.graphs, self.lookups, self.compilations)
        return any(len(part) for part in parts) or bool((self.kernels[ORIGIN] == GENERATED).any())


def read(run: Run) -> CompiledRun:
    """Find the compiled parts of a run."""
    where = pc.field(C.KIND) != str(HostKind.PYTHON)
    host = run.table("host_intervals", columns=list(_READ), where=where)
    kernels = _kernels(run, host)
    if run.rows("steps"):
        host, kernels = host[host[C.STEP].notna()], kernels[kernels[C.STEP].notna()]
    regions = _numbered(_named(host, REGION))
    return CompiledRun(
        regions=regions,
        graphs=_named(host, GRAPH),
        lookups=_named(host, LOOKUP),
        compilations=_outermost(_named(host, COMPILING)),
        replays=_named(host, GRAPH_CALL),
        kernels=kernels.reset_index(drop=True),
        breaks=_breaks(run, regions) if len(regions) else None,
    )


def _named(host: pd.DataFrame, pattern: str) -> pd.DataFrame:
    own: pd.DataFrame = host[matches(host[C.NAME], pattern)]
    return own.sort_values([C.RANK, C.START_NS, C.ROW_ID]).reset_index(drop=True)


def _numbered(regions: pd.DataFrame) -> pd.DataFrame:
    """Add frame and variant of each region; missing if the name has no numbers."""
    numbers = regions[C.NAME].astype(object).astype("string").str.extract(NUMBERED).astype("Int64")
    return regions.assign(**{FRAME: numbers[0], VARIANT: numbers[1]})


def _outermost(rows: pd.DataFrame) -> pd.DataFrame:
    """Intervals that no earlier interval of their thread encloses."""
    start, end = spans(rows)
    lane = rows.groupby(list(_LANE), sort=True).ngroup().to_numpy().astype(np.int64)
    order = np.lexsort((-end, start, lane))
    reach = pd.Series(end[order]).groupby(lane[order]).cummax().groupby(lane[order]).shift(fill_value=-1)
    selected = order[(start[order] >= reach.to_numpy(np.int64))]
    outer: pd.DataFrame = rows.iloc[np.sort(selected)]
    return outer.reset_index(drop=True)


def _kernels(run: Run, host: pd.DataFrame) -> pd.DataFrame:
    """Kernels and opaque graphs with their origin."""
    device = busy(run, list(_DEVICE))
    kernels = device[device[C.KIND].isin([str(DeviceKind.KERNEL), str(DeviceKind.GRAPH)])]
    kernels = kernels.reset_index(drop=True)
    at = positions(host[C.ROW_ID], kernels[C.LAUNCH_ROW])
    launched = at != NO_PARENT
    graph_call = matches(host[C.NAME], GRAPH_CALL).to_numpy(bool)
    opaque = (kernels[C.KIND].astype(str) == DeviceKind.GRAPH).to_numpy(bool)
    replayed = opaque | kernels[C.GRAPH_ID].notna().to_numpy(bool)
    replayed[launched] |= graph_call[at[launched]]
    inside = np.zeros(len(kernels), bool)
    inside[launched] = _inside(host, at[launched])
    generated = matches(kernels[C.NAME], INDUCTOR).to_numpy(bool)
    origin = np.select([generated, replayed, inside], [GENERATED, REPLAYED, CALLED], EAGER)
    return kernels.assign(**{ORIGIN: origin.astype(object), INSIDE: inside | generated})


def within(host: pd.DataFrame, rows: pd.DataFrame) -> Bools:
    """Whether each of these rows starts while compiled code runs on its thread.

    Args:
        host: All rows of the host, with thread, start and duration.
        rows: Some of them.
    """
    return _inside(host, positions(host[C.ROW_ID], rows[C.ROW_ID]))


def _inside(host: pd.DataFrame, at: Ints) -> Bools:
    """Whether each of these host rows starts while compiled code runs on its thread."""
    if not len(at):
        return np.zeros(0, bool)
    lane = host.groupby(list(_LANE), sort=True).ngroup().to_numpy().astype(np.int64)
    start, end = spans(host)
    compiled = matches(host[C.NAME], COMPILED).to_numpy(bool)
    return _covers(segments_by(lane[compiled], start[compiled], end[compiled]), lane[at], start[at])


def _covers(segments: tuple[Ints, Ints, Ints], lane: Ints, moment: Ints) -> Bools:
    """Whether a segment of its lane covers each moment."""
    lanes, starts, ends = segments
    if not len(lanes) or not len(lane):
        return np.zeros(len(lane), bool)
    first = min(int(starts.min()), int(moment.min()))
    width = max(int(ends.max()), int(moment.max())) - first + 1
    begin, finish = lanes * width + starts - first, lanes * width + ends - first
    wanted = lane * width + moment - first
    place = np.searchsorted(begin, wanted, side="right") - 1
    found: Bools = (place >= 0) & (wanted < finish[np.maximum(place, 0)])
    return found


def _breaks(run: Run, regions: pd.DataFrame) -> pd.DataFrame | None:
    """Host time from each region to the next one, if that runs inside a resume function after a graph break.

    Returns:
        Rank, start and duration of each such gap, and the row of the region after it; None if no Python
        frames were recorded, which show the functions `torch_dynamo_resume_in_…`.
    """
    where = pc.field(C.KIND) == str(HostKind.PYTHON)
    frames = run.table("host_intervals", columns=list(_READ), where=where)
    if frames.empty:
        return None
    resumed = frames[matches(frames[C.NAME], RESUMES)]
    both = pd.concat([regions[list(_LANE)], resumed[list(_LANE)]], ignore_index=True)
    lane = both.groupby(list(_LANE), sort=True).ngroup().to_numpy().astype(np.int64)
    own = lane[: len(regions)]
    start, end = spans(regions)
    inside = _covers(segments_by(lane[len(regions) :], *spans(resumed)), own, start)
    order = np.lexsort((start, own))
    before = np.concatenate(([-1], order[:-1])).astype(np.int64)[: len(order)]
    step = regions[C.STEP].fillna(NO_PARENT).to_numpy(np.int64)
    same_step = (before >= 0) & (own[before] == own[order]) & (step[before] == step[order])
    selected = same_step & inside[order] & (start[order] > end[before])
    after, earlier = order[selected], before[selected]
    columns = {C.RANK: ints(regions, C.RANK)[after], C.START_NS: end[earlier]}
    lengths = start[after] - end[earlier]
    return pd.DataFrame({**columns, C.DUR_NS: lengths, C.ROW_ID: ints(regions, C.ROW_ID)[after]})


def idle_during(run: Run, rows: pd.DataFrame) -> dict[int, int]:
    """By rank, the time of these host rows with all devices of the rank idle.

    Time before the first and after the last device interval does not count.
    """
    device = busy(run, [C.RANK, C.START_NS, C.DUR_NS])
    found = {}
    for rank in sorted({int(one) for one in rows[C.RANK]}):
        own, mine = rows[rows[C.RANK] == rank], device[device[C.RANK] == rank]
        if len(mine):
            found[rank] = intervals.length(intervals.intersect(_idle(mine), intervals.union(*spans(own))))
    return found


def _idle(device: pd.DataFrame) -> Union:
    return intervals.gaps(*spans(device))
