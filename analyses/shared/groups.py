"""Exact integer statistics of intervals by group.

`input_shapes` is compact JSON of one entry per input: `[8,3]` for a tensor, `[[8,3],[4]]` for a list of
tensors, `[]` for a tensor without dimensions and for non-tensors. `input_dtypes` distinguishes these: it has
the dtype of a tensor (`float`, `long int`, `c10::Half`), else `Scalar`, `TensorList`, a kind of list, or an
empty text. Texts repeat, so callers parse each distinct one once.

A lane signals 2.5, 5, 8, 16, 32 or 64 GT/s in generations 1 to 6. After line encoding (8 of 10 bits in 1 and
2, 128 of 130 in 3 to 5, 242 of 256 bytes in 6) that is 0.25, 0.5, 0.985, 1.969, 3.938 and 7.563 GB/s in each
direction. Large copies reach 80 to 90% of it because of packet headers.

Source: PCI Express Base Specification, revisions 1.1 to 6.0.
"""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
import pandas as pd
import pyarrow.compute as pc

from tracekit.analysis import Column
from tracekit.runs.intervals import Ints
from tracekit.runs.nvml import SOURCE, M
from tracekit.runs.run import Run
from tracekit.schema import C

from .common import ints, share, spans, union_by

COLUMNS = (
    Column("count", "count", "number of kernels"),
    Column("sum_ns", "ns", "Σ of durations"),
    Column("union_ns", "ns", "length of the union on each device, summed over devices"),
    Column("min_ns", "ns", "shortest"),
    Column("median_ns", "ns", "lower median"),
    Column("max_ns", "ns", "longest"),
    Column("share", "share", "Σ of durations over that of all kernels of the run"),
)


@dataclass(frozen=True, kw_only=True)
class Grouped:
    """Partial statistics of intervals by group, which can be combined exactly across ranks.

    Attributes:
        labels: Keys of each group.
        sums: count, sum_ns and union_ns of each group.
        group: Position of the group of each distinct duration, sorted.
        value: Distinct durations, ascending within a group.
        times: Number of occurrences of each distinct duration.
    """

    labels: pd.DataFrame
    sums: pd.DataFrame
    group: Ints
    value: Ints
    times: Ints


def by(frame: pd.DataFrame, keys: Sequence[str]) -> pd.DataFrame:
    """One row per combination of keys, largest sum first: the keys, then `COLUMNS`.

    Args:
        frame: Device intervals with rank and device; none of the keys may be null.
        keys: Columns to group by; categories must be sorted.
    """
    return combined([partial(frame, keys)])


def partial(frame: pd.DataFrame, keys: Sequence[str]) -> Grouped:
    """Partial statistics of some ranks; the arguments are those of `by`."""
    grouped = frame.groupby(list(keys), sort=True, observed=True)
    codes = grouped.ngroup().to_numpy().astype(np.int64)
    labels = _plain(grouped.size().reset_index()[list(keys)])
    group, value, times = _distinct(codes, ints(frame, C.DUR_NS), np.ones(len(frame), np.int64))
    count, total = np.zeros((2, len(labels)), np.int64)
    np.add.at(count, group, times)
    np.add.at(total, group, times * value)
    sums = {"count": count, "sum_ns": total, "union_ns": _unions(frame, codes, len(labels))}
    return Grouped(labels=labels, sums=pd.DataFrame(sums), group=group, value=value, times=times)


def combined(parts: Sequence[Grouped]) -> pd.DataFrame:
    """Combine at least one partial result into the table of `by`."""
    labels = pd.concat([part.labels for part in parts], ignore_index=True)
    keys = [str(name) for name in labels.columns]
    grouped = labels.groupby(keys, sort=True)
    codes = grouped.ngroup().to_numpy().astype(np.int64)
    table = grouped.size().reset_index()[keys]
    sums = pd.concat([part.sums for part in parts], ignore_index=True).groupby(codes).sum()
    table = table.join(sums).assign(**_durations(parts, codes, ints(sums, "count")))
    table["share"] = share(ints(table, "sum_ns"), int(table["sum_ns"].sum()))
    order = [*keys, *(column.name for column in COLUMNS)]
    ascending = [False, *(True for _ in keys)]
    return table[order].sort_values(["sum_ns", *keys], ascending=ascending, ignore_index=True)


def _plain(labels: pd.DataFrame) -> pd.DataFrame:
    """Convert categories to text."""
    kinds = {name: kind for name, kind in labels.dtypes.items() if isinstance(kind, pd.CategoricalDtype)}
    return labels.astype(dict.fromkeys(kinds, object))


