"""Host rows by id, their source lines, the ops of a run with their nesting, and calls that block the host.

Ids are those of column `row_id` in `host_intervals`; columns that refer to a row (`op_row`, `launch_row`,
`parent_row`) contain them. A position is the index of a row in a table or array that was read. Both are
`NO_PARENT` (-1) for none, which as an index selects the last entry: arrays that are looked up have an entry
for "none" appended.

The self time of an op is its duration minus the durations of its direct child *ops*; runtime calls,
annotations and Python frames inside it are not subtracted, so the cost of a launch is attributed to its
op, and the self times of all ops sum to the time ops cover. The total time of a name counts only calls
that are not inside another call of the same name, so recursion is not counted twice.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc

from tracekit.analysis import Column
from tracekit.analysis.host_verdict import MIN_LOCK_WAIT_NS
from tracekit.analysis.model import compute_shared, has_values
from tracekit.analysis.modules import levels
from tracekit.ingest.link.nesting import climb_to
from tracekit.runs.intervals import Ints
from tracekit.runs.range_names import MARKER
from tracekit.runs.run import Run
from tracekit.runs.selection import RowIndex
from tracekit.runs.step_windows import END_NS, step_windows
from tracekit.schema import C, HostKind, Memory

from .common import (
    NO_PARENT,
    Bools,
    Objects,
    contains,
    fill_categories,
    ids_or_absent,
    ints,
    is_kind,
    overlap_by,
    share,
    sort_by,
    spans,
    to_categorical,
)
from .groups import order_by_number, sum_by_code
from .host_columns import LazyColumns, read_parents

LOADS_CODE = r"(?i)lazy|compil|module[ _]?load"
"""Overhead that is no profiler's: loading code when it is first used, compilation."""
NO_OP = "(no op recorded)"
NO_SHAPES = "(no shapes recorded)"
NO_SOURCE = ""
"""Source line without a recorded stack; `tracekit collect --stacks` records stacks."""

_MIN_ROWS_PER_ID = 16
"""Minimum ratio of rows to ids at which ids are filtered individually instead of as a range."""
_LIBRARY = (
    r"(?:^|/)(?:torch|torchvision|numpy|importlib|multiprocessing|concurrent|asyncio|contextlib|threading|queue)/"
    r"|site-packages/|dist-packages/|(?:/lib/|^)python\d|^<|^(?:threading|contextlib|runpy|copy|functools)\.py\("
)
"""Frames of torch, installed packages and the standard library."""
COMPREHENSIONS = ("<genexpr>", "<listcomp>", "<setcomp>", "<dictcomp>")
"""Ends of frames that are part of the function around them."""
_FRAME = r"\.py\(\d+\): "  # frames of Python code: `train.py(12): main`
MODULE = "nn.Module: "
"""Beginning of the names of module calls."""
PATH_SEPARATOR = " > "
"""Separator of the names in `captured_path`."""
CAPTURED = {C.NAME: C.CAPTURED_OP, C.INPUT_SHAPES: C.CAPTURED_SHAPES}
"""Columns of host intervals with those of device intervals that hold the same of the op that captured them in
a CUDA or HIP graph."""


def host_rows(run: Run, rows: pd.Series, columns: Sequence[str]) -> pd.DataFrame:
    """Columns of the host rows with these ids; missing for null and absent ids.

    Returns:
        One row per id, on the same index; texts are objects, integers nullable.
    """
    rows_read, position = _read_rows(run, ids_or_absent(rows), columns)
    values = {name: _take(rows_read[name], position) for name in columns}
    return pd.DataFrame(values, copy=False).set_axis(rows.index)


def host_texts(run: Run, rows: pd.Series, absent: dict[str, str]) -> dict[str, pd.Categorical]:
    """Text columns of the host rows with these ids, as sorted categories; `absent` has the text for none.

    Unlike in `host_rows` no text is repeated per row, which matters for millions of rows.
    """
    rows_read, position = _read_rows(run, ids_or_absent(rows), [*absent])
    return {
        name: fill_categories(rows_read[name].array.take(position, allow_fill=True), text)
        for name, text in absent.items()
    }


