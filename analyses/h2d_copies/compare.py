"""Comparison of what two runs copy to the device per step, tensor by tensor.

Copies of profiled steps (of the capture if none are marked) are grouped by op, shape, dtype, bytes and
memory, and each group of one run is matched with one of the other as below. Each match gets the first of
`findings.CAUSES` that applies.

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
from typing import Any, TypeAlias

import pandas as pd

from tracekit.analysis import Column, Result, TableSpec
from tracekit.analysis.savings import budget
from tracekit.runs.run import Run
from tracekit.schema import Memory

from ..shared.common import NO_STEPS, typed_table
from ..shared.run_pairs import setting, sides
from ..shared.tensor_shapes import item_bytes
from .findings import (
    CAUSES,
    DIFFERS,
    DTYPES,
    DUPLICATE,
    LINK,
    MEMORY_KIND,
    ONE_SIDE,
    RECORDED_DTYPES,
    SHAPES,
    comparison_findings,
)
from .tensors import CopyGroup, read_groups

CausesByRatio: TypeAlias = dict[Fraction, list[tuple[str, str]]]
Key: TypeAlias = Callable[[CopyGroup], Any]
Pairs: TypeAlias = list[tuple[CopyGroup, CopyGroup]]
Sides: TypeAlias = tuple[list[CopyGroup], list[CopyGroup]]

_HOST_MEMORY = (str(Memory.PAGEABLE), str(Memory.PINNED), str(Memory.UNIFIED))


def compare(base: Run, head: Run) -> Result:
    """Explain how the host-to-device copies of two runs differ."""
    first, second = read_groups(base), read_groups(head)
    if not first and not second:
        return Result(notes=("neither run has host-to-device copies",))
    by_ratio = _causes_by_ratio(base, head)
    rows = [_row(*pair, by_ratio) for pair in _match_groups(first, second, by_ratio)]
    rows.sort(key=_change, reverse=True)
    tables = {"totals": _totals(first, second, base, head), "causes": typed_table(rows, TABLES[1])}
    return Result(
        tables, comparison_findings(rows, first, second, base, head), tuple(_notes(base, head, rows))
    )


def _row(base: CopyGroup | None, head: CopyGroup | None, by_ratio: CausesByRatio) -> dict[str, Any]:
    causes = list(_causes(base, head, by_ratio))
    cause, because = causes[0] if causes else ("", "")
    also = ", ".join(name for name, _ in causes[1:])
    present = head or base
    op = present.op if present else ""
    row: dict[str, Any] = {"cause": cause, "because": because, "also": also, "op": op}
    for side, group in (("base", base), ("head", head)):
        row |= {f"{side}_{name}": getattr(group, name, absent) for name, absent in _ABSENT.items()}
        row[f"{side}_group"] = group
    return row


_ABSENT = {"shape": "", "dtype": "", "memory": "", "copies": 0.0, "bytes": 0, "sum_ns": 0, "gb_per_s": None}
"""Columns of each side, with the value where the run has no such copies."""


def _change(row: dict[str, Any]) -> tuple[int, int]:
    more_bytes = (row["head_bytes"] or 0) - (row["base_bytes"] or 0)
    return abs(more_bytes), abs(row["head_sum_ns"] - row["base_sum_ns"])


def _causes(
    base: CopyGroup | None, head: CopyGroup | None, by_ratio: CausesByRatio
) -> Iterator[tuple[str, str]]:
    """Yield the causes that apply with their evidence, in the order tested."""
    if base is None or head is None:
        yield (ONE_SIDE, f"copied only in {'head' if base is None else 'base'}")
        return
    content = list(_content_causes(base, head, by_ratio))
    yield from content
    if abs(base.copies - head.copies) >= CAUSES[DUPLICATE].rule["min_copies"]:
        yield (DUPLICATE, f"{base.copies:g} against {head.copies:g} copies per step")
    if base.memory != head.memory and base.memory in _HOST_MEMORY and head.memory in _HOST_MEMORY:
        yield (MEMORY_KIND, f"{base.memory} against {head.memory} host memory")
    elif not content and base.memory == head.memory and _rates_differ(base, head):
        yield (LINK, f"{base.gb_per_s:.1f} against {head.gb_per_s:.1f} GB/s with the same bytes and memory")


def _rates_differ(base: CopyGroup, head: CopyGroup) -> bool:
    rule = CAUSES[LINK].rule
    if not base.gb_per_s or not head.gb_per_s or (base.size or 0) < rule["min_bytes"]:
        return False
    return max(base.gb_per_s / head.gb_per_s, head.gb_per_s / base.gb_per_s) > rule["min_ratio"]


def _content_causes(base: CopyGroup, head: CopyGroup, by_ratio: CausesByRatio) -> Iterator[tuple[str, str]]:
    if base.shape and head.shape:
        if base.elements != head.elements:
            yield (SHAPES, f"{base.shape} against {head.shape}")
        if base.item != head.item:
            yield (DTYPES, f"{base.dtype} against {head.dtype}")
    elif (base.size is None) != (head.size is None):
        yield DIFFERS, f"{'base' if base.size is None else 'head'} does not record the bytes of copies"
    elif base.size is not None and head.size is not None and base.size != head.size:
        because = (
            f"{base.size:,} against {head.size:,} bytes per copy; shape and dtype cannot be distinguished "
            "without recorded shapes"
        )
        ratio = Fraction(base.size, head.size) if head.size else Fraction(0)
        yield from by_ratio.get(ratio, [(DIFFERS, because)])


def _notes(base: Run, head: Run, rows: list[dict[str, Any]]) -> Iterator[str]:
    for name, run in (("base", base), ("head", head)):
        if not budget(run).marked:
            yield f"{name}: {NO_STEPS}; the whole capture counts as one step"
    if differences := _differences(base, head):
        yield f"the runs' settings differ: {differences}"
    if any(row["cause"] == DIFFERS and not (row["base_shape"] and row["head_shape"]) for row in rows):
        yield "shapes are not recorded in both runs: record with `record_shapes=True`"


def _totals(first: list[CopyGroup], second: list[CopyGroup], base: Run, head: Run) -> pd.DataFrame:
    row: dict[str, Any] = {}
    for side, groups, run in (("base", first, base), ("head", second, head)):
        sizes = [group.bytes for group in groups]
        row[f"{side}_bytes"] = None if None in sizes else sum(size for size in sizes if size is not None)
        row[f"{side}_sum_ns"] = sum(group.sum_ns for group in groups)
        row[f"{side}_copies"] = float(sum(group.copies for group in groups))
        row[f"{side}_steps"] = budget(run).steps
    for name, amount in (("bytes_ratio", "bytes"), ("time_ratio", "sum_ns")):
        before, after = row[f"base_{amount}"], row[f"head_{amount}"]
        row[name] = after / before if before and after is not None else float("nan")
    return typed_table([row], TABLES[0])


_TOTALS = (
    *sides("bytes", "bytes", "bytes per step of all ranks, {}"),
    Column("bytes_ratio", "×", "head over base"),
    *sides("sum_ns", "ns", "Σ of durations per step, {}"),
    Column("time_ratio", "×", "head over base"),
    *sides("copies", "", "copies per step, {}"),
    *sides("steps", "count", "profiled steps of all ranks; captures if none are marked, {}"),
)
_CAUSES = (
    Column("cause", "", "first cause of the difference; empty if there is no difference"),
    Column("because", "prose", "the evidence, base against head"),
    *sides("bytes", "bytes", "bytes per step, {}"),
    *sides("sum_ns", "ns", "Σ of durations per step, {}"),
    *sides("shape", "", "shape of the copied tensor, {}"),
    *sides("dtype", "", "its dtype as the profiler names it, {}"),
    *sides("copies", "", "copies per step, {}"),
    *sides("memory", "", "memory of the host side, {}"),
    *sides("gb_per_s", "GB/s", "bytes over Σ of durations, {}"),
    Column("op", "", "innermost op that launched them"),
    Column("also", "", "further differences, in the order tested"),
)
TABLES = (
    TableSpec("totals", "Copies to the device per step", _TOTALS),
    TableSpec("causes", "Tensors, largest difference of bytes first", _CAUSES),
)
_KEYS: tuple[Key, ...] = (
    lambda group: (group.op, group.shape, group.dtype, group.size, group.memory, group.function),
    lambda group: (group.op, group.shape, group.dtype, group.size, group.memory),
    lambda group: (group.op, group.shape, group.dtype, group.size),
    lambda group: (group.op, group.shape) if group.shape else None,
    lambda group: (group.op, group.dtype, group.dimensions[1:]) if group.shape else None,
    lambda group: (group.op, group.dtype, len(group.dimensions)) if group.shape else None,
    lambda group: (group.op, len(group.dimensions)) if len(group.dimensions) > 1 else None,
)


def _match_groups(
    base: list[CopyGroup], head: list[CopyGroup], ratios: Collection[Fraction] = ()
) -> list[tuple[CopyGroup | None, CopyGroup | None]]:
    """Pair each group of one run with its counterpart in the other, None if there is none.

    `ratios` are those of the bytes of a copy in base to those in head that the runs' settings explain.
    """
    pairs: Pairs = []
    left, right = base, head
    for key in _KEYS:
        left, right = _pair(pairs, left, right, key)
    for op in dict.fromkeys(group.op for group in left):
        for shaped in (False, True):
            before = [group for group in left if group.op == op and bool(group.shape) is shaped]
            after = [group for group in right if group.op == op and not (shaped and group.shape)]
            by_bytes = _pair_by_bytes(before, after, ratios)
            pairs += by_bytes
            left, right = _unpaired(left, right, by_bytes)
    return [*pairs, *((group, None) for group in left), *((None, group) for group in right)]


def _pair(
    pairs: Pairs, left: list[CopyGroup], right: list[CopyGroup], key: Key, scale: Fraction | None = None
) -> Sides:
    """Add groups with equal keys to the pairs, in their order; return the remaining groups of both sides.

    With a scale, the keys are sizes, and those of the right side are multiplied by it.
    """
    queues: dict[Any, list[CopyGroup]] = {}
    for group in left:
        if (value := key(group)) is not None:
            queues.setdefault(value, []).append(group)
    added = []
    for group in right:
        value = key(group)
        if queue := queues.get(value * scale if scale and value is not None else value):
            added.append((queue.pop(0), group))
    pairs += added
    return _unpaired(left, right, added)


def _unpaired(left: list[CopyGroup], right: list[CopyGroup], pairs: Pairs) -> Sides:
    """Return the groups of both sides that are in no pair."""
    paired = {id(group) for pair in pairs for group in pair}
    left, right = ([group for group in side if id(group) not in paired] for side in (left, right))
    return left, right


def _pair_by_bytes(base: list[CopyGroup], head: list[CopyGroup], ratios: Collection[Fraction]) -> Pairs:
    """Pair groups of one op whose shapes cannot be compared."""
    pairs: Pairs = []
    for ratio in (*ratios, Fraction(1)):
        base, head = _pair(pairs, base, head, lambda group: group.size, ratio)
    near = _pair_nearest(*([group for group in side if group.size is not None] for side in (base, head)))
    left, right = _unpaired(base, head, near)
    blank = list(zip([group for group in left if group.size is None], right, strict=False))
    left, right = _unpaired(left, right, blank)
    return [*pairs, *near, *blank, *zip(left, [group for group in right if group.size is None], strict=False)]


def _pair_nearest(base: list[CopyGroup], head: list[CopyGroup]) -> Pairs:
    """Pair each group of the shorter side with the group of the other with the nearest ratio of bytes.

    Sides of equal length are matched in order of size, so that the result is symmetric.
    """
    shorter, longer = sorted((base, head), key=len)
    rest = sorted(longer, key=_bytes)
    if len(shorter) == len(longer):
        pairs = list(zip(sorted(shorter, key=_bytes), rest, strict=True))
    else:
        largest_first = sorted(shorter, key=_bytes, reverse=True)
        pairs = [(group, rest.pop(_nearest(group, rest))) for group in largest_first]
    return pairs if shorter is base else [(other, group) for group, other in pairs]


def _nearest(group: CopyGroup, by_size: list[CopyGroup]) -> int:
    """Position of the group with the nearest ratio of bytes."""
    place, size = bisect(by_size, _bytes(group), key=_bytes), _bytes(group)

    def ratio(position: int) -> Fraction:
        other = _bytes(by_size[position])
        return Fraction(max(size, other), min(size, other))

    return min(range(max(place - 1, 0), min(place + 1, len(by_size))), key=ratio)


def _bytes(group: CopyGroup) -> int:
    return max(group.size or 0, 1)


_COMPARED = (
    *("workload", "mode", "level", "size", "dataset_shape", "batch_size", "resolution", "dtype"),
    *("pin_memory", "offload", "gpu", "torch"),
)
_BATCH, _SIDE, _DTYPE = "batch_size", "resolution", "dtype"
_EXPLAINED = "no shapes recorded; the runs' settings explain the ratio exactly"


def _causes_by_ratio(base: Run, head: Run) -> CausesByRatio:
    """Causes, in the order tested, by the ratio of bytes that they explain.

    A batch size scales every tensor, a resolution scales images by its square. A dtype alone explains a ratio
    only at equal known batch sizes, because a larger batch has the same effect.
    """
    batch, side = _ratio(_BATCH, base, head), _ratio(_SIDE, base, head)
    items = _item_ratio(base, head)
    causes: CausesByRatio = {}
    for work, names in (
        (batch or Fraction(1), (_BATCH,)),
        ((batch or Fraction(1)) * (side or Fraction(1)) ** 2, (_BATCH, _SIDE)),
    ):
        if work == 1:
            continue
        shape = SHAPES, f"{_EXPLAINED}: {_differences(base, head, names)}"
        causes.setdefault(work, [shape])
        if items != 1 and work * items != 1:
            both = f"{_EXPLAINED}: {_differences(base, head, (*names, _DTYPE))}"
            causes.setdefault(work * items, [(SHAPES, both), (DTYPES, both)])
    if batch == 1 and side in (None, 1) and items != 1:
        because = f"{_EXPLAINED} at one batch size: {_differences(base, head, (_DTYPE,))}"
        causes.setdefault(items, [(DTYPES, because)])
    return causes


def _differences(base: Run, head: Run, names: tuple[str, ...] = _COMPARED) -> str:
    """List the known settings that differ: `batch_size 32 against 16`."""
    values = [(name, setting(base, name), setting(head, name)) for name in names]
    return ", ".join(
        f"{name} {before} against {after}"
        for name, before, after in values
        if before is not None and after is not None and before != after
    )


def _ratio(name: str, base: Run, head: Run) -> Fraction | None:
    """Ratio of a setting of both runs, None if one is unknown."""
    values = [setting(run, name) for run in (base, head)]
    if not all(isinstance(value, int) and value > 0 for value in values):
        return None
    return Fraction(values[0], values[1])


def _item_ratio(base: Run, head: Run) -> Fraction:
    """Ratio of the item sizes of the runs' dtypes, 1 if one is unknown."""
    names = [RECORDED_DTYPES.get(str(setting(run, _DTYPE)), ("",)) for run in (base, head)]
    base_size, head_size = (item_bytes(recorded[0]) for recorded in names)
    return Fraction(base_size, head_size) if base_size and head_size else Fraction(1)
