"""Select the compared part of each run: the same number of profiled steps, without warm-up.

A step counts from its start, or from the end of all earlier steps where that is later, to its own end on the
host or the device (`tracekit.runs.step_windows`): so steps of a host that runs ahead do not share time, and
the steps of a rank sum to what they cover together. Warm-up outliers are those of `tracekit.runs.step_times`.
As many leading steps are left out on both sides as the side with more outliers has, but one step always
stays; of the rest both sides keep the last n, n being the number the shorter side has. Where steps are not
marked on both sides, the whole capture of each rank is one step. Ranks are compared with those of their
number; where no number is on both sides, the lowest are, as many as both have.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass, field
from statistics import median_low
from typing import TypeAlias

import numpy as np
import numpy.typing as npt
import pandas as pd
import pyarrow.compute as pc

from tracekit.diff.naming import op_name
from tracekit.runs import step_times
from tracekit.runs.intervals import Ints
from tracekit.runs.run import Run, busy
from tracekit.runs.step_windows import END_NS, step_windows
from tracekit.schema import C, HostKind, Phase

WHOLE_CAPTURE = -1
"""Number of the one step of a capture without marked steps."""


@dataclass(frozen=True)
class StepRange:
    """The compared part of a run."""

    windows: pd.DataFrame  # rank, step, start and end of each compared step, disjoint within a rank
    has_step_marks: bool  # whether steps are marked; without, each rank's capture is one
    left_out: int = 0  # leading steps of each rank that were left out as warm-up
    unused: int = 0  # further steps of each rank that the other side has no match for, and ranks likewise
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


def select_steps(base: Run, head: Run) -> tuple[StepRange, StepRange]:
    """Return the steps of two runs that are compared."""
    a, b = _windows(base), _windows(head)
    has_step_marks = bool(len(a)) and bool(len(b))
    if not has_step_marks:
        a, b = _capture(base), _capture(head)
    ranks_a, ranks_b = _select_ranks(a, b)
    chosen = a[a[C.RANK].isin(ranks_a)], b[b[C.RANK].isin(ranks_b)]
    fewest = min(int(side.groupby(C.RANK).size().min()) if len(side) else 0 for side in chosen)
    # One number for both sides, as they must keep equally many steps.
    warmup = min(max(map(_warmup, chosen)), max(0, fewest - 1)) if has_step_marks else 0
    ranges = []
    for side, windows in zip(chosen, (a, b), strict=True):
        last = side.groupby(C.RANK, sort=True).tail(fewest - warmup).reset_index(drop=True)
        ranks = int(side[C.RANK].nunique())
        unused = len(side) - len(last) - warmup * ranks
        unused_ranks = int(windows[C.RANK].nunique()) - ranks
        ranges.append(StepRange(last, has_step_marks, warmup, max(0, unused), unused_ranks))
    return ranges[0], ranges[1]


def _select_ranks(a: pd.DataFrame, b: pd.DataFrame) -> tuple[list[int], list[int]]:
    """Return the ranks of each side that are compared."""
    ranks_a, ranks_b = (sorted(side[C.RANK].unique().tolist()) for side in (a, b))
    common = sorted({*ranks_a} & {*ranks_b})
    count = min(len(ranks_a), len(ranks_b))
    return (common, common) if common else (ranks_a[:count], ranks_b[:count])


def _windows(run: Run) -> pd.DataFrame:
    """Return the steps of each rank in order; once per run, as each is compared with all of its side."""
    return run.compute_once(_sort_windows)


def _sort_windows(run: Run) -> pd.DataFrame:
    table = step_windows(run)[[C.RANK, C.STEP, C.START_NS, END_NS]]
    return table.sort_values([C.RANK, C.START_NS, C.STEP], ignore_index=True)


def has_device(run: Run) -> bool:
    """Tell whether anything ran on a device."""
    return not busy(run, [C.RANK]).empty


def _capture(run: Run) -> pd.DataFrame:
    """Return the recorded time of each rank: on its devices, or on the host if it has none."""
    columns = [C.RANK, C.START_NS, C.DUR_NS]
    frame = busy(run, columns)
    if frame.empty:
        frame = run.table("host_intervals", columns=columns)
    ends = frame.assign(**{END_NS: frame[C.START_NS] + frame[C.DUR_NS]}).groupby(C.RANK, sort=True)
    captures = ends.agg(**{C.START_NS: (C.START_NS, "min"), END_NS: (END_NS, "max")}).reset_index()
    return captures.assign(**{C.STEP: WHOLE_CAPTURE})[[C.RANK, C.STEP, C.START_NS, END_NS]]


def _warmup(windows: pd.DataFrame) -> int:
    """Return the largest number of leading outlier steps of any rank."""
    lengths = (windows[END_NS] - windows[C.START_NS]).groupby(windows[C.RANK])
    return max((step_times.warmup(rank.to_numpy(np.int64)) for _, rank in lengths), default=0)


def inside(frame: pd.DataFrame, steps: StepRange) -> npt.NDArray[np.bool_]:
    """Return which rows belong to the compared steps."""
    return np.asarray(window_of(frame, steps) >= 0)


def window_of(frame: pd.DataFrame, steps: StepRange) -> Ints:
    """Return the position in `steps.windows` of the step that each row belongs to; -1 outside of all.

    Rows belong to the step they were launched in; where no row says which, to the step they start in.
    """
    rank = frame[C.RANK].to_numpy(np.int64)
    if not steps.has_step_marks:
        positions = pd.Index(steps.windows[C.RANK]).get_indexer(rank)
    elif frame[C.STEP].notna().any():
        compared = pd.MultiIndex.from_frame(steps.windows[[C.RANK, C.STEP]].astype(np.int64))
        keys = pd.MultiIndex.from_arrays([rank, frame[C.STEP].fillna(WHOLE_CAPTURE).to_numpy(np.int64)])
        is_first = ~compared.duplicated()  # in a damaged run, numbers may repeat
        positions = np.append(np.flatnonzero(is_first), -1)[compared[is_first].get_indexer(keys)]
    else:
        return _window_of_start(frame, steps)
    return np.asarray(positions, np.int64)


def _window_of_start(frame: pd.DataFrame, steps: StepRange) -> Ints:
    windows = np.full(len(frame), -1, np.int64)
    rank, start = frame[C.RANK].to_numpy(np.int64), frame[C.START_NS].to_numpy(np.int64)
    for number in steps.windows[C.RANK].unique():
        rows = np.flatnonzero(steps.windows[C.RANK].to_numpy() == number)
        starts, ends = (steps.windows[name].to_numpy(np.int64)[rows] for name in (C.START_NS, END_NS))
        # Windows of a rank are disjoint and ordered: only the last one that starts earlier can hold a row.
        place = np.searchsorted(starts, start, side="right") - 1
        held = (rank == number) & (place >= 0) & (start < ends[np.maximum(place, 0)])
        windows[held] = rows[place[held]]
    return windows


def capture_ns(run: Run) -> int:
    """Return the lower median of the recorded time of each rank; 0 if nothing is recorded."""
    captures = _capture(run)
    lengths = (captures[END_NS] - captures[C.START_NS]).tolist()
    return int(median_low(lengths)) if lengths else 0


ByOp: TypeAlias = dict[str, frozenset[str]]

_COLUMNS = (
    *(C.ROW_ID, C.NAME, C.RANK, C.STEP, C.START_NS, C.PARENT_ROW),
    *(C.INPUT_SHAPES, C.INPUT_DTYPES, C.PHASE),
)
_TENSOR = re.compile(r"\d")
_FLOATS = re.compile(r'"((?:c10::)?(?:float|double|Half|BFloat16|Float8\w*))"')


@dataclass(frozen=True)
class Shapes:
    """Inputs of the outermost ops by op name, if they have tensors."""

    shapes: ByOp = field(default_factory=dict)  # distinct shapes of the inputs
    dtypes: ByOp = field(default_factory=dict)  # distinct sets of floating-point types among the inputs
    trains: bool | None = None  # whether anything ran in a backward pass; None where no op was recorded


def read_inputs(run: Run, steps: StepRange) -> Shapes:
    """Read what the ops that are inside no other op were given; once per run and choice of its steps."""
    known = run.compute_once(_make_memo)
    key = steps.has_step_marks, steps.windows.to_numpy(np.int64).tobytes()
    if key not in known:
        known[key] = _read_inputs(run, steps)
    return known[key]


def _make_memo(_run: Run) -> dict[tuple[bool, bytes], Shapes]:
    return {}


def _read_inputs(run: Run, steps: StepRange) -> Shapes:
    where = pc.field(C.KIND) == str(HostKind.OP)
    ops = run.table("host_intervals", columns=list(_COLUMNS), where=where)
    inner = np.isin(ops[C.PARENT_ROW].fillna(-1).to_numpy(np.int64), ops[C.ROW_ID].to_numpy(np.int64))
    outer = ops[inside(ops, steps) & ~inner]
    trains = bool((outer[C.PHASE] == Phase.BACKWARD).any()) if len(outer) else None
    # Without a digit no input is a tensor; integer and bool types may vary.
    shapes = _by_op(outer, C.INPUT_SHAPES, lambda text: text if _TENSOR.search(text) else "")
    dtypes = _by_op(outer, C.INPUT_DTYPES, lambda text: ", ".join(sorted(set(_FLOATS.findall(text)))))
    return Shapes(shapes, dtypes, trains)


def _by_op(ops: pd.DataFrame, column: str, rename: Callable[[str], str]) -> ByOp:
    pairs = ops[[C.NAME, column]].dropna().drop_duplicates().astype(str)
    pairs = pairs.assign(**{C.NAME: pairs[C.NAME].map(op_name), column: pairs[column].map(rename)})
    named = pairs[pairs[column] != ""]
    return {str(name): frozenset(texts) for name, texts in named.groupby(C.NAME)[column]}