def launching_texts(run: Run, rows: pd.DataFrame, absent: dict[str, str]) -> dict[str, pd.Categorical]:
    """Text columns of the ops that launched device intervals, or captured them in a graph, as `host_texts`.

    The kernels of a graph launch have no launching op where the launch is outside of ops; then the op that
    captured them is theirs. `absent` has the text of each column of `CAPTURED` where it is unknown.
    """
    texts = host_texts(run, rows[C.OP_ROW], absent)
    captured = (rows[C.OP_ROW].isna() & rows[C.CAPTURED_OP].notna()).to_numpy(bool)
    if not captured.any():
        return texts
    for name, absent_text in absent.items():
        captured_texts = fill_missing_text(rows.loc[captured, CAPTURED[name]], absent_text)
        all_texts = np.array(texts[name], object)
        all_texts[captured] = captured_texts
        codes, labels = pd.factorize(all_texts)
        texts[name] = to_categorical([str(label) for label in labels], codes)
    return texts


def _read_rows(run: Run, ids: Ints, columns: Sequence[str]) -> tuple[pd.DataFrame, Ints]:
    """Read host rows that include these ids; return them with the positions of the ids."""
    present, rows = ids[ids != NO_PARENT], run.rows("host_intervals")
    row_id, where, row_ids = pc.field(C.ROW_ID), None, None  # whole columns stay in memory
    if len(present) * _MIN_ROWS_PER_ID <= rows:
        row_ids = pd.unique(present)
    elif 2 * (np.ptp(present) + 1) < rows:
        where = (row_id >= int(present.min())) & (row_id <= int(present.max()))
    names = [*dict.fromkeys([C.ROW_ID, *columns])]
    frame = run.table("host_intervals", columns=names, where=where, row_ids=row_ids)
    return frame, RowIndex(ints(frame, C.ROW_ID)).of(ids)


def _take(values: pd.Series, position: Ints) -> object:
    """Values at positions, missing at -1: text as objects, integers as nullable integers."""
    if isinstance(values.dtype, pd.CategoricalDtype):
        texts = np.append(values.cat.categories.to_numpy(object), [np.nan])
        return texts[np.append(values.cat.codes.to_numpy(), NO_PARENT)[position]]
    if values.dtype.kind in "iu":
        plain = ids_or_absent(values)
        absent = np.append(values.isna().to_numpy(bool), [True])[position]
        return pd.arrays.IntegerArray(np.append(plain, [0])[position], absent)
    return np.append(values.to_numpy(np.float64, na_value=np.nan), [np.nan])[position]


def fill_missing_text(values: pd.Series, absent: str) -> Objects:
    """Text column as an array of objects, with a replacement for missing values."""
    if isinstance(values.dtype, pd.CategoricalDtype):  # the code of what is missing is -1
        texts = np.append(values.dtype.categories.to_numpy(object), [absent])
        filled: Objects = texts[values.array.codes]
        return filled
    return values.astype(object).where(values.notna(), absent).to_numpy(object)


def source_lines(run: Run, rows: pd.Series) -> pd.Series:
    """Source line of user code for each host row: `train.py(12): main`, empty without a recorded stack.

    Uses the stack of the row if the profiler wrote one, else the enclosing Python frames on its thread.
    Frames of torch, installed packages and the standard library are skipped unless there are no others;
    then the innermost one is used.
    """
    # Many rows have the same op: each distinct id is looked up once.
    id_code, ids = pd.factorize(ids_or_absent(rows))
    is_known = ids != NO_PARENT
    distinct = pd.Series(ids[is_known], dtype="Int64")
    if distinct.empty:
        return pd.Series(NO_SOURCE, index=rows.index, dtype=object)
    lines = _stack_lines(run, distinct)
    without_stack = pd.isna(lines)
    lines[without_stack] = _python_frames(run, ids[is_known][without_stack])
    line_of_id = np.full(len(ids), NO_SOURCE, object)
    line_of_id[is_known] = lines
    return pd.Series(line_of_id[id_code], index=rows.index, dtype=object)


