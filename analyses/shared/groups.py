"""Groups of rows with equal keys, computed on arrays.

`DataFrame.groupby` has a fixed cost per call that exceeds the work on small tables many times.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt
import pandas as pd

from tracekit.runs.intervals import Ints
from tracekit.schema import C

_Group: TypeAlias = npt.NDArray[np.integer[Any]]
_MAX_KEY = 1 << 62
_FEW_GROUPS = 1_000  # groups up to which a search in each needs less time and memory than keys of all rows
_MAX_TABLE = 1 << 16
"""Codes beyond the number of rows up to which a table of them is cheaper than a hash table."""


def rows_by_device(frame: pd.DataFrame) -> dict[tuple[int, int], Ints]:
    """Positions of the rows of each rank and device, sorted by both; rows of a device keep their order.

    Example:
        >>> rows_by_device(pd.DataFrame({C.RANK: [0, 1, 0], C.DEVICE: [2, 2, 2]}))
        {(0, 2): array([0, 2]), (1, 2): array([1])}
    """
    rank, device = (frame[name].to_numpy(np.int64) for name in (C.RANK, C.DEVICE))
    numbers = rank * (int(np.ptp(device)) + 1 if len(device) else 1) + device
    return {(int(rank[rows[0]]), int(device[rows[0]])): rows for _, rows in rows_by_number(numbers)}


def of_largest_devices(frame: pd.DataFrame, places: pd.DataFrame, values: npt.ArrayLike) -> pd.DataFrame:
    """Rows of the device of each rank with the largest value, which `max_per_rank` sums.

    Example:
        >>> frame = pd.DataFrame({C.RANK: [0, 0, 1, 0], C.DEVICE: [0, 1, 0, 1]})
        >>> of_largest_devices(frame, frame[:3], [5, 7, 2]).index.tolist()
        [1, 2, 3]
    """
    ordered = (
        places[[C.RANK, C.DEVICE]]
        .assign(value=np.asarray(values, np.int64))
        .sort_values(["value", C.DEVICE], ascending=[False, True])
    )
    largest = ordered.drop_duplicates(C.RANK)
    return frame[
        pd.MultiIndex.from_frame(frame[[C.RANK, C.DEVICE]]).isin(
            pd.MultiIndex.from_frame(largest[[C.RANK, C.DEVICE]])
        )
    ]


def rows_by_number(numbers: npt.NDArray[np.integer[Any]]) -> Iterator[tuple[int, Ints]]:
    """Each number with the positions of its rows; one sort for all numbers.

    Example:
        >>> [(number, rows.tolist()) for number, rows in rows_by_number(np.array([7, 3, 7]))]
        [(3, [1]), (7, [0, 2])]
    """
    order = order_by_number(numbers)
    ordered = numbers[order]
    ends = [*(np.flatnonzero(ordered[1:] != ordered[:-1]) + 1).tolist(), len(order)]
    first = 0
    for end in ends if len(order) else ():
        yield int(ordered[first]), order[first:end]
        first = end


def order_by_number(numbers: npt.NDArray[np.integer[Any]]) -> Ints:
    """Stable order of rows by number."""
    is_small = len(numbers) and numbers.min() >= 0 and numbers.max() <= np.iinfo(np.int16).max
    # NumPy sorts 16-bit integers by radix, which is several times faster.
    return np.argsort(numbers.astype(np.int16) if is_small else numbers, kind="stable")


def order_in_groups(groups: _Group, values: Ints) -> Ints:
    """Order of rows by group and then by value; equal rows in any order.

    One sort of combined keys takes a tenth of the time of `np.lexsort`.

    Example:
        >>> order_in_groups(np.array([1, 0, 1]), np.array([7, 9, 5]))
        array([1, 2, 0])
    """
    if not len(values):
        return np.empty(0, np.int64)
    low, width = int(values.min()), int(values.max()) - int(values.min()) + 1
    if (max(int(groups.max()), -int(groups.min())) + 1) * width > _MAX_KEY:
        return np.lexsort((values, groups))
    return np.argsort(groups.astype(np.int64, copy=False) * width + (values - low))


def max_so_far(groups: Ints, values: Ints) -> Ints:
    """Largest value up to each row in its group; the rows are sorted by group.

    Example:
        >>> max_so_far(np.array([3, 3, 5, 5]), np.array([7, 2, 4, 6]))
        array([7, 7, 4, 6])
    """
    if not len(values):
        return values
    number, width = np.append(0, np.cumsum(groups[1:] != groups[:-1])), int(np.ptp(values)) + 1
    if (int(number[-1]) + 1) * width > _MAX_KEY:
        return pd.Series(values).groupby(groups, sort=False).cummax().to_numpy(dtype=np.int64)
    shift = number * width  # no value of a group is then below one of the group before
    largest: Ints = np.maximum.accumulate(values + shift) - shift
    return largest


def search_by(groups: _Group, values: Ints, of_query: _Group, queries: Ints) -> Ints:
    """Position of the last value of each query's group that does not exceed the query, -1 if none does.

    The values are sorted by group, from 0, and then by value. A query of group -1 finds none.

    Example:
        >>> search_by(np.array([0, 0, 1]), np.array([2, 5, 3]), np.array([0, 1, 0]), np.array([5, 2, 4]))
        array([ 1, -1,  0])
    """
    if not len(values):
        return np.full(len(queries), -1, np.int64)
    last = int(max(groups[-1], of_query.max(initial=0)))
    if last < _FEW_GROUPS:
        return _search_each(groups, values, of_query.astype(np.int16), queries)
    groups, of_query = groups.astype(np.int64, copy=False), of_query.astype(np.int64, copy=False)
    low, high = int(values.min()), int(values.max())
    width = high - low + 2
    if (last + 1) * width > _MAX_KEY:  # ranks of the values are smaller, and in the same order
        distinct, ranks = np.unique(values, return_inverse=True)
        return search_by(groups, ranks, of_query, np.searchsorted(distinct, queries, side="right") - 1)
    # One search for all groups: each has its own range of keys.
    keys = groups * width + (values - low + 1)
    wanted = of_query * width + (np.clip(queries, low - 1, high) - low + 1)
    place = np.searchsorted(keys, wanted, side="right") - 1
    return np.where((place >= 0) & (groups[place] == of_query), place, -1)


def _search_each(groups: _Group, values: Ints, of_query: npt.NDArray[np.int16], queries: Ints) -> Ints:
    """Search like `search_by`, one group after the other."""
    place = np.full(len(queries), -1, np.int64)
    for number, rows in rows_by_number(of_query):
        first, stop = np.searchsorted(groups, np.array([number, number + 1], groups.dtype))
        inside = np.searchsorted(values[first:stop], queries[rows], side="right")
        place[rows] = np.where(inside > 0, first + inside - 1, -1)
    return place


def count_by_rank(rows: pd.DataFrame, ranks: Ints) -> Ints:
    """Number of rows of each of these ranks.

    Example:
        >>> count_by_rank(pd.DataFrame({C.RANK: [0, 0, 2]}), np.array([0, 1, 2]))
        array([2, 0, 1])
    """
    ordered = np.sort(rows[C.RANK].to_numpy(np.int64))
    return np.searchsorted(ordered, ranks, side="right") - np.searchsorted(ordered, ranks)


def codes_of(values: pd.Series) -> tuple[Ints, int]:
    """Number of each value in the order of the values, -1 if missing, and how many numbers there are.

    Integers of a narrow range are numbered from its start, so that some numbers may have no value.
    """
    if isinstance(values.dtype, pd.CategoricalDtype):
        return values.array.codes.astype(np.int64), len(values.dtype.categories)
    if isinstance(values.dtype, np.dtype) and values.dtype.kind in "iu" and len(values):
        numbers = values.to_numpy(np.int64)
        lowest = int(numbers.min())
        count = int(numbers.max()) - lowest + 1
        if count <= _MAX_TABLE + len(numbers):
            return numbers - lowest, count
    codes, distinct = pd.factorize(values, sort=True)
    return np.asarray(codes, np.int64), len(distinct)


def number_by(frame: pd.DataFrame, keys: Sequence[str]) -> tuple[Ints, Ints]:
    """Number the distinct combinations of keys in their order, with nulls last.

    Returns:
        The number of each row, and the position of the first row of each number.

    Example:
        >>> number_by(pd.DataFrame({"op": ["b", "a", "b"], "n": [1, 1, 1]}), ["op", "n"])
        (array([1, 0, 1]), array([1, 0]))
    """
    numbers, count = np.zeros(len(frame), np.int64), 1
    for key in keys:
        codes, distinct = codes_of(frame[key])
        if count * (distinct + 1) > _MAX_KEY:  # the next combination might not fit 64 bits
            numbers, count = _number_densely(numbers, count)
        codes[codes < 0] = distinct
        numbers *= distinct + 1
        numbers += codes
        count *= distinct + 1
    numbers, count = _number_densely(numbers, count)
    first = np.empty(count, np.int64)
    first[numbers[::-1]] = np.arange(len(frame))[::-1]
    return numbers, first


def _number_densely(codes: Ints, count: int) -> tuple[Ints, int]:
    """Number the distinct codes, which are from 0 up to `count`, in their order; and how many there are."""
    if count > _MAX_TABLE + len(codes):  # a table of all codes would be larger than a hash table
        numbers, distinct = pd.factorize(codes, sort=True)
        return np.asarray(numbers, np.int64), len(distinct)
    occurs = np.zeros(count, np.bool_)
    occurs[codes] = True
    number_of = np.cumsum(occurs) - 1
    return number_of[codes], int(number_of[-1]) + 1 if count else 0


def sum_by_code(codes: Ints, groups: int, values: npt.NDArray[np.integer[Any]]) -> Ints:
    """Exact integer sums per group."""
    sums = np.zeros(groups, np.int64)
    np.add.at(sums, codes, values)
    return sums


@dataclass(frozen=True)
class Groups:
    """Rows with equal keys; groups are numbered in the order of the keys."""

    codes: Ints  # number of each row's group
    first: Ints  # position of the first row of each group

    def sizes(self) -> Ints:
        """Number of rows of each group."""
        return np.bincount(self.codes, minlength=len(self.first))

    def sums(self, values: npt.NDArray[np.integer[Any]]) -> Ints:
        """Exact sum of integers over each group."""
        return sum_by_code(self.codes, len(self.first), values)

    def largest(self, values: Ints) -> Ints:
        """Largest integer of each group."""
        largest = values[self.first]
        np.maximum.at(largest, self.codes, values)
        return largest

    def place_of_largest(self, values: Ints) -> Ints:
        """Position of the first row with the largest integer of each group."""
        rows = np.flatnonzero(values == self.largest(values)[self.codes])[::-1]
        place = np.empty_like(self.first)
        place[self.codes[rows]] = rows  # of rows that are equal the last one is kept, which is the first row
        return place


def group_rows(table: pd.DataFrame, keys: Sequence[str]) -> Groups:
    """Group rows by columns, as `number_by` numbers them.

    Example:
        >>> group_rows(pd.DataFrame({"op": ["b", "a", "b"]}), ["op"]).sums(np.array([1, 2, 4]))
        array([2, 5])
    """
    return Groups(*number_by(table, keys))


def keys_of(frame: pd.DataFrame, keys: Sequence[str], first: Ints, texts: Any = "str") -> pd.DataFrame:
    """Keys of each group, by the position of its first row; categories become this type of texts.

    Example:
        >>> keys_of(pd.DataFrame({"op": pd.Categorical(["b", "a"])}), ["op"], np.array([1]))["op"].tolist()
        ['a']
    """
    labels = frame[list(keys)].take(first).reset_index(drop=True)
    for name in keys:
        if isinstance(labels[name].dtype, pd.CategoricalDtype):
            labels[name] = labels[name].astype(texts)
    return labels


def sums_if_known(frame: pd.DataFrame, codes: Ints, groups: int, column: str) -> pd.arrays.IntegerArray:
    """Exact sums by group, missing if a value of the group is missing.

    Example:
        >>> frame = pd.DataFrame({"n": pd.array([1, 2, None], dtype="Int64")})
        >>> sums_if_known(frame, np.array([0, 0, 1]), 2, "n").tolist()
        [3, <NA>]
    """
    values, incomplete = frame[column], np.zeros(groups, np.bool_)
    sums = sum_by_code(codes, groups, values.fillna(0).to_numpy(np.int64))
    incomplete[codes[values.isna().to_numpy(bool)]] = True
    return pd.arrays.IntegerArray(sums, incomplete)