def _distinct(group: Ints, value: Ints, times: Ints) -> tuple[Ints, Ints, Ints]:
    """Distinct values of each group, sorted, with their counts."""
    order = np.lexsort((value, group))
    group, value, times = group[order], value[order], times[order]
    new = np.ones(len(group), bool)
    new[1:] = (group[1:] != group[:-1]) | (value[1:] != value[:-1])
    first = np.flatnonzero(new)
    return group[first], value[first], np.add.reduceat(times, first) if len(first) else times


def _durations(parts: Sequence[Grouped], codes: Ints, count: Ints) -> dict[str, Ints]:
    """Minimum, lower median and maximum of each group, from the distinct durations of the parts."""
    if not len(count):
        return dict.fromkeys(("min_ns", "median_ns", "max_ns"), count)
    offsets = np.cumsum([0, *(len(part.labels) for part in parts)])
    groups = [codes[part.group + offset] for part, offset in zip(parts, offsets, strict=False)]
    group, value, times = _distinct(
        np.concatenate(groups),
        np.concatenate([part.value for part in parts]),
        np.concatenate([part.times for part in parts]),
    )
    first = np.searchsorted(group, np.arange(len(count)))
    last = np.append(first[1:], len(group)) - 1
    before = np.cumsum(count) - count
    middle = np.searchsorted(np.cumsum(times), before + (count - 1) // 2, side="right")
    return {"min_ns": value[first], "median_ns": value[middle], "max_ns": value[last]}


def _unions(frame: pd.DataFrame, codes: Ints, groups: int) -> Ints:
    """Union per device, summed over devices, which run concurrently."""
    start, end = spans(frame)
    places = frame.groupby([C.RANK, C.DEVICE]).ngroup().to_numpy().astype(np.int64)
    lanes = int(places.max()) + 1 if len(places) else 1
    lengths = union_by(codes * lanes + places, groups * lanes, start, end)
    total: Ints = lengths.reshape(groups, lanes).sum(axis=1)
    return total


Shape: TypeAlias = tuple[int, ...]
Input: TypeAlias = Shape | list[Shape] | None

_TORCH_NAMES = {
    "float": "float",
    "double": "double",
    "half": "c10::Half",
    "bfloat16": "c10::BFloat16",
    "byte": "unsigned char",
    "char": "signed char",
    "short": "short",
    "int": "int",
    "long": "long",
    "bool": "bool",
    "float8_e4m3fn": "c10::Float8_e4m3fn",
    "float8_e5m2": "c10::Float8_e5m2",
}
"""C++ type of each name of a scalar type that collectives are recorded with, in lower case."""
ITEM_BYTES: dict[str, int] = {
    "float": 4,
    "double": 8,
    "long int": 8,
    "long": 8,
    "long long": 8,
    "__int64": 8,
    "int": 4,
    "short": 2,
    "short int": 2,
    "signed char": 1,
    "char": 1,
    "unsigned char": 1,
    "bool": 1,
    "unsigned short": 2,
    "unsigned int": 4,
    "unsigned long": 8,
    "c10::Half": 2,
    "c10::BFloat16": 2,
    "c10::complex<c10::Half>": 4,
    "c10::complex<float>": 8,
    "c10::complex<double>": 16,
    "c10::Float8_e4m3fn": 1,
    "c10::Float8_e4m3fnuz": 1,
    "c10::Float8_e5m2": 1,
    "c10::Float8_e5m2fnuz": 1,
    "c10::Float8_e8m0fnu": 1,
    "c10::qint8": 1,
    "c10::quint8": 1,
    "c10::qint32": 4,
}
"""Bytes per element by C++ type name, as compilers spell them in the trace."""


@dataclass(frozen=True)
class Tensor:
    """One tensor among the inputs of an op.

    Attributes:
        shape: Its dimensions.
        dtype: Its dtype as the profiler names it, empty if not recorded.
    """

    shape: Shape
    dtype: str

    @property
    def elements(self) -> int:
        """Number of elements."""
        return numel(self.shape)

    @property
    def bytes(self) -> int | None:
        """Bytes of its elements, None for an unknown dtype."""
        size = item_bytes(self.dtype)
        return None if size is None else self.elements * size


def numel(shape: Sequence[int]) -> int:
    """Number of elements; a tensor without dimensions has one.

    Example:
        >>> numel((32, 3, 256, 256)), numel(()), numel((4, 0))
        (6291456, 1, 0)
    """
    return math.prod(shape)


def item_bytes(dtype: str) -> int | None:
    """Bytes of one element, None if not a tensor dtype.

    Example:
        >>> item_bytes("c10::BFloat16"), item_bytes("BFloat16"), item_bytes("Scalar")
        (2, 2, None)
    """
    name = dtype.strip()
    return ITEM_BYTES.get(name) or ITEM_BYTES.get(_TORCH_NAMES.get(name.lower(), ""))


def parse_shapes(text: str) -> list[Input]:
    """One entry per input: a shape, or the shapes of a list of tensors; empty for an unusable text.

    None is an entry that is not made of integers.

    Example:
        >>> parse_shapes("[[8,3],[],[[2],[4,5]]]")
        [(8, 3), (), [(2,), (4, 5)]]
    """
    return [_entry(entry) for entry in _list(text)]


def parse_dtypes(text: str) -> list[str]:
    """One name per input; empty for an unusable text.

    Example:
        >>> parse_dtypes('["float","Scalar",""]')
        ['float', 'Scalar', '']
    """
    return [entry if isinstance(entry, str) else "" for entry in _list(text)]


def tensors(shapes: str, dtypes: str) -> list[Tensor | None]:
    """Each input as a tensor, None if it is not known to be one.

    Without dtypes an input with dimensions is a tensor of unknown dtype. Lists of tensors are None.

    Example:
        >>> tensors("[[8,3],[],[]]", '["float","double","Scalar"]')
        [Tensor(shape=(8, 3), dtype='float'), Tensor(shape=(), dtype='double'), None]
    """
    entries, names = parse_shapes(shapes), parse_dtypes(dtypes)
    if not names:
        return [Tensor(entry, "") if isinstance(entry, tuple) and entry else None for entry in entries]
    names += [""] * (len(entries) - len(names))
    return [
        Tensor(entry, name) if isinstance(entry, tuple) and (item_bytes(name) or entry) else None
        for entry, name in zip(entries, names, strict=False)
    ]


def _list(text: str) -> list[Any]:
    try:
        value = json.loads(text)
    except (TypeError, ValueError):  # a placeholder, or truncated by an old profiler
        return []
    return value if isinstance(value, list) else []


def _entry(entry: Any) -> Input:
    if not isinstance(entry, list):
        return None
    if entry and all(isinstance(one, list) for one in entry):
        shapes = [_shape(one) for one in entry]
        return None if None in shapes else [shape for shape in shapes if shape is not None]
    return _shape(entry)


def _shape(entry: list[Any]) -> Shape | None:
    return tuple(entry) if all(isinstance(size, int) for size in entry) else None


LANE_GB_PER_S = {1: 0.25, 2: 0.5, 3: 0.985, 4: 1.969, 5: 3.938, 6: 7.563}


def link_gb_per_s(generation: float | None, width: float | None) -> float | None:
    """GB/s of a link in one direction; None if either is unknown.

    Example:
        >>> link_gb_per_s(4, 16), link_gb_per_s(None, 16)
        (31.504, None)
    """
    lane = LANE_GB_PER_S.get(int(generation or 0))
    return lane * int(width) if lane and width else None


def link_rates(run: Run) -> dict[int, float]:
    """GB/s of the link of each device with known generation and width.

    The fastest link sampled during the run counts, because an idle link falls back to a lower generation;
    without samples, the maximum of the link.
    """
    return _recorded(run) | _sampled(run)


def _sampled(run: Run) -> dict[int, float]:
    metrics = [M.PCIE_GENERATION, M.PCIE_WIDTH]
    where = (pc.field(C.SOURCE) == SOURCE) & pc.field(C.METRIC).isin(metrics) & pc.field(C.DEVICE).is_valid()
    rows = run.table("counters", columns=[C.DEVICE, C.METRIC, C.VALUE], where=where)
    rows[C.METRIC] = rows[C.METRIC].astype(str)
    best = rows.groupby([C.DEVICE, C.METRIC])[C.VALUE].max().unstack()
    if not set(metrics) <= set(best.columns):
        return {}
    known = best[metrics].dropna()
    columns = (known[name].to_numpy(float) for name in metrics)
    links = zip(known.index.to_numpy(int).tolist(), *columns, strict=True)
    return {index: rate for index, *link in links if (rate := link_gb_per_s(*link))}


def _recorded(run: Run) -> dict[int, float]:
    found: dict[int, float] = {}
    for gpu in run.meta.environment.get("gpus") or []:
        rate, index = _maximum(gpu.get("pcie") or {}), gpu.get("index")
        if isinstance(index, int) and rate:
            found[index] = rate
    return found


def _maximum(pcie: dict[str, Any]) -> float | None:
    """Maximum rate of a link; older runs store the maximum as `generation` and `width`."""
    generation = pcie.get("max_generation") or pcie.get("generation")
    return link_gb_per_s(generation, pcie.get("width") or pcie.get("max_width"))