def _stack_lines(run: Run, rows: pd.Series) -> Objects:
    """User code line of each row's recorded stack, missing without one."""
    if not has_values(run, "host_intervals", C.STACK):
        return np.full(len(rows), np.nan, object)
    row_id = pc.field(C.ROW_ID)
    where = pc.field(C.STACK).is_valid() & (row_id >= int(rows.min())) & (row_id <= int(rows.max()))
    stack_rows = run.table("host_intervals", columns=[C.ROW_ID, C.STACK], where=where)
    position = RowIndex(stack_rows[C.ROW_ID].to_numpy(dtype=np.int64)).of(ids_or_absent(rows))
    stacks = stack_rows[C.STACK].cat.remove_unused_categories().cat
    lines = np.array([*(line_of(str(stack)) for stack in stacks.categories), np.nan], object)
    lines_of_rows: Objects = lines[np.append(stacks.codes.to_numpy(), NO_PARENT)[position]]
    return lines_of_rows


def sampled_lines(run: Run, ranks: Ints, start: Ints, end: Ints) -> Objects:
    """Line of user code that most samples of Python stacks in each interval have, `NO_SOURCE` without one.

    It is that of another thread where this one holds the interpreter lock.
    """
    lines = np.full(len(start), NO_SOURCE, object)
    columns = [C.T_NS, C.RANK, C.STACK, C.SOURCE_LINES, C.RAN_NS, C.LOCK_WAIT_NS]
    samples = run.table("host_samples", columns=columns)
    for rank, of_rank in samples.groupby(C.RANK):
        is_other = of_rank[C.RAN_NS].notna()
        others, of_steps = of_rank[is_other], of_rank[~is_other]
        holders = dict(zip(others[C.T_NS], _lines(others), strict=True))
        times, sampled = ints(of_steps, C.T_NS), np.array(_lines(of_steps), object)  # sorted by time
        for place in np.flatnonzero(of_steps[C.LOCK_WAIT_NS].fillna(0) >= MIN_LOCK_WAIT_NS):
            sampled[place] = holders.get(times[place], sampled[place])
        first, stop = np.searchsorted(times, start), np.searchsorted(times, end)
        for interval in np.flatnonzero((ranks == rank) & (stop > first)):
            found, counts = np.unique(sampled[first[interval] : stop[interval]], return_counts=True)
            lines[interval] = found[counts.argmax()]
    return lines


def sampled_waits(run: Run, ranks: Ints, start: Ints, end: Ints, waits: str) -> Bools:
    """Whether most samples of Python stacks in each interval are in a function that only waits.

    That is for nothing that another thread does, which holds the interpreter lock.
    """
    is_waiting = np.zeros(len(start), np.bool_)
    samples = run.table("host_samples", columns=[C.T_NS, C.RANK, C.STACK, C.RAN_NS, C.LOCK_WAIT_NS])
    samples = samples[samples[C.RAN_NS].isna()]  # of the thread of the steps
    for rank, of_rank in samples.groupby(C.RANK):
        innermost = of_rank[C.STACK].astype(str).str.partition(";")[0]
        is_held = of_rank[C.LOCK_WAIT_NS].fillna(0).to_numpy(np.int64) >= MIN_LOCK_WAIT_NS
        counts = np.append(0, np.cumsum(contains(innermost, waits) & ~is_held))
        times = ints(of_rank, C.T_NS)
        first, stop = np.searchsorted(times, start), np.searchsorted(times, end)
        is_waiting |= (ranks == rank) & (2 * (counts[stop] - counts[first]) > stop - first)
    return is_waiting


