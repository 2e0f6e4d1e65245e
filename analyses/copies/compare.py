"""Comparison of what two runs copy to the device per step, tensor by tensor.

Copies of profiled steps (of the capture if none are marked) are grouped by op, shape, dtype, bytes and
memory, and each group of one run is matched with one of the other as below. Each match gets the first of
`causes.CAUSES` that applies.

Groups are matched in the order of their first copies in a step, by the first of these keys that agrees: op,
shape, dtype, bytes, memory and the function of the source line; the same without the function; without the
memory; op and shape; op, dtype and every dimension but the first; op, dtype and number of dimensions; op and
number of dimensions (at least two).

If a shape is unknown the op must agree, and bytes decide: a ratio explained by the runs' settings, then equal
bytes, then the nearest; if bytes are unknown, the order. The rest is copied in only one run.
"""

from __future__ import annotations

from bisect import bisect
from collections.abc import Callable, Collection, Iterator
from fractions import Fraction
from typing import TYPE_CHECKING, Any, TypeAlias

import pandas as pd

from tracekit.analysis import Column, Result, TableSpec
from tracekit.analysis.savings import budget
from tracekit.runs.run import Run
from tracekit.schema import Memory

from ..shared.common import NO_STEPS
from . import causes, rules
from .causes import DIFFERS, DTYPES, DUPLICATE, LINK, MEMORY_KIND, ONE_SIDE, SHAPES
from .groups import Group, groups
from .reading import LARGE_BYTES

if TYPE_CHECKING:
    Explained: TypeAlias = dict[Fraction, list[tuple[str, str]]]
    Key: TypeAlias = Callable[[Group], Any]
    Pairs: TypeAlias = list[tuple[Group, Group]]

_KINDS = (str(Memory.PAGEABLE), str(Memory.PINNED), str(Memory.UNIFIED))


def compare(base: Run, head: Run) -> Result:
    """Explain how the host-to-device copies of two runs differ."""
    first, second = groups(base), groups(head)
    if not first and not second:
        return Result(notes=("neither run has host-to-device copies",))
    explained = rules.explanations(base, head)
    rows = [_row(one, other, explained) for one, other in matched(first, second, explained)]
    rows.sort(key=_change, reverse=True)
    tables = {"totals": _totals(first, second, base, head), "causes": _frame(rows)}
    found = causes.findings(rows, first, second, base, head)
    return Result(tables, found, tuple(_notes(base, head, rows)))


def _row(one: Group | None, other: Group | None, explained: Explained) -> dict[str, Any]:
    applying = list(_causes(one, other, explained))
    cause, because = applying[0] if applying else ("", "")
    also = ", ".join(name for name, _ in applying[1:])
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


def _causes(one: Group | None, other: Group | None, explained: Explained) -> Iterator[tuple[str, str]]:
    """Yield the causes that apply with their evidence, in the order tested."""
    if one is None or other is None:
        yield (ONE_SIDE, f"copied only in {'head' if one is None else 'base'}")
        return
    content = list(_content(one, other, explained))
    yield from content
    if abs(one.copies - other.copies) >= causes.LEAST_COPIES:
        yield (DUPLICATE, f"{one.copies:g} against {other.copies:g} copies per step")
    if one.memory != other.memory and one.memory in _KINDS and other.memory in _KINDS:
        yield (MEMORY_KIND, f"{one.memory} against {other.memory} host memory")
    elif not content and one.memory == other.memory and _rates_differ(one, other):
        yield (LINK, f"{one.rate:.1f} against {other.rate:.1f} GB/s with the same bytes and memory")


def _rates_differ(one: Group, other: Group) -> bool:
    if not one.rate or not other.rate or (one.size or 0) < LARGE_BYTES:
        return False
    return max(one.rate / other.rate, other.rate / one.rate) > causes.LEAST_RATIO


def _content(one: Group, other: Group, explained: Explained) -> Iterator[tuple[str, str]]:
    if one.shape and other.shape:
        if one.elements != other.elements:
            yield (SHAPES, f"{one.shape} against {other.shape}")
        if one.item != other.item:
            yield (DTYPES, f"{one.dtype} against {other.dtype}")
    elif (one.size is None) != (other.size is None):
        yield DIFFERS, f"{'base' if one.size is None else 'head'} does not record the bytes of copies"
    elif one.size is not None and other.size is not None and one.size != other.size:
        because = (
            f"{one.size:,} against {other.size:,} bytes per copy; shape and dtype cannot be distinguished "
            "without recorded shapes"
        )
        ratio = Fraction(one.size, other.size) if other.size else Fraction(0)
        yield from explained.get(ratio, [(DIFFERS, because)])


