"""Read the compiled parts of a run: regions, graphs, guard lookups, compilations, and kernels by origin."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
import numpy.typing as npt
import pandas as pd
import pyarrow.compute as pc

from tracekit.analysis.kernel_names import matches
from tracekit.runs import intervals
from tracekit.runs.intervals import Ints
from tracekit.runs.run import Run, busy
from tracekit.schema import C, DeviceKind, HostKind

from ..launch_latency import GRAPH_CALL
from ..shared.common import NO_PARENT, ints, positions, segments_by, spans

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


def read_compiled(run: Run) -> CompiledRun:
    """Find the compiled parts of a run."""
    where = pc.field(C.KIND) != str(HostKind.PYTHON)
    host = run.table("host_intervals", columns=list(_READ), where=where)
    kernels = _read_kernels(run, host)
    if run.rows("steps"):
        host, kernels = host[host[C.STEP].notna()], kernels[kernels[C.STEP].notna()]
    regions = _with_numbers(_select(host, REGION))
    return CompiledRun(
        regions=regions,
        graphs=_select(host, GRAPH),
        lookups=_select(host, LOOKUP),
        compilations=_select_outermost(_select(host, COMPILING)),
        replays=_select(host, GRAPH_CALL),
        kernels=kernels.reset_index(drop=True),
        breaks=_measure_breaks(run, regions) if len(regions) else None,
    )


def _select(host: pd.DataFrame, pattern: str) -> pd.DataFrame:
    rows: pd.DataFrame = host[matches(host[C.NAME], pattern)]
    return rows.sort_values([C.RANK, C.START_NS, C.ROW_ID]).reset_index(drop=True)


def _with_numbers(regions: pd.DataFrame) -> pd.DataFrame:
    """Add frame and variant of each region; missing if the name has no numbers."""
    numbers = regions[C.NAME].astype(object).astype("string").str.extract(NUMBERED).astype("Int64")
    return regions.assign(**{FRAME: numbers[0], VARIANT: numbers[1]})


def _select_outermost(rows: pd.DataFrame) -> pd.DataFrame:
    """Intervals that no earlier interval of their thread encloses."""
    start, end = spans(rows)
    lane = rows.groupby(list(_LANE), sort=True).ngroup().to_numpy().astype(np.int64)
    order = np.lexsort((-end, start, lane))
    reach = pd.Series(end[order]).groupby(lane[order]).cummax().groupby(lane[order]).shift(fill_value=-1)
    selected = order[(start[order] >= reach.to_numpy(np.int64))]
    outer: pd.DataFrame = rows.iloc[np.sort(selected)]
    return outer.reset_index(drop=True)


def _read_kernels(run: Run, host: pd.DataFrame) -> pd.DataFrame:
    """Kernels and opaque graphs with their origin."""
    device = busy(run, list(_DEVICE))
    kernels = device[device[C.KIND].isin([str(DeviceKind.KERNEL), str(DeviceKind.GRAPH)])]
    kernels = kernels.reset_index(drop=True)
    call = positions(host[C.ROW_ID], kernels[C.LAUNCH_ROW])
    launched = call != NO_PARENT
    graph_call = matches(host[C.NAME], GRAPH_CALL).to_numpy(bool)
    opaque = (kernels[C.KIND].astype(str) == DeviceKind.GRAPH).to_numpy(bool)
    replayed = opaque | kernels[C.GRAPH_ID].notna().to_numpy(bool)
    replayed[launched] |= graph_call[call[launched]]
    inside = np.zeros(len(kernels), bool)
    inside[launched] = _inside(host, call[launched])
    generated = matches(kernels[C.NAME], INDUCTOR).to_numpy(bool)
    origin = np.select([generated, replayed, inside], [GENERATED, REPLAYED, CALLED], EAGER)
    return kernels.assign(**{ORIGIN: origin.astype(object), INSIDE: inside | generated})


def starts_in_compiled(host: pd.DataFrame, rows: pd.DataFrame) -> Bools:
    """Whether each of these rows starts while compiled code runs on its thread.

    Args:
        host: All rows of the host, with thread, start and duration.
        rows: Some of them.
    """
    return _inside(host, positions(host[C.ROW_ID], rows[C.ROW_ID]))


def _inside(host: pd.DataFrame, rows: Ints) -> Bools:
    """Whether each of these host rows starts while compiled code runs on its thread."""
    if not len(rows):
        return np.zeros(0, bool)
    lane = host.groupby(list(_LANE), sort=True).ngroup().to_numpy().astype(np.int64)
    start, end = spans(host)
    compiled = matches(host[C.NAME], COMPILED).to_numpy(bool)
    return _covers(segments_by(lane[compiled], start[compiled], end[compiled]), lane[rows], start[rows])


def _covers(segments: tuple[Ints, Ints, Ints], lane: Ints, moment: Ints) -> Bools:
    """Whether a segment of its lane covers each moment."""
    lanes, starts, ends = segments
    if not len(lanes) or not len(lane):
        return np.zeros(len(lane), bool)
    # lanes are laid one after the other on one axis, so that one search serves all of them
    first = min(int(starts.min()), int(moment.min()))
    width = max(int(ends.max()), int(moment.max())) - first + 1
    begin, finish = lanes * width + starts - first, lanes * width + ends - first
    wanted = lane * width + moment - first
    place = np.searchsorted(begin, wanted, side="right") - 1
    is_covered: Bools = (place >= 0) & (wanted < finish[np.maximum(place, 0)])
    return is_covered


def _measure_breaks(run: Run, regions: pd.DataFrame) -> pd.DataFrame | None:
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
    lanes_of = pd.concat([regions[list(_LANE)], resumed[list(_LANE)]], ignore_index=True)
    lane = lanes_of.groupby(list(_LANE), sort=True).ngroup().to_numpy().astype(np.int64)
    region_lane = lane[: len(regions)]
    start, end = spans(regions)
    inside = _covers(segments_by(lane[len(regions) :], *spans(resumed)), region_lane, start)
    order = np.lexsort((start, region_lane))
    before = np.concatenate(([-1], order[:-1])).astype(np.int64)[: len(order)]
    step = regions[C.STEP].fillna(NO_PARENT).to_numpy(np.int64)
    same_step = (before >= 0) & (region_lane[before] == region_lane[order]) & (step[before] == step[order])
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
    idle = {}
    for rank in sorted({int(row_rank) for row_rank in rows[C.RANK]}):
        rank_rows, rank_device = rows[rows[C.RANK] == rank], device[device[C.RANK] == rank]
        if len(rank_device):
            on_host, gaps = intervals.union(*spans(rank_rows)), intervals.gaps(*spans(rank_device))
            idle[rank] = intervals.length(intervals.intersect(gaps, on_host))
    return idle
