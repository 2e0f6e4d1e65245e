"""Why two runs differ in what they copy to the device per step, tensor by tensor.

Copies of profiled steps (of the capture where none are marked) are grouped by op, shape, dtype, bytes and
memory. A group of one run is matched with one of the other, in the order of their first copies in a step, by
the first of these that agrees: all of it and the function of the source line; all of it; all but the memory;
op and shape; op, dtype and every dimension but the first; op, dtype and number of dimensions; op and number
of dimensions, two at least; op, where a shape is unknown. What is left is copied in one run only.

Each match gets the first cause that is evident: elements differ (shape), item size differs (dtype), copies
per step differ by at least 0.75 (duplicate), pageable against pinned (memory kind), rate of copies of at
least 1 MiB differs by more than 1.5 times at equal bytes and memory (link).
"""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from tracekit.analysis import Column, Result, TableSpec
from tracekit.savings import budget
from tracekit.schema import C, CopyKind, Memory

from . import _copy_causes
from ._common import NO_STEPS, ints
from ._copied_tensors import DTYPE, ELEMENTS, ITEM, SHAPE, with_tensors
from ._copies import MEMORY, OP, SOURCE, Hiding, code_by, counted, described, read
from ._copy_causes import DIFFERS, DTYPES, DUPLICATE, LINK, MEMORY_KIND, ONE_SIDE, RULES, SHAPES
from ._tensors import item_bytes

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from tracekit.run import Run

__all__ = ["RULES", "TABLES", "compare"]

LEAST_COPIES = 0.75
"""Less than one, so that a step that lacks the copy does not hide it."""
LEAST_RATIO = 1.5
LARGE_BYTES = 1 << 20
_UNKNOWN = -1
_KINDS = (str(Memory.PAGEABLE), str(Memory.PINNED), str(Memory.UNIFIED))


@dataclass(frozen=True)
class Group:
    """Copies of one kind of a run, per step.

    Attributes:
        shape: Shape of the copied tensor, empty where unknown.
        dtype: Its dtype as the profiler names it, empty where unknown.
        size: Bytes of each copy, None where unknown.
        function: The source line without its number.
    """

    op: str
    shape: str
    dtype: str
    elements: int
    item: int
    size: int | None
    memory: str
    function: str
    source: str
    copies: float
    bytes: int | None
    sum_ns: int
    exposed_ns: int
    rate: float | None
    rows: tuple[int, ...]

    @property
    def dimensions(self) -> tuple[str, ...]:
        """The dimensions as text."""
        return tuple(self.shape.strip("[]").split(",")) if self.shape else ()


def compare(base: Run, head: Run) -> Result:
    """Explain how the copies to the device of two runs differ."""
    first, second = groups(base), groups(head)
    if not first and not second:
        return Result(notes=("neither run has copies from the host to a device",))
    rows = [_row(one, other, base, head) for one, other in matched(first, second)]
    rows.sort(key=_change, reverse=True)
    tables = {"totals": _totals(first, second, base, head), "causes": _frame(rows)}
    found = _copy_causes.findings(rows, first, second, base, head)
    return Result(tables, found, tuple(_notes(base, head, rows)))


def groups(run: Run) -> list[Group]:
    """The groups of a run in the order of their first copy in a step."""
    steps = budget(run)
    copies = counted(with_tensors(described(run, read(run, CopyKind.H2D))), marked=steps.marked)
    if copies.empty:
        return []
    place = copies.groupby([C.RANK, C.STEP], dropna=False).cumcount()
    copies = copies.assign(place=place).reset_index(drop=True)
    for column in (SHAPE, DTYPE):
        copies[column] = copies[column].astype(object).where(copies[column].notna(), "")
    copies["size"] = copies[C.BYTES].astype("Int64").fillna(_UNKNOWN).astype(np.int64)
    keys = [OP, SHAPE, DTYPE, "size", MEMORY]
    codes, count = code_by(copies, keys)
    exposed = Hiding(run).exposed_by(copies, codes, count)
    made = [
        (int(rows["place"].min()), number, _group(rows, int(exposed[number]), steps.steps))
        for number, (_, rows) in enumerate(copies.groupby(codes, sort=True))
    ]
    return [group for *_, group in sorted(made, key=lambda entry: entry[:2])]


