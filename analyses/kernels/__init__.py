"""Kernel time by full name, by family, by launching op, and by op and shapes.

Times are integer nanoseconds, summed over all ranks and devices. sum − union is the time that overlapped. A
first launch that takes far longer than later ones probably paid for module loading, autotuning or cold
caches.

Sources: torch.profiler, HTA and nsys; `tracekit.analysis.kernel_names` defines the families.

Example:
    >>> tracekit.analyze(run, "kernels").tables["families"].head(10)  # doctest: +SKIP
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pandas as pd

from tracekit.analysis import Analysis, ByRank, Column, Remark, Result, TableSpec
from tracekit.analysis.kernel_names import family, uses_tensor_cores
from tracekit.analysis.savings import StepTotals, combine_budget, measure_steps
from tracekit.runs.intervals import Ints
from tracekit.runs.run import Run, busy
from tracekit.runs.step_windows import after_warm_up
from tracekit.schema import C, DeviceKind, HostKind

from ..roofline.devices import device_peaks, with_given
from ..shared.common import (
    PLACE_COLUMNS,
    UNLINKED,
    Bools,
    absent_device_note,
    concat_tables,
    duration,
    ints,
    is_kind,
    map_categories,
    map_texts,
    medians,
    sort_by,
)
from ..shared.group_stats import STAT_COLUMNS, PartialStats, combine_stats, partial_stats
from ..shared.groups import number_by
from ..shared.host_rows import CAPTURED, NO_OP, NO_SHAPES, launching_texts
from ..shared.intervals_by_class import drop_overruns, overrun_notes
from .findings import FAMILY, OP, RULES, TENSOR, findings
from .selection import add_work, select_slow_kernels

MIN_FIRST_RATIO = 3
"""Duration of a first launch over the median of the later ones from which it is slow."""
MIN_FIRST_EXCESS_NS = 10_000
MIN_LATER_LAUNCHES = 2

_FIRST, _LATER = "first_ns", "later_median_ns"
_READ = (
    *(C.ROW_ID, C.NAME, C.RANK, C.DEVICE, C.STREAM, C.START_NS, C.DUR_NS, C.STEP, C.OP_ROW, C.LAUNCH_ROW),
    *CAPTURED.values(),
)

_LAUNCHED = [C.NAME, C.RANK, C.DEVICE]
_KEYS = {
    "families": [FAMILY, TENSOR],
    "names": [C.NAME, FAMILY, TENSOR],
    "by_op": [OP],
    "by_shape": [OP, C.INPUT_SHAPES, FAMILY],
    "tensor_cores": [TENSOR],
}

NO_OPS_NOTE = (
    "no kernel could be attributed to an op, so there are no tables by op and shape: record CPU activity too "
    "(`--collector torch`)"
)
UNLINKED_NOTE = f"{UNLINKED}, so there are no tables by op and shape"
OUTSIDE_OPS_NOTE = "all kernels were launched outside ops, so there are no tables by op and shape"
NO_SHAPES_NOTE = Remark(
    "no input shapes were recorded: record with `record_shapes=True` to group kernels by shape"
)


@dataclass(frozen=True, kw_only=True)
class Partial:
    """Partial result of some ranks."""

    spent: StepTotals  # their steps
    # their kernels by table; empty if they have none
    groups: dict[str, PartialStats] = field(default_factory=dict)
    first: pd.DataFrame | None = None  # slow first launches
    # number of other device intervals by kind, if there are no kernels
    others: dict[str, int] = field(default_factory=dict)
    linked: bool = False  # whether the launching call of any kernel is known
    has_ops: bool = False  # whether ops were recorded
    slow: pd.DataFrame | None = None  # kernels for which there are faster ones
    overruns: int = 0  # kernels left out because their durations are wrong


def measure(run: Run) -> Partial:
    """Group the kernels of some ranks."""
    recorded = run.table("device_intervals", columns=_READ, where=is_kind(DeviceKind.KERNEL))
    frame = drop_overruns(run, recorded)
    if frame.empty:
        kinds = busy(run, [C.KIND])[C.KIND]
        return Partial(
            spent=measure_steps(run), others={kind: int((kinds == kind).sum()) for kind in _NOT_KERNELS}
        )
    kernels = _describe(run, frame)
    in_ops, ops = (kernels[OP] != NO_OP).any(), is_kind(HostKind.OP)
    return Partial(
        spent=measure_steps(run),
        groups={table: partial_stats(kernels, keys) for table, keys in _KEYS.items()},
        first=_first_launches(kernels),
        linked=bool(frame[C.LAUNCH_ROW].notna().any()),
        has_ops=bool(in_ops) or run.arrow("host_intervals", columns=[C.ROW_ID], where=ops).num_rows > 0,
        slow=add_work(run, select_slow_kernels(after_warm_up(run, kernels))),
        overruns=len(recorded) - len(frame),
    )


def combine(run: Run, partials: Sequence[Partial]) -> Result:
    """Combine the kernels of all ranks."""
    parts = [part for part in partials if part.groups]
    if not parts:
        return Result(notes=(_no_kernels_note(run, partials),))
    tables = {name: combine_stats([part.groups[name] for part in parts]) for name in _KEYS}
    in_ops = (tables["by_op"][OP] != NO_OP).any()
    shaped = (tables["by_shape"][C.INPUT_SHAPES] != NO_SHAPES).any()
    tables = {name: table for name, table in tables.items() if in_ops or name not in ("by_op", "by_shape")}
    first = concat_tables([part.first for part in parts if part.first is not None])
    first = sort_by(first, "-excess_ns", *_LAUNCHED)
    tables["first_launches"] = first
    slow = concat_tables([part.slow for part in parts if part.slow is not None])
    peaks = device_peaks(run, ints(slow, C.DEVICE).tolist())
    against = combine_budget(partial.spent for partial in partials)
    results = with_given(run, findings(run, slow, first, peaks, against))
    wrong = overrun_notes(sum(part.overruns for part in parts))
    if in_ops:
        return Result(tables, results, wrong if shaped else (*wrong, NO_SHAPES_NOTE))
    why = OUTSIDE_OPS_NOTE if any(part.linked for part in parts) else UNLINKED_NOTE
    return Result(tables, results, (*wrong, why if any(part.has_ops for part in parts) else NO_OPS_NOTE))


def _no_kernels_note(run: Run, partials: Sequence[Partial]) -> str:
    """Note on a run without kernels: the other device activity, or why there is none."""
    counts = [
        (sum(partial.others.get(kind, 0) for partial in partials), names)
        for kind, names in _NOT_KERNELS.items()
    ]
    total = sum(count for count, _ in counts)
    if not total:
        return absent_device_note(run)
    listed = " and ".join(f"{count:,} {names[count != 1]}" for count, names in counts if count)
    were = "was" if total == 1 else "were"
    return f"no kernels in this capture, but {listed} {were} recorded: see `gpu_breakdown`"


_NOT_KERNELS = {
    DeviceKind.MEMCPY: ("copy", "copies"),
    DeviceKind.MEMSET: ("memset", "memsets"),
    DeviceKind.GRAPH: ("opaque graph", "opaque graphs"),
}


def _describe(run: Run, frame: pd.DataFrame) -> pd.DataFrame:
    """The kernels with their family, tensor-core use, and the op and shapes that launched them."""
    names, launching = frame[C.NAME], launching_texts(run, frame, {C.NAME: NO_OP, C.INPUT_SHAPES: NO_SHAPES})
    described: dict[str, Any] = {
        C.NAME: map_categories(names, str),
        FAMILY: map_categories(names, family),
        TENSOR: map_texts(names, uses_tensor_cores).to_numpy(np.bool_),
        OP: launching[C.NAME],
        C.INPUT_SHAPES: launching[C.INPUT_SHAPES],
    }
    recorded = [C.ROW_ID, C.RANK, C.DEVICE, C.STREAM, C.START_NS, C.DUR_NS, C.STEP, C.OP_ROW]
    return frame[recorded].assign(**described)


def _first_launches(kernels: pd.DataFrame) -> pd.DataFrame:
    """Kernels with a slow first launch on a device, most expensive first.

    It is compared with launches for the same shapes: larger tensors take longer every time.
    """
    kernels, is_earliest = _with_slow_first(kernels)
    codes, _ = number_by(kernels, [*_LAUNCHED, C.INPUT_SHAPES])
    repeated = np.flatnonzero(np.bincount(codes)[codes] > MIN_LATER_LAUNCHES)
    codes = np.unique(codes[repeated], return_inverse=True)[1]
    order = np.lexsort((ints(kernels, C.START_NS)[repeated], codes))
    rows, codes = repeated[order], codes[order]
    is_first = np.diff(codes, prepend=-1) != 0
    took = ints(kernels, C.DUR_NS)[rows]
    later_codes = codes[~is_first]
    # the lower median is a time that occurred; a mean would count later outliers
    later = medians(later_codes, int(is_first.sum()), took[~is_first])
    excess = took[is_first] - later
    slow = _exceeds(took[is_first], later) & is_earliest[rows[is_first]]
    first = kernels.iloc[rows[is_first][slow]]
    table = pd.DataFrame(
        {
            C.NAME: first[C.NAME].astype(object),
            C.RANK: first[C.RANK],
            C.DEVICE: first[C.DEVICE],
            _FIRST: first[C.DUR_NS],
            _LATER: later[slow],
            "count": np.bincount(later_codes)[slow],
            "excess_ns": excess[slow],
            C.ROW_ID: first[C.ROW_ID],
        }
    )
    return sort_by(table, "-excess_ns", *_LAUNCHED)


def _with_slow_first(kernels: pd.DataFrame) -> tuple[pd.DataFrame, Bools]:
    """Kernels whose first launch on a device may be slow, and whether each row is that launch.

    A median is no shorter than the shortest launch, which is found without sorting.
    """
    codes, groups = number_by(kernels, _LAUNCHED)
    start, took = ints(kernels, C.START_NS), ints(kernels, C.DUR_NS)
    earliest, shortest = start[groups], took[groups]
    np.minimum.at(earliest, codes, start)
    np.minimum.at(shortest, codes, took)
    is_earliest = start == earliest[codes]
    may_be_slow = np.zeros(len(groups), np.bool_)
    may_be_slow[codes[is_earliest & _exceeds(took, shortest[codes])]] = True
    chosen = may_be_slow[codes]
    return kernels[chosen], is_earliest[chosen]


def _exceeds(first_ns: Ints, later_ns: Ints) -> Bools:
    """Whether first launches are slow, compared with later ones."""
    exceeds: Bools = (first_ns > MIN_FIRST_RATIO * later_ns) & (first_ns - later_ns > MIN_FIRST_EXCESS_NS)
    return exceeds


_NAME = Column(C.NAME, "", "full name as recorded")
_FAMILY_COLUMN = Column(
    FAMILY, "", "canonical name: template types kept; parameters, numbers and hashes removed"
)
_TENSOR_COLUMN = Column(TENSOR, "", "whether the name indicates tensor cores; other kernels may use them too")
_OP_COLUMN = Column(OP, "", "innermost op that launched it, or captured it in a graph launched outside ops")
_SHAPES = Column(C.INPUT_SHAPES, "", "shapes of that op's inputs")

_BY_RANK = ByRank(map=measure, combine=combine)
_FIRST_LAUNCHES = (
    _NAME,
    *PLACE_COLUMNS,
    Column(_FIRST, "ns", "duration of the first launch in the capture"),
    Column(_LATER, "ns", "median of the later launches for the same shapes"),
    Column("count", "count", "number of these"),
    Column("excess_ns", "ns", "first minus that median"),
    Column(C.ROW_ID, "", "row of the first launch among the device intervals"),
)
ANALYSIS = Analysis(
    name="kernels",
    title="Kernels",
    question="Which kernels take the device's time, and which ops and shapes launch them?",
    definition=(
        "sum = Σ of durations; union = time at least one ran, per device and summed; median = lower median; "
        "share = sum over Σ of the durations of all kernels of the run; kernels that run over whole later "
        "work of their stream are left out. A first launch is listed "
        f"if it exceeds {MIN_FIRST_RATIO} times the median of at least {MIN_LATER_LAUNCHES} later ones for "
        f"the same shapes, and that median by {duration(MIN_FIRST_EXCESS_NS)}."
    ),
    tables=(
        TableSpec("families", "By family", (_FAMILY_COLUMN, _TENSOR_COLUMN, *STAT_COLUMNS)),
        TableSpec("names", "By full name", (_NAME, _FAMILY_COLUMN, _TENSOR_COLUMN, *STAT_COLUMNS)),
        TableSpec("by_op", "By launching op", (_OP_COLUMN, *STAT_COLUMNS)),
        TableSpec(
            "by_shape", "By op, shapes and family", (_OP_COLUMN, _SHAPES, _FAMILY_COLUMN, *STAT_COLUMNS)
        ),
        TableSpec("tensor_cores", "By use of tensor cores", (_TENSOR_COLUMN, *STAT_COLUMNS)),
        TableSpec("first_launches", "First launches that took far longer than later ones", _FIRST_LAUNCHES),
    ),
    sources=("torch.profiler key_averages", "HTA kernel breakdown", "nsys cuda_gpu_kern_sum"),
    order=30,
    reads=("device_intervals",),
    compute=_BY_RANK.whole,
    by_rank=_BY_RANK,
    rules=RULES,
    uses_peaks=True,
)
