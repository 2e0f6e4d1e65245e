"""Operator table: host self and total time, device time of launched work, shapes, allocations.

* Runtime calls, annotations and Python frames are not subtracted from host self: the cost of a launch belongs
  to the op that makes it.
* device self sums the intervals (kernels, copies, memsets, graphs) of which the op is the innermost launching
  op. Missing, not zero, if no device interval can be linked to its launch.

Sources: torch.profiler's key_averages; PyTorch report, Fig. 3.

Example:
    >>> tracekit.analyze(run, "ops").tables["ops"].nlargest(9, "allocated_bytes")  # doctest: +SKIP
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import pandas as pd

from tracekit.analysis import Analysis, Column, Result, TableSpec
from tracekit.runs.intervals import Ints
from tracekit.runs.run import Run, busy
from tracekit.schema import HOST_DEVICE, C

from ..shared.common import (
    NO_PARENT,
    RANK,
    STEP,
    UNLINKED,
    Bools,
    absent_device_note,
    duration,
    fill_categories,
    ints,
    positions,
    share,
    sort_by,
)
from ..shared.groups import keys_of, number_by, sum_by_code
from ..shared.host_columns import read_parents
from ..shared.host_rows import MODULE, PATH_SEPARATOR, Ops, fill_missing_text, read_ops
from ..shared.intervals_by_class import drop_overruns, find_overruns, note_overruns
from ..shared.op_families import TREE, tree
from .findings import RULES, findings

NO_OPS = "no ops in this capture: CPU activity was not recorded; record with `--collector torch`"
NO_MEMORY = "no allocator events: record with `profile_memory=True` to get allocated bytes"
NO_SHAPES = "no input shapes were recorded: record with `record_shapes=True` to group calls by shape"

MIN_ONE_OFF_NS, MIN_MEDIAN_RATIO, MIN_NEXT_RATIO = 10_000_000, 100, 10
"""Minimum self time of a one-off call, ns; over the median and over the longest of the other calls."""
MIN_OTHERS = 3
"""Minimum number of other calls, and of steps with such: in fewer, each step may have such a call."""
_MEMORY = {"allocated_bytes": (1, False), "freed_bytes": (-1, False), "host_allocated_bytes": (1, True)}


@dataclass(frozen=True)
class _Launched:
    """Device intervals by position of the innermost launching op."""

    op: Ints
    dur_ns: Ints


@dataclass(frozen=True)
class _OneOffs:
    """Calls that take far longer than the others with the same rank, name and input shapes."""

    rows: Ints  # their positions among the ops
    median_ns: Ints  # median self time of the other calls
    others: Ints  # number of these


def compute(run: Run) -> Result:
    """Compute the operator tables."""
    ops = read_ops(run, columns=(C.STEP, C.RANK, C.START_NS, C.INPUT_SHAPES, C.INPUT_DTYPES))
    if ops.frame.empty:
        return Result(notes=(NO_OPS,))
    (launched, why), memory = _read_launched(run, ops), _memory(run, ops)
    notes = [*note_overruns(run), *([] if why is None else [why])]
    if memory is None:
        notes.append(NO_MEMORY)
    one_offs = _find_one_offs(ops)
    usual = _shorten(ops, one_offs)
    tables = {"ops": _table(ops, usual, ops.names, launched, memory).assign(**{C.NAME: ops.labels})}
    if ops.frame[C.INPUT_SHAPES].notna().any():
        codes, labels = _by_shape(ops)
        tables["shapes"] = _table(ops, usual, codes, launched, memory).assign(**labels)
    else:
        notes.append(NO_SHAPES)
    captured = None if launched is None else _read_captured(run)
    if captured is not None:
        tables = {name: _with_captured(table, captured, _KEYS[name]) for name, table in tables.items()}
    ordered = {name: _sort(name, table) for name, table in tables.items()}
    if len(one_offs.rows):
        ordered["one_offs"] = _describe(ops, one_offs)
    given = None if launched is None else (launched.op, launched.dur_ns)
    return Result({**ordered, TREE.name: tree(run, ops)}, tuple(findings(run, usual, given)), tuple(notes))


def _sort(name: str, table: pd.DataFrame) -> pd.DataFrame:
    keys = _KEYS[name]
    captured = table["device_self_ns"].where(table["calls"] == 0, 0)
    usual = table["host_self_ns"] - table["one_off_ns"]
    ordered = sort_by(table.assign(usual_ns=usual, captured_ns=captured), "-usual_ns", "-captured_ns", *keys)
    return ordered[[*keys, *(column.name for column in MEASURES)]]


def _by_shape(ops: Ops) -> tuple[Ints, dict[str, pd.Series]]:
    names = pd.Categorical.from_codes(ops.names, ops.labels)
    shapes = fill_categories(ops.frame[C.INPUT_SHAPES].array, "")
    keys = pd.DataFrame({C.NAME: names, C.INPUT_SHAPES: shapes})
    codes, first = number_by(keys, [C.NAME, C.INPUT_SHAPES])
    labels = keys_of(keys, [C.NAME, C.INPUT_SHAPES], first, object)
    return codes, {name: labels[name] for name in (C.NAME, C.INPUT_SHAPES)}


def _find_one_offs(ops: Ops) -> _OneOffs:
    """Find calls that are no usual ones: most initialize something, or their thread had no core."""
    is_long = ops.self_ns >= MIN_ONE_OFF_NS
    keys = ops.frame[[C.RANK, C.INPUT_SHAPES]].assign(op=ops.names)
    codes, _ = number_by(keys, [C.RANK, "op", C.INPUT_SHAPES]) if is_long.any() else (ops.names, None)
    rows = np.flatnonzero(np.isin(codes, codes[is_long]))
    order = rows[np.lexsort((-ops.self_ns[rows], codes[rows]))]  # of each group the longest first
    first = np.flatnonzero(np.diff(codes[order], prepend=-1))
    others = np.diff(np.append(first, len(order))) - 1
    first, others = first[others >= MIN_OTHERS], others[others >= MIN_OTHERS]
    longest, following, median = (ops.self_ns[order[first + place]] for place in (0, 1, 1 + others // 2))
    rest = np.delete(order, first)
    steps = ops.frame[C.STEP].take(rest).groupby(codes[rest]).nunique().reindex(codes[order[first]])
    least = np.maximum(MIN_MEDIAN_RATIO * median, MIN_NEXT_RATIO * following)
    chosen = (longest >= np.maximum(MIN_ONE_OFF_NS, least)) & (steps >= MIN_OTHERS).to_numpy(bool)
    return _OneOffs(order[first[chosen]], median[chosen], others[chosen])


def _shorten(ops: Ops, one_offs: _OneOffs) -> Ops:
    """Return the ops with each one-off call as long as the median of the others."""
    if not len(one_offs.rows):
        return ops
    excess = ops.self_ns[one_offs.rows] - one_offs.median_ns
    lengths = ints(ops.frame, C.DUR_NS) - ops.total_inside(one_offs.rows, excess)
    return replace(ops, frame=ops.frame.assign(**{C.DUR_NS: lengths}))


def _describe(ops: Ops, one_offs: _OneOffs) -> pd.DataFrame:
    """Return the table of one-off calls, longest first."""
    table = ops.frame.take(one_offs.rows)[[C.RANK, C.STEP, C.NAME]].reset_index(drop=True)
    shapes = ops.frame[C.INPUT_SHAPES].take(one_offs.rows).astype(object)
    table[C.INPUT_SHAPES] = shapes.where(shapes.notna(), "").to_numpy(object)
    table["host_self_ns"] = ops.self_ns[one_offs.rows]
    table = table.assign(median_ns=one_offs.median_ns, others=one_offs.others)
    return sort_by(table, "-host_self_ns", C.RANK, C.NAME)


def _table(
    ops: Ops, usual: Ops, groups: Ints, launched: _Launched | None, memory: dict[str, Ints] | None
) -> pd.DataFrame:
    """One row per group of ops; measures that were not recorded are missing, not zero.

    `usual` are the ops with one-off calls as long as others; `launched` the device intervals that ops
    launched.
    """
    size = int(groups.max()) + 1
    top = ops.outermost_by(groups)
    self_ns = sum_by_code(groups, size, ops.self_ns)
    measures: dict[str, object] = {
        "calls": np.bincount(groups, minlength=size),
        "host_self_ns": self_ns,
        "host_total_ns": sum_by_code(groups[top], size, ints(ops.frame, C.DUR_NS)[top]),
        "host_self_share": share(self_ns, int(self_ns.sum())),
        "one_off_ns": self_ns - sum_by_code(groups, size, usual.self_ns),
        **_device_measures(ops, groups, size, top, launched),
    }
    for name in _MEMORY:
        values = sum_by_code(groups, size, memory[name]) if memory else [pd.NA] * size
        measures[name] = pd.array(values, dtype="Int64")
    return pd.DataFrame(measures)


def _device_measures(
    ops: Ops, groups: Ints, size: int, top: Bools, launched: _Launched | None
) -> dict[str, object]:
    if launched is None:
        unknown = pd.array([pd.NA] * size, dtype="Int64")
        amounts = dict.fromkeys(("launches", "device_self_ns", "device_total_ns"), unknown)
        return {**amounts, "device_share": np.nan}
    self_ns = sum_by_code(groups[launched.op], size, launched.dur_ns)
    inside = ops.total_inside(launched.op, launched.dur_ns)
    launches = ops.total_inside(launched.op, np.ones_like(launched.op))
    total, count = (sum_by_code(groups[top], size, values[top]) for values in (inside, launches))
    everything = int(launched.dur_ns.sum())
    return {
        "launches": pd.array(count, dtype="Int64"),
        "device_self_ns": pd.array(self_ns, dtype="Int64"),
        "device_total_ns": pd.array(total, dtype="Int64"),
        "device_share": share(self_ns, everything),
    }


def _read_launched(run: Run, ops: Ops) -> tuple[_Launched, None] | tuple[None, str]:
    """Device intervals launched by ops, or a note why they are unknown."""
    frame = drop_overruns(run, busy(run, [C.ROW_ID, C.DUR_NS, C.OP_ROW, C.LAUNCH_ROW]))
    if frame.empty:
        return None, absent_device_note(run)
    op = positions(ops.frame[C.ROW_ID], frame[C.OP_ROW])
    is_linked = op != NO_PARENT
    if not is_linked.any() and frame[C.LAUNCH_ROW].isna().all():
        return None, UNLINKED
    return _Launched(op[is_linked], ints(frame, C.DUR_NS)[is_linked]), None


def _read_captured(run: Run) -> pd.DataFrame | None:
    """Device intervals of graphs launched outside ops, with the ops that captured them; None without any."""
    columns = [C.DUR_NS, C.OP_ROW, C.CAPTURED_OP, C.CAPTURED_PATH, C.CAPTURED_SHAPES]
    frame = busy(run, columns)
    frame = frame[frame[C.OP_ROW].isna() & frame[C.CAPTURED_OP].notna()]
    if frame.empty:
        return None
    keys = {C.NAME: C.CAPTURED_OP, C.INPUT_SHAPES: C.CAPTURED_SHAPES, C.CAPTURED_PATH: C.CAPTURED_PATH}
    texts_by_name = {name: fill_missing_text(frame[column], "") for name, column in keys.items()}
    times = pd.DataFrame({**texts_by_name, "device_self_ns": ints(frame, C.DUR_NS)})
    grouped = times.assign(launches=1).groupby([*keys], sort=True)
    return grouped[["launches", "device_self_ns"]].sum().reset_index()


def _with_captured(table: pd.DataFrame, captured: pd.DataFrame, keys: list[str]) -> pd.DataFrame:
    """Add the device time of captured ops to the rows of the ops; those not called in this run get a row.

    Ops around a captured op get its time as total; their shapes are unknown, so not in the table by shape.
    """
    ops_ = captured.assign(device_total_ns=captured["device_self_ns"])
    around = _around(ops_) if keys == [C.NAME] else ops_.head(0)
    measures = ["launches", "device_self_ns", "device_total_ns"]
    added = pd.concat([ops_, around]).groupby(keys, sort=True)[measures].sum().reset_index()
    rows = pd.concat([table, added], ignore_index=True)
    recorded = [name for name in table.columns if name not in keys and table[name].notna().any()]
    summed = rows.fillna(dict.fromkeys(recorded, 0)).groupby(keys, sort=True).sum(min_count=1).reset_index()
    total = ints(summed, "device_self_ns")
    summed["device_share"] = share(total, int(total.sum()))
    return summed.astype(table.dtypes.to_dict())


def _around(ops_: pd.DataFrame) -> pd.DataFrame:
    """The other ops around each captured op, with its launches and its time as total."""
    outer = ops_.assign(device_self_ns=0)
    outer[C.CAPTURED_PATH] = ops_[C.CAPTURED_PATH].str.split(PATH_SEPARATOR)
    outer = outer.explode(C.CAPTURED_PATH).reset_index()
    name = outer[C.CAPTURED_PATH]
    outer = outer[(name != "") & (name != outer[C.NAME]) & ~name.str.startswith(MODULE)]
    outer = outer.drop_duplicates(["index", C.CAPTURED_PATH])
    outer[C.NAME] = outer[C.CAPTURED_PATH]
    return outer


def _memory(run: Run, ops: Ops) -> dict[str, Ints] | None:
    """Bytes by op: allocated and freed on devices, and allocated on the host."""
    frame = run.table("allocations", columns=[C.DEVICE, C.BYTES, C.OP_ROW])
    if frame.empty:
        return None
    op, size = positions(ops.frame[C.ROW_ID], frame[C.OP_ROW]), ints(frame, C.BYTES)
    on_host = ints(frame, C.DEVICE) == HOST_DEVICE  # an allocator event of the CPU
    sums = {}
    for name, (sign, of_host) in _MEMORY.items():
        selected = (op != NO_PARENT) & (size * sign > 0) & (on_host == of_host)
        sums[name] = sum_by_code(op[selected], len(ops.frame), size[selected] * sign)
    return sums


MEASURES = (
    Column("calls", "count", "number of calls"),
    Column("host_self_ns", "ns", "Σ of duration minus direct child ops"),
    Column("host_total_ns", "ns", "Σ of duration, without calls inside a call of the same row"),
    Column("host_self_share", "share", "host self over the host self time of all ops"),
    Column("one_off_ns", "ns", "what one-off calls take above the median of the others, in host self"),
    Column("launches", "count", "device intervals launched at any depth"),
    Column("device_self_ns", "ns", "Σ of device intervals launched by it directly"),
    Column("device_total_ns", "ns", "Σ of device intervals launched at any depth"),
    Column("device_share", "share", "device self over Σ of the device intervals that any op launched"),
    Column("allocated_bytes", "bytes", "device memory allocated by it directly"),
    Column("freed_bytes", "bytes", "device memory freed by it directly"),
    Column("host_allocated_bytes", "bytes", "host memory allocated by it directly"),
)
_NAME = Column(C.NAME, "", "name of the op")
_SHAPES = Column(C.INPUT_SHAPES, "", "shapes of its inputs; empty if not recorded")
_KEYS = {"ops": [C.NAME], "shapes": [C.NAME, C.INPUT_SHAPES]}

ANALYSIS = Analysis(
    name="ops",
    title="Operators",
    question="Which operators take host time, device time and memory?",
    definition=(
        "host self = duration − direct child ops (runtime calls stay with the op); host total = Σ of "
        "durations, recursion counted once; device self = Σ of device intervals whose innermost launching op "
        "it is; device total = the same including child ops at any depth, each interval once; bytes by the "
        "innermost op of the allocator event; over all threads and ranks. Device intervals of a graph "
        "launched outside ops count for the op that captured them, where known; it has no calls here. "
        "A one-off is a call with a self time of at least "
        f"{duration(MIN_ONE_OFF_NS)}, {MIN_MEDIAN_RATIO} times the median and {MIN_NEXT_RATIO} times the "
        "longest of the other calls with its rank, name and input shapes, of which there are in at least "
        f"{MIN_OTHERS} steps. Rows are ordered, and findings judged, as if it took the median. "
        "Families of ops follow from their names; a backward op is in the family of its forward op."
    ),
    tables=(
        TableSpec("ops", "By op", (_NAME, *MEASURES)),
        TableSpec("shapes", "By op and input shapes", (_NAME, _SHAPES, *MEASURES)),
        TableSpec(
            "one_offs",
            "One-off calls, longest first",
            (
                RANK,
                STEP,
                _NAME,
                _SHAPES,
                Column("host_self_ns", "ns", "duration minus direct child ops"),
                Column("median_ns", "ns", "median of this of the other calls"),
                Column("others", "count", "number of these: same rank, name and input shapes"),
            ),
        ),
        TREE,
    ),
    sources=("torch.profiler key_averages", "PyTorch report, Fig. 3"),
    order=40,
    shares=(find_overruns, read_parents),
    compute=compute,
    rules=RULES,
)
