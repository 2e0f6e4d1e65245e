"""Host-to-device copies of a run per step, by op, tensor and memory."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd

from tracekit.analysis import EVIDENCE_ROWS
from tracekit.analysis.savings import budget
from tracekit.runs.intervals import Ints
from tracekit.runs.run import Run
from tracekit.schema import C, CopyKind

from ..copies.read_copies import MEMORY, OP, SOURCE, describe_copies, in_steps, number_by, read_copies
from ..copies.tables import KernelUnions, sums_if_known
from ..shared.common import ints
from .tensors import DTYPE, ELEMENTS, ITEM, SHAPE, with_tensors

_UNKNOWN = -1


@dataclass(frozen=True)
class CopyGroup:
    """One group of copies of a run, per step.

    Attributes:
        shape: Shape of the copied tensor, empty if unknown.
        dtype: Its dtype as the profiler names it, empty if unknown.
        size: Bytes of each copy, None if unknown.
        function: The source line without its number.
        rows: Device rows of the longest copies.
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


def read_groups(run: Run) -> list[CopyGroup]:
    """Group the copies of a run, in the order of their first copy in a step."""
    steps = budget(run)
    copies = in_steps(with_tensors(describe_copies(run, read_copies(run, CopyKind.H2D))), marked=steps.marked)
    if copies.empty:
        return []
    place = copies.groupby([C.RANK, C.STEP], dropna=False).cumcount()
    copies = copies.assign(place=place).reset_index(drop=True)
    for column in (SHAPE, DTYPE):
        copies[column] = copies[column].astype(object).where(copies[column].notna(), "")
    copies["size"] = copies[C.BYTES].astype("Int64").fillna(_UNKNOWN).astype(np.int64)
    codes, count = number_by(copies, [OP, SHAPE, DTYPE, "size", MEMORY])
    exposed = KernelUnions(run).exposed_by(copies, codes, count)
    took = sums_if_known(copies, codes, count, C.DUR_NS).to_numpy(dtype=np.int64)
    places = copies.groupby(codes, sort=True)["place"].min().to_numpy()
    longest = _longest(copies, codes)
    first = copies.iloc[np.unique(codes, return_index=True)[1]].to_dict("records")
    number = np.bincount(codes, minlength=count)
    groups = [
        _group(row, longest[code], int(number[code]), int(took[code]), int(exposed[code]), steps.steps)
        for code, row in enumerate(first)
    ]
    return [groups[code] for code in np.lexsort((np.arange(count), places))]


def _longest(copies: pd.DataFrame, codes: Ints) -> list[list[int]]:
    """Rows of the longest copies of each group, at most `EVIDENCE_ROWS`."""
    row, duration = ints(copies, C.ROW_ID), ints(copies, C.DUR_NS)
    order = np.lexsort((row, -duration, codes))
    ends = np.flatnonzero(np.diff(codes[order])) + 1
    return [part[:EVIDENCE_ROWS].tolist() for part in np.split(row[order], ends)]


def _group(
    row: dict[Any, Any], rows: list[int], count: int, took: int, exposed: int, steps: int
) -> CopyGroup:
    size = int(row["size"]) if row["size"] != _UNKNOWN else None
    line = str(row[SOURCE])
    return CopyGroup(
        op=str(row[OP]),
        shape=str(row[SHAPE]),
        dtype=str(row[DTYPE]),
        elements=int(row[ELEMENTS]) if row[SHAPE] else 0,
        item=int(row[ITEM]) if row[SHAPE] else 0,
        size=size,
        memory=str(row[MEMORY]),
        function=line.partition("(")[0] + line.partition(")")[2],
        source=line,
        copies=count / steps,
        bytes=None if size is None else size * count // steps,
        sum_ns=took // steps,
        exposed_ns=exposed // steps,
        rate=None if size is None or not took else size * count / took,
        rows=tuple(rows),
    )