def _group(rows: pd.DataFrame, exposed: int, steps: int) -> Group:
    one = rows.iloc[0]
    known = one["size"] != _UNKNOWN
    took = int(ints(rows, C.DUR_NS).sum())
    line = str(one[SOURCE])
    return Group(
        op=str(one[OP]),
        shape=str(one[SHAPE]),
        dtype=str(one[DTYPE]),
        elements=int(one[ELEMENTS]) if one[SHAPE] else 0,
        item=int(one[ITEM]) if one[SHAPE] else 0,
        size=int(one["size"]) if known else None,
        memory=str(one[MEMORY]),
        function=line.partition("(")[0] + line.partition(")")[2],
        source=line,
        copies=len(rows) / steps,
        bytes=int(one["size"]) * len(rows) // steps if known else None,
        sum_ns=took // steps,
        exposed_ns=exposed // steps,
        rate=int(one["size"]) * len(rows) / took if known and took else None,
        rows=tuple(
            int(row) for row in rows.sort_values([C.DUR_NS, C.ROW_ID], ascending=[False, True])[C.ROW_ID]
        ),
    )


_PASSES: tuple[Callable[[Group], tuple[Any, ...] | None], ...] = (
    lambda one: (one.op, one.shape, one.dtype, one.size, one.memory, one.function),
    lambda one: (one.op, one.shape, one.dtype, one.size, one.memory),
    lambda one: (one.op, one.shape, one.dtype, one.size),
    lambda one: (one.op, one.shape) if one.shape else None,
    lambda one: (one.op, one.dtype, one.dimensions[1:]) if one.shape else None,
    lambda one: (one.op, one.dtype, len(one.dimensions)) if one.shape else None,
    lambda one: (one.op, len(one.dimensions)) if len(one.dimensions) > 1 else None,
)


def matched(base: list[Group], head: list[Group]) -> list[tuple[Group | None, Group | None]]:
    """Each group of one run with the one of the other it stands for, None where there is none."""
    left, right = list(base), list(head)
    pairs: list[tuple[Group | None, Group | None]] = []
    for key in _PASSES:
        waiting: dict[tuple[Any, ...], list[Group]] = {}
        for one in left:
            if (named := key(one)) is not None:
                waiting.setdefault(named, []).append(one)
        rest = []
        for other in right:
            queue = waiting.get(key(other) or ())
            if queue:
                pairs.append((queue.pop(0), other))
            else:
                rest.append(other)
        taken = {id(one) for one, _ in pairs}
        left, right = [one for one in left if id(one) not in taken], rest
    for one in list(left):
        unknown = (other for other in right if one.op == other.op and not (one.shape and other.shape))
        if (found := next(unknown, None)) is not None:
            pairs.append((one, found))
            left.remove(one)
            right.remove(found)
    return [*pairs, *((one, None) for one in left), *((None, other) for other in right)]


def _row(one: Group | None, other: Group | None, base: Run, head: Run) -> dict[str, Any]:
    evident = list(_evident(one, other, base, head))
    cause, because = evident[0] if evident else ("", "")
    also = ", ".join(name for name, _ in evident[1:])
    known = other or one
    row: dict[str, Any] = {"cause": cause, "because": because, "also": also, "op": known.op if known else ""}
    for side, group in (("base", one), ("head", other)):
        row |= {
            f"{side}_shape": group.shape if group else "",
            f"{side}_dtype": group.dtype if group else "",
            f"{side}_memory": group.memory if group else "",
            f"{side}_copies": group.copies if group else 0.0,
            f"{side}_bytes": group.bytes if group else 0,
            f"{side}_sum_ns": group.sum_ns if group else 0,
            f"{side}_gb_per_s": group.rate if group else None,
            f"{side}_group": group,
        }
    return row


