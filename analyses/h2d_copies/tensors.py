"""Copied tensors: elements, dtype and shape, and the bytes that the device needs.

The copied tensor is known if the launching op is `aten::copy_`, `aten::_to_copy` or `aten::to`, its shapes
and dtypes are recorded, and the bytes copied are its elements times the item size of the source's or the
destination's dtype. PyTorch converts on the host before a copy to a device, so it copies the destination's
dtype.

needed = elements × the smallest item size: the narrower of source and destination dtype, or the dtype to
which a kernel of the same device converts the copy later, if nothing else reads it as copied.

`read_groups` sums up the copies of a run per step by op, tensor and memory.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import pandas as pd

from tracekit.analysis.savings import budget
from tracekit.runs.run import Run
from tracekit.schema import C, CopyKind, DeviceKind

from ..copies.read_copies import MEMORY, OP, SOURCE, describe_copies, read_copies
from ..copies.tables import KernelUnions
from ..shared.common import PLACE, in_steps, ints, is_kind, largest_rows
from ..shared.groups import number_by
from ..shared.host_rows import host_rows
from ..shared.tensor_shapes import Tensor, item_bytes, tensors

ELEMENTS, ITEM, DTYPE, SHAPE = "elements", "item_bytes", "copied_dtype", "copied_shape"
NEEDED_ITEM, NARROW, WHERE = "needed_item_bytes", "narrower_dtype", "converted"
ON_HOST, ON_DEVICE = "host", "device"
COPY_OPS = ("aten::copy_", "aten::_to_copy", "aten::to")
WIDE = ("double", "long int", "long", "long long", "__int64")
FACTORS = (2, 4, 8)
"""Ratios of item sizes that a conversion of dtypes can have."""


class _Copied(NamedTuple):
    """Known properties of a copied tensor, None if unknown."""

    elements: int | None = None
    item: int | None = None
    dtype: str | None = None
    shape: str | None = None
    needed_item: int | None = None
    narrower: str | None = None
    where: str = ""


_COLUMNS = (ELEMENTS, ITEM, DTYPE, SHAPE, NEEDED_ITEM, NARROW, WHERE)


def with_tensors(copies: pd.DataFrame) -> pd.DataFrame:
    """Add the properties of the copied tensors to described copies."""
    keys = [OP, C.INPUT_SHAPES, C.INPUT_DTYPES, C.BYTES]
    codes, first = number_by(copies, keys)
    distinct = copies[keys].iloc[first].itertuples(index=False, name=None)
    properties = pd.DataFrame([_copied(*row) for row in distinct], columns=list(_COLUMNS))
    texts = (DTYPE, SHAPE, NARROW, WHERE)
    typed = properties.astype({name: "object" if name in texts else "Int64" for name in _COLUMNS})
    return copies.join(typed.iloc[codes].set_axis(copies.index))


def _copied(op: str, shapes: str, dtypes: str, size: int | None) -> _Copied:
    inputs = tensors(shapes, dtypes) if op in COPY_OPS and not pd.isna(size) else []
    target = inputs[0] if inputs else None
    source = inputs[1] if op == "aten::copy_" and len(inputs) > 1 else target
    if target is None or source is None:
        return _Copied()
    return _matching(target, source, int(size or 0))


def _matching(target: Tensor, source: Tensor, size: int) -> _Copied:
    shape = str(list(source.shape)).replace(" ", "")
    for copied, other, where in ((target, source, ON_HOST), (source, target, ON_DEVICE)):
        if size and copied.bytes == size:
            item, less = item_bytes(copied.dtype) or 0, item_bytes(other.dtype) or 0
            if less and item // less in FACTORS and item % less == 0 and copied.elements == other.elements:
                return _Copied(source.elements, item, copied.dtype, shape, less, other.dtype, where)
            return _Copied(source.elements, item, copied.dtype, shape, item)
    return _Copied()


def with_conversions(run: Run, copies: pd.DataFrame, *, min_bytes: float) -> pd.DataFrame:
    """Add the narrower dtype to which kernels convert the copies, if nothing else reads them as copied.

    Below `min_bytes` a copy takes its fixed cost, so fewer bytes save nothing.
    """
    wide = (
        copies[DTYPE].isin(WIDE) & copies[NARROW].isna() & (copies[C.BYTES] >= min_bytes).fillna(value=False)
    )
    if not wide.any():
        return copies
    uses = _uses(run, copies[wide])
    keyed = copies.assign(order=np.arange(len(copies)), step_key=copies[C.STEP].fillna(-1).astype(np.int64))
    keys = [*PLACE, "step_key", DTYPE, ELEMENTS]
    counts = keyed[wide].groupby(keys, as_index=False).agg(copies=(ITEM, "size"), start=(C.START_NS, "min"))
    conversions = counts.merge(uses, on=keys, how="left")
    enough = (
        (conversions["converted"] >= conversions["copies"])
        & (conversions["others"] == 0)
        & (conversions["first"] >= conversions["start"])
    )
    conversions = conversions[enough.fillna(value=False)]
    joined = (
        keyed[wide].merge(conversions[[*keys, "to", "to_bytes"]], on=keys, how="inner").set_index("order")
    )
    result = copies.copy()
    index = copies.index[joined.index.to_numpy(dtype=np.int64)]
    result.loc[index, NARROW] = joined["to"].to_numpy(object)
    result.loc[index, NEEDED_ITEM] = ints(joined, "to_bytes")
    result.loc[index, WHERE] = ON_DEVICE
    return result


def _uses(run: Run, copies: pd.DataFrame) -> pd.DataFrame:
    """Count how often kernels of each step convert, or otherwise read, these dtypes and sizes."""
    columns = [C.RANK, C.DEVICE, C.STEP, C.START_NS, C.OP_ROW]
    kernels = run.table("device_intervals", columns=columns, where=is_kind(DeviceKind.KERNEL))
    kernels = kernels[kernels[C.OP_ROW].notna()].drop_duplicates([*PLACE, C.OP_ROW]).reset_index(drop=True)
    launching = host_rows(run, kernels[C.OP_ROW], [C.NAME, C.INPUT_SHAPES, C.INPUT_DTYPES])
    codes = launching.groupby(list(launching), sort=False, dropna=False).ngroup()
    wanted = set(zip(copies[DTYPE], copies[ELEMENTS].astype(np.int64), strict=True))
    distinct = launching.assign(code=codes).drop_duplicates("code")
    read_tensors = [
        (code, *use)
        for name, shapes, dtypes, code in distinct[[*launching, "code"]].itertuples(index=False, name=None)
        for use in _reads(str(name), str(shapes), str(dtypes), wanted)
    ]
    reads = pd.DataFrame(read_tensors, columns=["code", DTYPE, ELEMENTS, "to", "to_bytes"])
    step = kernels[C.STEP].fillna(-1).astype(np.int64)
    used = kernels.assign(code=codes, step_key=step).merge(reads, on="code", how="inner")
    used["converts"] = used["to_bytes"] > 0
    grouped = used.groupby([*PLACE, "step_key", DTYPE, ELEMENTS], as_index=False)
    return grouped.agg(
        converted=("converts", "sum"),
        others=("converts", lambda flags: int((~flags).sum())),
        first=(C.START_NS, "min"),
        to=("to", "max"),
        to_bytes=("to_bytes", "max"),
    )


def _reads(
    name: str, shapes: str, dtypes: str, wanted: set[tuple[str, int]]
) -> list[tuple[str, int, str, int]]:
    """Wanted tensors an op reads: dtype, elements, and the narrower dtype and item size converted to."""
    inputs = tensors(shapes, dtypes)
    if name == "aten::copy_" and len(inputs) > 1 and inputs[0] is not None and inputs[1] is not None:
        target, source = inputs[0], inputs[1]
        if (source.dtype, source.elements) not in wanted:
            return []
        item, less = item_bytes(source.dtype) or 0, item_bytes(target.dtype) or 0
        narrows = less and item // less in FACTORS and target.elements == source.elements
        return [(source.dtype, source.elements, target.dtype if narrows else "", less if narrows else 0)]
    hits = {(tensor.dtype, tensor.elements) for tensor in inputs if tensor is not None}
    return [(dtype, elements, "", 0) for dtype, elements in sorted(hits & wanted)]


_UNKNOWN = -1


@dataclass(frozen=True)
class CopyGroup:
    """One group of copies of a run, per step."""

    op: str
    shape: str  # shape of the copied tensor, empty if unknown
    dtype: str  # its dtype as the profiler names it, empty if unknown
    elements: int
    item: int
    size: int | None  # bytes of each copy, None if unknown
    memory: str
    function: str  # the source line without its number
    source: str
    copies: float
    bytes: int | None
    sum_ns: int
    exposed_ns: int
    gb_per_s: float | None
    rows: tuple[int, ...]  # device rows of the longest copies

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
    codes, first = number_by(copies, [OP, SHAPE, DTYPE, "size", MEMORY])
    exposed = KernelUnions(run).exposed_by(copies, codes, len(first))
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
        rows=tuple(largest_rows(rows, C.DUR_NS)),
    )
