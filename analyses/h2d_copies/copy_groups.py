"""Host-to-device copies of a run per step, by op, tensor and memory."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pandas as pd

from tracekit.analysis import EVIDENCE_ROWS
from tracekit.analysis.savings import budget
from tracekit.runs.run import Run
from tracekit.schema import C, CopyKind

from ..copies.read_copies import MEMORY, OP, SOURCE, describe_copies, in_steps, number_by, read_copies
from ..copies.tables import KernelUnions
from ..shared.common import largest_rows
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
    gb_per_s: float | None
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
    copies = copies.assign(place=copies.groupby([C.RANK, C.STEP], dropna=False).cumcount())
    copies = copies.fillna({SHAPE: "", DTYPE: ""}).reset_index(drop=True)
    copies["size"] = copies[C.BYTES].astype("Int64").fillna(_UNKNOWN).astype(np.int64)
    codes, count = number_by(copies, [OP, SHAPE, DTYPE, "size", MEMORY])
    exposed = KernelUnions(run).exposed_by(copies, codes, count)
    groups = [
        _group(rows, int(exposed_ns), steps.steps)
        for (_, rows), exposed_ns in zip(copies.groupby(codes, sort=True), exposed, strict=True)
    ]
    order = np.argsort(copies.groupby(codes, sort=True)["place"].min().to_numpy(), kind="stable")
    return [groups[code] for code in order]


def _group(rows: pd.DataFrame, exposed_ns: int, steps: int) -> CopyGroup:
    first, count, took = rows.iloc[0], len(rows), int(rows[C.DUR_NS].sum())
    size = int(first["size"]) if first["size"] != _UNKNOWN else None
    line = str(first[SOURCE])
    return CopyGroup(
        op=str(first[OP]),
        shape=str(first[SHAPE]),
        dtype=str(first[DTYPE]),
        elements=int(first[ELEMENTS]) if first[SHAPE] else 0,
        item=int(first[ITEM]) if first[SHAPE] else 0,
        size=size,
        memory=str(first[MEMORY]),
        function=line.partition("(")[0] + line.partition(")")[2],
        source=line,
        copies=count / steps,
        bytes=None if size is None else size * count // steps,
        sum_ns=took // steps,
        exposed_ns=exposed_ns // steps,
        gb_per_s=None if size is None or not took else size * count / took,
        rows=tuple(largest_rows(rows, C.DUR_NS, EVIDENCE_ROWS)),
    )
