"""Copies to the device of one run by what tells tensors apart: op, shape, dtype, bytes and memory."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from tracekit.savings import budget
from tracekit.schema import C, CopyKind

from ._common import ints
from ._copied_tensors import DTYPE, ELEMENTS, ITEM, SHAPE, with_tensors
from ._copies import MEMORY, OP, SOURCE, Hiding, code_by, counted, described, read

if TYPE_CHECKING:
    import pandas as pd

    from tracekit.run import Run

_UNKNOWN = -1


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