def largest_line(run: Run, rows: Ints, ranks: Ints, start: Ints, end: Ints) -> str:
    """Line of user code that takes most time in some host rows by their stacks, or by samples without stacks.

    It is `NO_SOURCE` if neither tells a line.
    """
    lines = source_lines(run, pd.Series(rows, dtype="Int64")).to_numpy(object)
    if (lines == NO_SOURCE).all():
        lines = sampled_lines(run, ranks, start, end)
    times = pd.Series(end - start).groupby(lines).sum().drop(NO_SOURCE, errors="ignore")
    return str(times.idxmax()) if len(times) else NO_SOURCE


def _lines(samples: pd.DataFrame) -> list[str]:
    """Innermost line of user code of each sample."""
    stacks = zip(samples[C.STACK].astype(str), samples[C.SOURCE_LINES].astype(str), strict=True)
    return [line_of(_with_lines(*stack)) for stack in stacks]


def _with_lines(stack: str, lines: str) -> str:
    """A stack whose frames have the line that runs instead of the first one of their function."""
    frames = zip(stack.split(";"), lines.split(","), strict=False)
    return ";".join(re.sub(r"\(\d+\)", f"({line})", frame, count=1) for frame, line in frames)


def line_of(stack: str) -> str:
    """Innermost user frame of a stack, whose frames are separated by `;` or line ends, innermost first.

    A comprehension is part of the function around it. Without a user frame it is the innermost frame;
    `NO_SOURCE` for an empty stack.

    Example:
        >>> line_of("/x/site-packages/torch/nn/linear.py(9): forward;train.py(12): main")
        'train.py(12): main'
    """
    frames = [frame.strip() for frame in stack.replace("\n", ";").split(";") if frame.strip()]
    users = [frame for frame in frames if re.search(_FRAME, frame) and not re.search(_LIBRARY, frame)]
    functions = (frame for frame in users if not frame.endswith(COMPREHENSIONS))
    return next(functions, [*users, *frames, NO_SOURCE][0])


def _python_frames(run: Run, rows: Ints) -> Objects:
    """Innermost user frame around each of these rows, else the innermost frame of a library."""
    lines = np.full(len(rows), NO_SOURCE, object)
    columns = LazyColumns(run, "host_intervals", (C.KIND, C.NAME, C.START_NS))
    is_python = columns.coded(C.KIND).is_any_of(HostKind.PYTHON) if len(rows) else np.zeros(0, np.bool_)
    if not is_python.any():
        return lines
    names = columns.coded(C.NAME)
    usable, parents = is_python & names.matches(_FRAME), read_parents(run)
    frame = parents.index.of(rows)
    for frames in (usable, usable & ~names.matches(_LIBRARY)):  # the second overwrites the first
        frame = climb_to(frame, parents.parent, frames)
        lines[frame >= 0] = names.texts[names.codes[frame[frame >= 0]]]
    return lines


COLUMNS = (
    Column(C.NAME, "", "name of the op"),
    Column("calls", "count", "calls of the op"),
    Column("self_ns", "ns", "Σ of duration minus direct child ops"),
    Column("total_ns", "ns", "Σ of duration, without calls inside a call of the same op"),
    Column("self_share", "share", "self time over the self time of all ops"),
)
"""Columns of `host_time_by_op`."""