def _change(row: dict[str, Any]) -> tuple[int, int]:
    more_bytes = (row["head_bytes"] or 0) - (row["base_bytes"] or 0)
    return abs(more_bytes), abs(row["head_sum_ns"] - row["base_sum_ns"])


def _evident(one: Group | None, other: Group | None, base: Run, head: Run) -> Iterator[tuple[str, str]]:
    """Causes with their evidence, in the order in which they are tested."""
    if one is None or other is None:
        yield (ONE_SIDE, f"copied in {'head' if one is None else 'base'} alone")
        return
    content = list(_content(one, other, base, head))
    yield from content
    if abs(one.copies - other.copies) >= LEAST_COPIES:
        yield (DUPLICATE, f"{one.copies:g} copies per step against {other.copies:g}")
    if one.memory != other.memory and one.memory in _KINDS and other.memory in _KINDS:
        yield (MEMORY_KIND, f"{one.memory} against {other.memory} host memory")
    elif not content and one.memory == other.memory and _rates_differ(one, other):
        yield (LINK, f"{one.rate:.1f} against {other.rate:.1f} GB/s with the same bytes and memory")


def _rates_differ(one: Group, other: Group) -> bool:
    if not one.rate or not other.rate or (one.size or 0) < LARGE_BYTES:
        return False
    return max(one.rate / other.rate, other.rate / one.rate) > LEAST_RATIO


def _content(one: Group, other: Group, base: Run, head: Run) -> Iterator[tuple[str, str]]:
    if one.shape and other.shape:
        if one.elements != other.elements:
            yield (SHAPES, f"{one.shape} against {other.shape}")
        if one.item != other.item:
            yield (DTYPES, f"{one.dtype} against {other.dtype}")
    elif (one.size is None) != (other.size is None):
        yield DIFFERS, f"{'base' if one.size is None else 'head'} does not record the bytes of copies"
    elif one.size is not None and other.size is not None and one.size != other.size:
        yield _told_by_metadata(one.size, other.size, base, head)


def _told_by_metadata(one: int, other: int, base: Run, head: Run) -> tuple[str, str]:
    """What the runs' own settings say about different bytes when the shapes do not tell."""
    ratio = Fraction(one, other) if other else None
    batch, side = _numbers("batch_size", base, head), _numbers("resolution", base, head)
    work = (batch or Fraction(1)) * (side or Fraction(1)) ** 2
    if work != 1 and ratio in (work, batch):
        said = [
            f"{name} {base_value} against {head_value}"
            for name, base_value, head_value in _differing(base, head)
        ]
        return SHAPES, f"no shapes recorded; the runs' settings explain the ratio exactly: {', '.join(said)}"
    sizes = [item_bytes(_TORCH_NAMES.get(str(_setting(run, "dtype")), "")) for run in (base, head)]
    if (
        batch == 1
        and side in (None, 1)
        and all(sizes)
        and ratio == Fraction(sizes[0] or 1, sizes[1] or 1) != 1
    ):
        values = f"{_setting(base, 'dtype')} against {_setting(head, 'dtype')}"
        return DTYPES, f"no shapes recorded; at one batch size the runs' dtypes explain the ratio: {values}"
    times = f"{one / other:.3g} times" if other else "without bound"
    return DIFFERS, f"bytes per copy differ {times}; without shapes, shape and dtype cannot be told apart"


_TORCH_NAMES = {
    "float64": "double",
    "float32": "float",
    "float16": "c10::Half",
    "bfloat16": "c10::BFloat16",
}


def _setting(run: Run, name: str) -> Any:
    found = run.meta.fingerprint.get(name)
    return found if found is not None else (run.meta.workload or {}).get(name)


def _numbers(name: str, base: Run, head: Run) -> Fraction | None:
    """Ratio of a setting of both runs, None where one does not know it."""
    values = [_setting(run, name) for run in (base, head)]
    if not all(isinstance(value, int) and value > 0 for value in values):
        return None
    return Fraction(values[0], values[1])


_COMPARED = ("workload", "mode", "level", "batch_size", "resolution", "dtype", "pin_memory", "gpu", "torch")


