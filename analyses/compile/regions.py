"""Read the compiled parts of a run: regions, graphs, guard lookups, compilations, and kernels by origin."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pandas as pd

from tracekit.analysis.kernel_names import matches
from tracekit.runs import intervals
from tracekit.runs.run import Run, busy
from tracekit.schema import C, DeviceKind, HostKind

from ..shared.common import GRAPH_CALL, NO_PARENT, Bools, ids_or_absent, ints, is_kind, spans
from ..shared.host_rows import host_rows
from ..shared.thread_ranges import THREAD, covering_ranges, outermost_ranges, ranges_by_name

NUMBERED = r"^Torch-Compiled Region: (\d+)/(\d+)"
GRAPH = r"CompiledFxGraph "
COMPILING = r"\(dynamo_timed\)$"
COMPILED = r"^Torch-Compiled Region|CompiledFxGraph |^CompiledFunction(?:Backward)?$"
LOOKUP = r"^TorchDynamo Cache Lookup$"
INDUCTOR = r"^triton_"
FRAME, VARIANT, ORIGIN, INSIDE = "frame", "variant", "origin", "inside"
GENERATED, REPLAYED, CALLED, EAGER = "inductor", "replayed", "called", "eager"
ORIGINS = (GENERATED, CALLED, REPLAYED, EAGER)

_PARTS = rf"{GRAPH_CALL}|{COMPILED}|{COMPILING}|{LOOKUP}"
"""Names of all rows of the host that tell of compiled code, and a few others, since case is ignored."""

READ = (C.ROW_ID, C.KIND, C.NAME, C.RANK, C.PID, C.TID, C.START_NS, C.DUR_NS, C.STEP, C.DEPTH)
_ORDER = [C.RANK, C.START_NS, C.ROW_ID]
_DEVICE = (
    *(C.ROW_ID, C.KIND, C.NAME, C.RANK, C.DEVICE, C.START_NS, C.DUR_NS, C.STEP),
    *(C.LAUNCH_ROW, C.OP_ROW, C.GRAPH_ID),
)


@dataclass(frozen=True)
class CompiledRun:
    """The compiled parts of a run, in its steps if steps are marked."""

    regions: pd.DataFrame  # calls of compiled regions, with `frame` and `variant` if the name has numbers
    graphs: pd.DataFrame  # calls of Inductor graphs
    lookups: pd.DataFrame  # lookups in Dynamo's code cache, where guards run
    compilations: pd.DataFrame  # outermost interval of each compilation
    replays: pd.DataFrame  # calls that replay a CUDA graph
    # kernels and opaque graphs with their `origin`, and whether compiled code launched them
    kernels: pd.DataFrame
    # time of the host from a region to the one after a graph break; None without Python frames
    breaks: pd.DataFrame | None

    @property
    def any(self) -> bool:
        """Whether anything of the run was compiled."""
        parts = (self.regions, self.graphs, self.lookups, self.compilations)
        return any(len(part) for part in parts) or bool((self.kernels[ORIGIN] == GENERATED).any())


def read_compiled(run: Run) -> CompiledRun:
    """Find the compiled parts of a run."""
    host = ranges_by_name(run, _PARTS, tuple(kind for kind in HostKind if kind != HostKind.PYTHON))
    kernels = _read_kernels(run, host)
    if run.rows("steps"):
        host, kernels = host[host[C.STEP].notna()], kernels[kernels[C.STEP].notna()]
    regions = _select(host, r"^Torch-Compiled Region")
    numbers = regions[C.NAME].astype(object).astype("string").str.extract(NUMBERED).astype("Int64")
    regions = regions.assign(**{FRAME: numbers[0], VARIANT: numbers[1]})
    return CompiledRun(
        regions=regions,
        graphs=_select(host, GRAPH),
        lookups=_select(host, LOOKUP),
        compilations=outermost_ranges(_select(host, COMPILING)).sort_values(_ORDER, ignore_index=True),
        replays=_select(host, GRAPH_CALL),
        kernels=kernels.reset_index(drop=True),
        breaks=_measure_breaks(run, regions) if len(regions) else None,
    )


def _select(host: pd.DataFrame, pattern: str) -> pd.DataFrame:
    rows: pd.DataFrame = host[matches(host[C.NAME], pattern)]
    return rows.sort_values(_ORDER, ignore_index=True)


def _read_kernels(run: Run, host: pd.DataFrame) -> pd.DataFrame:
    """Kernels and opaque graphs with their origin."""
    device = busy(run, list(_DEVICE))
    kernels = device[device[C.KIND].isin([str(DeviceKind.KERNEL), str(DeviceKind.GRAPH)])]
    kernels = kernels.reset_index(drop=True)
    launched, inside = kernels[C.LAUNCH_ROW], np.zeros(len(kernels), bool)
    replayed = (kernels[C.KIND] == DeviceKind.GRAPH).to_numpy(bool) | kernels[C.GRAPH_ID].notna().to_numpy(
        bool
    )
    replayed |= np.isin(ids_or_absent(launched), ints(host[matches(host[C.NAME], GRAPH_CALL)], C.ROW_ID))
    if matches(host[C.NAME], COMPILED).any():
        inside = starts_in_compiled(host, host_rows(run, launched, [*THREAD, C.START_NS]))
    generated = matches(kernels[C.NAME], INDUCTOR).to_numpy(bool)
    codes = np.select([generated, inside & ~replayed, replayed], range(3), 3)  # as indices into `ORIGINS`
    origin = pd.Categorical.from_codes(codes.astype(np.int8), pd.Index(ORIGINS), ordered=True)
    return kernels.assign(**{ORIGIN: origin, INSIDE: inside | generated})


def starts_in_compiled(host: pd.DataFrame, rows: pd.DataFrame) -> Bools:
    """Whether each of these rows starts while compiled code runs on its thread, by all host rows."""
    compiled = outermost_ranges(host[matches(host[C.NAME], COMPILED)])
    inside: Bools = covering_ranges(compiled, rows) != NO_PARENT
    return inside


def _measure_breaks(run: Run, regions: pd.DataFrame) -> pd.DataFrame | None:
    """Host time from each region to the next one, if that runs inside a resume function after a graph break.

    Returns:
        Rank, start and duration of each such gap, and the row of the region after it; None if no Python
        frames were recorded, which show the functions `torch_dynamo_resume_in_…`.
    """
    frames = run.table("host_intervals", columns=list(READ), where=is_kind(HostKind.PYTHON))
    if frames.empty:
        return None
    resumed = outermost_ranges(frames[matches(frames[C.NAME], r"torch_dynamo_resume_in_")])
    thread = regions.groupby(list(THREAD)).ngroup()
    is_resumed = covering_ranges(resumed, regions) != NO_PARENT
    ends = pd.Series(spans(regions)[1], dtype="Int64")
    ordered = regions.assign(thread=thread, resumed=is_resumed, end=ends).sort_values(["thread", C.START_NS])
    before = ordered.groupby(["thread", C.STEP], dropna=False)["end"].shift()
    length = ordered[C.START_NS] - before
    gaps = ordered.assign(**{C.START_NS: before, C.DUR_NS: length})[ordered["resumed"] & (length > 0)]
    columns = [C.RANK, C.START_NS, C.DUR_NS, C.ROW_ID]
    return gaps[columns].astype(np.int64).reset_index(drop=True)


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