@dataclass(frozen=True)
class Ops:
    """The ops of a run as arrays, with their nesting."""

    frame: pd.DataFrame  # the rows of kind op
    parent: Ints  # position of the nearest enclosing op, `NO_PARENT` without one
    names: Ints  # code of each op's name
    labels: pd.Index  # name of each code, sorted

    @cached_property
    def self_ns(self) -> Ints:
        """Duration minus the durations of direct child ops, ns."""
        self_time = ints(self.frame, C.DUR_NS).copy()
        inside = self.parent != NO_PARENT
        np.subtract.at(self_time, self.parent[inside], ints(self.frame, C.DUR_NS)[inside])
        return self_time

    @cached_property
    def outermost(self) -> Bools:
        """Whether no other op of the same name encloses each op."""
        return self.outermost_by(self.names)

    def outermost_by(self, groups: Ints) -> Bools:
        """Whether no other op of the same group, a number from 0, encloses each op."""
        # An op is enclosed if one of its group that precedes it in depth-first order ends beyond its place.
        first, size = self.extent
        by_place = np.empty_like(first)
        by_place[first] = np.arange(len(first))
        order = by_place[order_by_number(groups[by_place])]
        # Each group's ends lie above those of the groups before: one running maximum for all of them.
        offset = groups[order] * (len(groups) + 1)
        ends = np.maximum.accumulate(offset + (first + size)[order])
        outermost = np.ones(len(groups), bool)
        outermost[order[1:]] = (offset + first[order])[1:] >= ends[:-1]
        return outermost

    def total_inside(self, position: Ints, values: Ints) -> Ints:
        """Sum of values, each of an op at a position, over each op and all ops inside it."""
        # In depth-first order an op and all inside it are consecutive: a difference of two running sums.
        first, size = self.extent
        value_at_place = np.zeros(len(first) + 1, np.int64)
        np.add.at(value_at_place, first[position] + 1, values)
        sums = np.cumsum(value_at_place)
        total: Ints = sums[first + size] - sums[first]
        return total

    @cached_property
    def extent(self) -> tuple[Ints, Ints]:
        """Place of each op in depth-first order, and the number of ops in it, itself included."""
        rows = np.arange(len(self.parent))
        parent = np.where(self.parent < rows, self.parent, NO_PARENT)  # as it is unless rows are damaged
        by_depth = levels(parent)
        size = np.ones(len(parent), np.int64)
        for level in reversed(by_depth[1:]):
            np.add.at(size, parent[level], size[level])
        first = np.zeros(len(parent), np.int64)
        for depth, level in enumerate(by_depth):
            level = level[np.argsort(parent[level], kind="stable")]
            around = parent[level]
            before = np.cumsum(size[level]) - size[level]  # ops in those before it, of all parents
            begins = np.flatnonzero(np.append(True, around[1:] != around[:-1]))
            of_earlier_parents = np.repeat(before[begins], np.diff(begins, append=len(level)))
            first[level] = before - of_earlier_parents + (first[around] + 1 if depth else 0)
        return first, size


def read_ops(run: Run, *, columns: tuple[str, ...] = ()) -> Ops:
    """Read the ops of a run, with additional columns.

    Rows of other kinds between ops, such as annotations, are left out of the nesting.
    """
    # Tables in parts are in order of time only if that is read.
    read = dict.fromkeys([C.ROW_ID, C.NAME, C.START_NS, C.DUR_NS, *columns])
    frame = run.table("host_intervals", columns=[*read], where=is_kind(HostKind.OP))
    parent, names = compute_shared(run, _read_nesting)
    return Ops(frame, parent, names.codes.astype(np.int64), names.categories)


def _read_nesting(run: Run) -> tuple[Ints, pd.Categorical]:
    """Position of the nearest enclosing op of each op, and its name, as sorted categories."""
    rows, parent = run.table("host_intervals", columns=[C.KIND, C.NAME, C.START_NS]), read_parents(run).parent
    is_op, names = (rows[C.KIND] == HostKind.OP).to_numpy(bool), rows[C.NAME].array
    op_position = np.append(np.cumsum(is_op) - 1, NO_PARENT)  # index -1 gives NO_PARENT
    parent_op = op_position[climb_to(parent[is_op], parent, is_op)]
    return parent_op, to_categorical(names.categories, names.codes[is_op])


def host_time_by_op(run: Run) -> pd.DataFrame:
    """Host time by op name with the columns of `COLUMNS`, longest self time first."""
    ops = read_ops(run)
    groups = len(ops.labels)
    duration = ints(ops.frame, C.DUR_NS)
    self_time = sum_by_code(ops.names, groups, ops.self_ns)
    table = pd.DataFrame(
        {
            C.NAME: ops.labels,
            "calls": np.bincount(ops.names, minlength=groups),
            "self_ns": self_time,
            "total_ns": sum_by_code(ops.names[ops.outermost], groups, duration[ops.outermost]),
            "self_share": share(self_time, int(self_time.sum())),
        }
    )
    return sort_by(table, "-self_ns", C.NAME)