def _differing(base: Run, head: Run) -> list[tuple[str, Any, Any]]:
    values = [(name, _setting(base, name), _setting(head, name)) for name in _COMPARED]
    return [one for one in values if None not in one[1:] and one[1] != one[2]]


def _notes(base: Run, head: Run, rows: list[dict[str, Any]]) -> Iterator[str]:
    for name, run in (("base", base), ("head", head)):
        if not budget(run).marked:
            yield f"{name}: {NO_STEPS}; the whole capture counts as one step"
    if differing := _differing(base, head):
        said = ", ".join(f"{name} {one} against {other}" for name, one, other in differing)
        yield f"the runs differ in their settings: {said}"
    if any(row["cause"] == DIFFERS and not (row["base_shape"] and row["head_shape"]) for row in rows):
        yield (
            "no shapes were recorded on both sides: record with `record_shapes=True` to tell shape from dtype"
        )


def _totals(first: list[Group], second: list[Group], base: Run, head: Run) -> pd.DataFrame:
    row: dict[str, Any] = {}
    for side, found, run in (("base", first, base), ("head", second, head)):
        sizes = [group.bytes for group in found]
        known = [size for size in sizes if size is not None]
        row[f"{side}_bytes"] = sum(known) if len(known) == len(sizes) else None
        row[f"{side}_sum_ns"] = sum(group.sum_ns for group in found)
        row[f"{side}_copies"] = float(sum(group.copies for group in found))
        row[f"{side}_steps"] = budget(run).steps
    row["bytes_ratio"] = _ratio(row["base_bytes"], row["head_bytes"])
    row["time_ratio"] = _ratio(row["base_sum_ns"], row["head_sum_ns"])
    return _typed(pd.DataFrame([row])[[column.name for column in TABLES[0].columns]], TABLES[0])


def _ratio(one: int | None, other: int | None) -> float:
    return other / one if one and other is not None else float("nan")


def _frame(rows: list[dict[str, Any]]) -> pd.DataFrame:
    return _typed(pd.DataFrame(rows, columns=[column.name for column in TABLES[1].columns]), TABLES[1])


def _typed(table: pd.DataFrame, spec: TableSpec) -> pd.DataFrame:
    whole = [column.name for column in spec.columns if column.unit in {"ns", "bytes", "count"}]
    plain = [column.name for column in spec.columns if column.unit in {"GB/s", "×"}]
    typed: pd.DataFrame = table.astype({**dict.fromkeys(whole, "Int64"), **dict.fromkeys(plain, float)})
    return typed


def _sides(name: str, unit: str, meaning: str) -> tuple[Column, Column]:
    return Column(f"base_{name}", unit, f"{meaning}, base"), Column(f"head_{name}", unit, f"{meaning}, head")


TABLES = (
    TableSpec(
        "totals",
        "Copies to the device per step",
        (
            *_sides("bytes", "bytes", "bytes per step of all ranks"),
            Column("bytes_ratio", "×", "head over base"),
            *_sides("sum_ns", "ns", "Σ of durations per step"),
            Column("time_ratio", "×", "head over base"),
            *_sides("copies", "", "copies per step"),
            *_sides("steps", "count", "profiled steps of all ranks; captures where none are marked"),
        ),
    ),
    TableSpec(
        "causes",
        "Tensor by tensor, largest difference of bytes first",
        (
            Column("cause", "", "first evident cause of a difference; empty where there is none"),
            Column("because", "prose", "the evidence, base against head"),
            *_sides("bytes", "bytes", "bytes per step"),
            *_sides("sum_ns", "ns", "Σ of durations per step"),
            *_sides("shape", "", "shape of the copied tensor"),
            *_sides("dtype", "", "its dtype as the profiler names it"),
            *_sides("copies", "", "copies per step"),
            *_sides("memory", "", "memory of the host side"),
            *_sides("gb_per_s", "GB/s", "bytes over Σ of durations"),
            Column("op", "", "innermost op that launched them"),
            Column("also", "", "further differences, in the order tested"),
        ),
    ),
)