def _notes(base: Run, head: Run, rows: list[dict[str, Any]]) -> Iterator[str]:
    for name, run in (("base", base), ("head", head)):
        if not budget(run).marked:
            yield f"{name}: {NO_STEPS}; the whole capture counts as one step"
    if differences := rules.differences(base, head):
        yield f"the runs' settings differ: {differences}"
    if any(row["cause"] == DIFFERS and not (row["base_shape"] and row["head_shape"]) for row in rows):
        yield "shapes are not recorded in both runs: record with `record_shapes=True`"


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
            *_sides("steps", "count", "profiled steps of all ranks; captures if none are marked"),
        ),
    ),
    TableSpec(
        "causes",
        "Tensors, largest difference of bytes first",
        (
            Column("cause", "", "first cause of the difference; empty if there is no difference"),
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


_KEYS: tuple[Key, ...] = (
    lambda one: (one.op, one.shape, one.dtype, one.size, one.memory, one.function),
    lambda one: (one.op, one.shape, one.dtype, one.size, one.memory),
    lambda one: (one.op, one.shape, one.dtype, one.size),
    lambda one: (one.op, one.shape) if one.shape else None,
    lambda one: (one.op, one.dtype, one.dimensions[1:]) if one.shape else None,
    lambda one: (one.op, one.dtype, len(one.dimensions)) if one.shape else None,
    lambda one: (one.op, len(one.dimensions)) if len(one.dimensions) > 1 else None,
)


def matched(
    base: list[Group], head: list[Group], ratios: Collection[Fraction] = ()
) -> list[tuple[Group | None, Group | None]]:
    """Pair each group of one run with its counterpart in the other, None if there is none.

    Args:
        base: Groups of one run.
        head: Groups of the other.
        ratios: Bytes of a copy in base over those in head that the runs' settings explain.
    """
    pairs: Pairs = []
    left, right = base, head
    for key in _KEYS:
        left, right = _pair(pairs, left, right, key, key)
    for op in dict.fromkeys(one.op for one in left):
        for shaped in (False, True):
            ones = [one for one in left if one.op == op and bool(one.shape) is shaped]
            others = [one for one in right if one.op == op and not (shaped and one.shape)]
            found = _by_bytes(ones, others, ratios)
            pairs += found
            left, right = _rest(left, right, found)
    return [*pairs, *((one, None) for one in left), *((None, other) for other in right)]


def _pair(
    pairs: Pairs, left: list[Group], right: list[Group], key: Key, other_key: Key
) -> tuple[list[Group], list[Group]]:
    """Add groups with equal keys to the pairs, in their order; return the remaining groups of both sides."""
    unmatched: dict[Any, list[Group]] = {}
    for one in left:
        if (value := key(one)) is not None:
            unmatched.setdefault(value, []).append(one)
    found = [(queue.pop(0), other) for other in right if (queue := unmatched.get(other_key(other)))]
    pairs += found
    return _rest(left, right, found)


def _rest(left: list[Group], right: list[Group], pairs: Pairs) -> tuple[list[Group], list[Group]]:
    """Return the groups of both sides that are in no pair."""
    taken = {id(one) for pair in pairs for one in pair}
    return [one for one in left if id(one) not in taken], [one for one in right if id(one) not in taken]


def _by_bytes(ones: list[Group], others: list[Group], ratios: Collection[Fraction]) -> Pairs:
    """Pair groups of one op whose shapes cannot be compared."""
    pairs: Pairs = []
    for ratio in (*ratios, Fraction(1)):
        ones, others = _pair(pairs, ones, others, _size, _sized(ratio))
    near = _nearest(*([one for one in side if one.size is not None] for side in (ones, others)))
    left, right = _rest(ones, others, near)
    blank = list(zip([one for one in left if one.size is None], right, strict=False))
    left, right = _rest(left, right, blank)
    return [*pairs, *near, *blank, *zip(left, [one for one in right if one.size is None], strict=False)]


def _size(one: Group) -> int | None:
    return one.size


def _sized(ratio: Fraction) -> Key:
    """Key: bytes of a group of head, scaled to base."""
    return lambda one: None if one.size is None else one.size * ratio


def _nearest(ones: list[Group], others: list[Group]) -> Pairs:
    """Pair each group of the shorter side with the group of the other with the nearest ratio of bytes.

    Sides of equal length are matched in order of size, so that the result is symmetric.
    """
    few, many = sorted((ones, others), key=len)
    left = sorted(many, key=_bytes)
    if len(few) == len(many):
        found = list(zip(sorted(few, key=_bytes), left, strict=True))
    else:
        found = [(one, left.pop(_nearest_at(one, left))) for one in sorted(few, key=_bytes, reverse=True)]
    return found if few is ones else [(other, one) for one, other in found]


def _nearest_at(one: Group, by_size: list[Group]) -> int:
    place = bisect(by_size, _bytes(one), key=_bytes)
    near = range(max(place - 1, 0), min(place + 1, len(by_size)))
    return min(near, key=lambda at: _times(_bytes(one), _bytes(by_size[at])))


def _bytes(one: Group) -> int:
    return max(one.size or 0, 1)


def _times(one: int, other: int) -> Fraction:
    return Fraction(max(one, other), min(one, other))