def blocking_calls(run: Run, *, marked: bool) -> pd.DataFrame:
    """Return the calls that wait for a device: synchronizations, and copies to pageable memory.

    With `marked`, only those in steps, and of each the part in their windows: what precedes these is a wait
    for work of earlier steps. Columns: those read, `call` (its name), and `op` (the name of the row
    around it, `NO_OP` outside of ops).
    """
    copied = pc.field(C.DST_MEMORY) == str(Memory.PAGEABLE)
    copies = run.table("device_intervals", columns=[C.LAUNCH_ROW], where=copied)[C.LAUNCH_ROW].dropna()
    launched = pc.field(C.ROW_ID).isin(pa.array(copies.to_numpy(np.int64)))
    columns = [C.ROW_ID, C.NAME, C.RANK, C.PID, C.TID, C.STEP, C.START_NS, C.DUR_NS, C.PARENT_ROW]
    waits = run.table("host_intervals", columns=columns, where=launched | is_kind(HostKind.SYNC))
    waits = _inside_windows(run, waits[waits[C.STEP].notna()]) if marked else waits
    parent_names = host_texts(run, waits[C.PARENT_ROW], {C.NAME: NO_OP})[C.NAME]
    enclosing = pd.Series(parent_names, waits.index).astype(object)
    # The marker of a step is no op, and has another name in each step, which would split the calls.
    ops = enclosing.mask(contains(enclosing, MARKER), NO_OP)
    return waits.assign(call=waits[C.NAME].astype(object), op=ops)


def _inside_windows(run: Run, waits: pd.DataFrame) -> pd.DataFrame:
    """Waits cut to the windows of the steps of their rank, without those outside."""
    windows = step_windows(run)
    steps = ints(windows, C.START_NS), ints(windows, END_NS)
    inside = overlap_by(ints(windows, C.RANK), steps, ints(waits, C.RANK), spans(waits))
    first = waits[C.RANK].map(windows.groupby(C.RANK)[C.START_NS].min())
    start = np.maximum(ints(waits, C.START_NS), first.fillna(0).astype(np.int64))
    return waits.assign(**{C.START_NS: start, C.DUR_NS: inside})[inside > 0]


def largest_waits(waits: pd.DataFrame) -> pd.DataFrame:
    """Ops with a quarter or more of the time of some waits, longest first, with their main call."""
    calls = waits.groupby(["op", "call"])[C.DUR_NS].sum().reset_index()
    calls = calls.sort_values([C.DUR_NS, "op", "call"], ascending=[False, True, True])
    ops = calls.assign(**{C.DUR_NS: calls.groupby("op")[C.DUR_NS].transform("sum")}).drop_duplicates("op")
    return ops[4 * ops[C.DUR_NS] >= ops[C.DUR_NS].sum()].sort_values(C.DUR_NS, ascending=False, kind="stable")


def advise_on_wait(call: str, op: str) -> str:
    """Advice on a call that waits for the device, by the op around it.

    The op says more than the call, so it decides first.

    Example:
        >>> advise_on_wait("cudaMemcpyAsync", "aten::item").partition(" with ")[0]
        'A value is read back'
    """
    if op in ("aten::_local_scalar_dense", "aten::item"):
        return (
            "A value is read back with .item() (or float(), int(), if, print of a tensor): keep it on the "
            "device, or read it only every N steps"
        )
    if op in ("aten::nonzero", "aten::masked_select", "aten::index", "aten::unique_consecutive"):
        return (
            "The size of the result depends on values on the device, so the host must wait: use ops with a "
            "fixed output size (torch.where, multiplication by a mask)"
        )
    if "memcpy" in call.lower() or "copy" in op:
        return (
            "The copy blocks the host: copy from or to pinned memory with non_blocking=True, and wait only "
            "where the values are used"
        )
    return "Launch the following work before waiting, wait for one event or stream, or remove the wait"
