"""Select the compared part of each run: the same number of profiled steps, without warm-up.

A step counts from its start, or from the end of all earlier steps where that is later, to its own end on the
host or the device (`tracekit.runs.step_windows`): so steps of a host that runs ahead do not share time, and
the steps of a rank sum to what they cover together. Warm-up outliers are those of
`tracekit.runs.step_times`. As many leading steps are left out on both sides as the side with more outliers
has, but one step always stays;
of the rest both sides keep the last n, n being the number the shorter side has. Where steps are not marked on
both sides, the whole capture of each rank is one step. Ranks are compared with those of their number; where
no number is on both sides, the lowest are, as many as both have.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from statistics import median_low
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt
import pandas as pd
import pyarrow.compute as pc

from tracekit.analysis.kernel_names import brief, family
from tracekit.diff.naming import op_name
from tracekit.runs import step_times
from tracekit.runs.intervals import Ints
from tracekit.runs.run import Run, busy
from tracekit.runs.step_windows import END_NS, step_windows
from tracekit.schema import C, HostKind, Phase

WHOLE_CAPTURE = -1
"""Number of the one step of a capture without marked steps."""


@dataclass(frozen=True)
class Span:
    """The compared part of a run.

    Attributes:
        windows: Rank, step, start and end of each compared step, disjoint within a rank.
        marked: Whether steps are marked; without, each rank's capture is one.
        left_out: Leading steps of each rank that were left out as warm-up.
        unused: Further steps of each rank that the other side has no match for, and ranks likewise.
    """

    windows: pd.DataFrame
    marked: bool
    left_out: int = 0
    unused: int = 0
    unused_ranks: int = 0

    @property
    def steps(self) -> int:
        """Compared steps of all ranks."""
        return len(self.windows)

    @property
    def total_ns(self) -> int:
        """Length of all compared steps."""
        return int((self.windows[END_NS] - self.windows[C.START_NS]).sum())

    def step_ns(self) -> list[int]:
        """Length of each compared step."""
        lengths: list[int] = (self.windows[END_NS] - self.windows[C.START_NS]).tolist()
        return lengths


def shared(base: Run, head: Run) -> tuple[Span, Span]:
    """The parts of two runs that are compared."""
    a, b = _own_windows(base), _own_windows(head)
    marked = bool(len(a)) and bool(len(b))
    if not marked:
        a, b = _capture(base), _capture(head)
    own_a, own_b = (side[side[C.RANK].isin(ranks)] for side, ranks in zip((a, b), _ranks(a, b), strict=True))
    fewest = min(_fewest(own_a), _fewest(own_b))
    warmup = min(max(_warmup(own_a), _warmup(own_b)), max(0, fewest - 1)) if marked else 0
    count = fewest - warmup
    return (
        _last(own_a, count, warmup, marked=marked, unused_ranks=_lacking(own_a, a)),
        _last(own_b, count, warmup, marked=marked, unused_ranks=_lacking(own_b, b)),
    )


def _ranks(a: pd.DataFrame, b: pd.DataFrame) -> tuple[list[int], list[int]]:
    """The ranks of each side that are compared."""
    own = [sorted(side[C.RANK].unique().tolist()) for side in (a, b)]
    common = sorted({*own[0]} & {*own[1]})
    most = min(len(own[0]), len(own[1]))
    return (common, common) if common else (own[0][:most], own[1][:most])


def _lacking(chosen: pd.DataFrame, windows: pd.DataFrame) -> int:
    return int(windows[C.RANK].nunique() - chosen[C.RANK].nunique())


def _last(own: pd.DataFrame, count: int, warmup: int, *, marked: bool, unused_ranks: int) -> Span:
    last = own.groupby(C.RANK, sort=True).tail(count).reset_index(drop=True)
    unused = len(own) - len(last) - warmup * own[C.RANK].nunique()
    return Span(last, marked, warmup, max(0, unused), unused_ranks)


def _fewest(windows: pd.DataFrame) -> int:
    sizes = windows.groupby(C.RANK, sort=True).size()
    return int(sizes.min()) if len(sizes) else 0


def _own_windows(run: Run) -> pd.DataFrame:
    """The steps of each rank in order."""
    table = step_windows(run)[[C.RANK, C.STEP, C.START_NS, END_NS]]
    return table.sort_values([C.RANK, C.START_NS, C.STEP], ignore_index=True)


def _capture(run: Run) -> pd.DataFrame:
    """Return the recorded time of each rank: on its devices, or on the host if it has none."""
    columns = [C.RANK, C.START_NS, C.DUR_NS]
    frame = busy(run, columns)
    if frame.empty:
        frame = run.table("host_intervals", columns=columns)
    ends = frame.assign(**{END_NS: frame[C.START_NS] + frame[C.DUR_NS]}).groupby(C.RANK, sort=True)
    whole = ends.agg(**{C.START_NS: (C.START_NS, "min"), END_NS: (END_NS, "max")}).reset_index()
    return whole.assign(**{C.STEP: WHOLE_CAPTURE})[[C.RANK, C.STEP, C.START_NS, END_NS]]


def _warmup(windows: pd.DataFrame) -> int:
    """Return the largest number of leading outlier steps of any rank."""
    lengths = (windows[END_NS] - windows[C.START_NS]).groupby(windows[C.RANK])
    return max((step_times.warmup(own.to_numpy(np.int64)) for _, own in lengths), default=0)


def inside(frame: pd.DataFrame, span: Span) -> np.ndarray[tuple[int], np.dtype[np.bool_]]:
    """Return which rows belong to the compared steps."""
    found: np.ndarray[tuple[int], np.dtype[np.bool_]] = window_of(frame, span) >= 0
    return found


def window_of(frame: pd.DataFrame, span: Span) -> Ints:
    """Return the position in `span.windows` of the step that each row belongs to; -1 outside of all.

    Rows belong to the step they were launched in; where no row says which, to the step they start in.
    """
    rank = frame[C.RANK].to_numpy(np.int64)
    if not span.marked:
        return _places(pd.Index(span.windows[C.RANK]).get_indexer(rank))
    if frame[C.STEP].notna().any():
        wanted = pd.MultiIndex.from_frame(span.windows[[C.RANK, C.STEP]].astype(np.int64))
        asked = pd.MultiIndex.from_arrays([rank, frame[C.STEP].fillna(WHOLE_CAPTURE).to_numpy(np.int64)])
        return _places(wanted.get_indexer(asked))
    return _starting_inside(frame, span)


def _places(found: npt.NDArray[np.intp]) -> Ints:
    return found.astype(np.int64)


def _starting_inside(frame: pd.DataFrame, span: Span) -> Ints:
    found = np.full(len(frame), -1, np.int64)
    rank, start = frame[C.RANK].to_numpy(np.int64), frame[C.START_NS].to_numpy(np.int64)
    for one in span.windows[C.RANK].unique():
        at = np.flatnonzero(span.windows[C.RANK].to_numpy() == one)
        starts, ends = (span.windows[name].to_numpy(np.int64)[at] for name in (C.START_NS, END_NS))
        place = np.searchsorted(starts, start, side="right") - 1
        held = (rank == one) & (place >= 0) & (start < ends[np.maximum(place, 0)])
        found[held] = at[place[held]]
    return found


def capture_ns(run: Run) -> int:
    """Return the lower median of the recorded time of each rank; 0 if nothing is recorded."""
    captures = _capture(run)
    lengths = (captures[END_NS] - captures[C.START_NS]).tolist()
    return int(median_low(lengths)) if lengths else 0


if TYPE_CHECKING:
    ByOp = dict[str, frozenset[str]]

_COLUMNS = (
    *(C.ROW_ID, C.NAME, C.RANK, C.STEP, C.START_NS, C.PARENT_ROW),
    *(C.INPUT_SHAPES, C.INPUT_DTYPES, C.PHASE),
)
_TENSOR = re.compile(r"\d")
_FLOATS = re.compile(r'"((?:c10::)?(?:float|double|Half|BFloat16|Float8\w*))"')


@dataclass(frozen=True)
class Shapes:
    """Inputs of the outermost ops by op name, if they have tensors.

    Attributes:
        shapes: Distinct shapes of the inputs.
        dtypes: Distinct sets of floating-point types among the inputs.
        trains: Whether anything ran in a backward pass; None where no op was recorded.
    """

    shapes: ByOp = field(default_factory=dict)
    dtypes: ByOp = field(default_factory=dict)
    trains: bool | None = None


def read(run: Run, span: Span) -> Shapes:
    """Read what the ops that are inside no other op were given."""
    where = pc.field(C.KIND) == str(HostKind.OP)
    ops = run.table("host_intervals", columns=list(_COLUMNS), where=where)
    inner = np.isin(ops[C.PARENT_ROW].fillna(-1).to_numpy(np.int64), ops[C.ROW_ID].to_numpy(np.int64))
    outer = ops[inside(ops, span) & ~inner]
    trains = bool((outer[C.PHASE] == Phase.BACKWARD).any()) if len(outer) else None
    return Shapes(_by_op(outer, C.INPUT_SHAPES, _shapes), _by_op(outer, C.INPUT_DTYPES, _floats), trains)


def _by_op(ops: pd.DataFrame, column: str, rename: Callable[[str], str]) -> ByOp:
    pairs = ops[[C.NAME, column]].dropna().drop_duplicates().astype(str)
    pairs = pairs.assign(**{C.NAME: pairs[C.NAME].map(op_name), column: pairs[column].map(rename)})
    named = pairs[pairs[column] != ""]
    return {str(name): frozenset(own) for name, own in named.groupby(C.NAME)[column]}


def _shapes(text: str) -> str:
    """Return the shapes; empty without a tensor among the inputs."""
    return text if _TENSOR.search(text) else ""


def _floats(text: str) -> str:
    """Return the floating-point types of the inputs; integer and bool types may vary."""
    return ", ".join(sorted(set(_FLOATS.findall(text))))


_SPAN_COLUMNS = (C.RANK, C.STEP, C.START_NS, C.NAME)


def unlike(name: str, runs: Sequence[Run], explained: Run, *, on_device: bool) -> list[str]:
    """Return a note on runs of a side whose counts differ from those of the explained run.

    Args:
        name: `base` or `head`.
        runs: All runs of the side.
        explained: The one whose trace explains it.
        on_device: Whether work on devices is counted; else ops of the host are.
    """
    found = [_differing(explained, run, on_device=on_device) for run in runs if run.path != explained.path]
    others = [names for names in found if names]
    if not others:
        return []
    names = sorted({one for names in others for one in names})
    more = f" and {len(names) - 1} more names" if len(names) > 1 else ""
    are = "1 other run of the {} has" if len(others) == 1 else f"{len(others)} other runs of the {{}} have"
    return [
        f"{are.format(name)} another count of {brief(names[0])}{more} than {explained.id}: a count that "
        "changed may not hold in every run"
    ]


def _differing(explained: Run, other: Run, *, on_device: bool) -> list[str]:
    """Names that two runs have another number of times in as many steps."""
    both = zip((explained, other), shared(explained, other), strict=True)
    a, b = (_counts(run, span, on_device=on_device) for run, span in both)
    differences = a.sub(b, fill_value=0)
    return [str(name) for name in differences.index[differences != 0]]


def _counts(run: Run, span: Span, *, on_device: bool) -> pd.Series:
    if on_device:
        frame = busy(run, list(_SPAN_COLUMNS))
    else:
        where = pc.field(C.KIND) == str(HostKind.OP)
        frame = run.table("host_intervals", columns=list(_SPAN_COLUMNS), where=where)
    counts = frame.loc[inside(frame, span), C.NAME].astype(str).value_counts()
    return counts.groupby(counts.index.map(family if on_device else op_name)).sum()
