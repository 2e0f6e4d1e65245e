"""Causes of different copies in two runs, and findings on them.

The copied tensor is known if the launching op is `aten::copy_`, `aten::_to_copy` or `aten::to`, its shapes
and dtypes are recorded, and the bytes copied are its elements times the item size of the source's or the
destination's dtype. PyTorch converts on the host before a copy to a device, so it copies the destination's
dtype.

needed = elements × the smallest item size: the narrower of source and destination dtype, or the dtype to
which a kernel of the same device converts the copy later, if nothing else reads it as copied.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import pandas as pd
import pyarrow.compute as pc

from tracekit.analysis import EVIDENCE_ROWS, Basis, Finding, Rule, Severity
from tracekit.analysis.kernel_names import brief
from tracekit.analysis.savings import CONFIDENT, budget
from tracekit.runs.text import human
from tracekit.schema import C, DeviceKind

from ..shared.common import ints
from ..shared.groups import item_bytes, tensors
from ..shared.hosts import host_rows
from .reading import BLOCKED_NS, KEYS, OP, SCALAR_BYTES, WORST, evidence, per, places

if TYPE_CHECKING:
    from tracekit.analysis.savings import Budget
    from tracekit.runs.run import Run

    from ..shared.groups import Tensor
    from .groups import Group, Hiding


SHAPES, DTYPES, DUPLICATE, MEMORY_KIND, LINK = "shape", "dtype", "duplicate", "memory kind", "link"
DIFFERS, ONE_SIDE = "unknown", "one run only"
LEAST_BYTES_SHARE = 0.01
LEAST_TIME_SHARE = 0.1
_ORDER = (SHAPES, DTYPES, DUPLICATE, ONE_SIDE, MEMORY_KIND, LINK, DIFFERS)
_CODES = {
    SHAPES: "h2d_compare_shape",
    DTYPES: "h2d_compare_dtype",
    DUPLICATE: "h2d_compare_duplicate",
    ONE_SIDE: "h2d_compare_one_side",
    MEMORY_KIND: "h2d_compare_memory",
    LINK: "h2d_compare_link",
    DIFFERS: "h2d_compare_unknown",
}
_MATTERS = (
    "the tensors of this cause together change the bytes per step by "
    f"{LEAST_BYTES_SHARE * 100:.0f}% of the larger side's or the time of copies by "
    f"{LEAST_TIME_SHARE * 100:.0f}%"
)
_WHY = {
    SHAPES: "different element counts are different work, so this is tested first and times are not compared",
    DTYPES: "at equal elements, bytes depend on the item size",
    DUPLICATE: "at equal bytes per copy, bytes depend on the number of copies",
    ONE_SIDE: "a tensor without a counterpart is not a duplicate of another",
    MEMORY_KIND: "at equal bytes and copies, pageable memory is staged and pinned is not",
    LINK: "at equal bytes, copies and memory, the link or the host's memory remains",
    DIFFERS: "without shapes, a larger shape and a wider dtype cannot be distinguished",
}
_STATES = {
    SHAPES: (
        "matched tensors differ in elements, or the runs' batch size and resolution explain the bytes exactly"
    ),
    DTYPES: (
        "equal elements and different item size, or equal batch size and the runs' dtypes explain the bytes"
    ),
    DUPLICATE: "equal elements and item size, and copies per step differ by at least 0.75",
    ONE_SIDE: "a tensor is copied in only one run",
    MEMORY_KIND: "equal bytes and copies, one from pageable and one from pinned memory",
    LINK: "equal bytes, copies and memory, at least 1 MiB each, and rates that differ more than 1.5 times",
    DIFFERS: "bytes per copy differ and the shapes of a run are not recorded",
}
RULES = tuple(
    Rule(_CODES[cause], f"comparing two runs: {_STATES[cause]}; {_MATTERS}", _WHY[cause]) for cause in _ORDER
)
_ADVICE = {
    SHAPES: ("The runs did different work per step: compare runs of the same batch size and shape instead."),
    DTYPES: "Copy the narrower dtype and convert on the device if the wider one is needed there.",
    DUPLICATE: (
        "Look for a second copy of the same tensor; another tensor of the same shape cannot be ruled out."
    ),
    ONE_SIDE: "Check whether the tensor needs to be copied; it has no counterpart in the other run.",
    MEMORY_KIND: "Copy from pinned memory in both runs (`DataLoader(pin_memory=True)`, `non_blocking=True`).",
    LINK: (
        "Compare the link's width and generation under load (`nvidia-smi -q -d PCIE`), the NUMA node of "
        "the process and other traffic on the link; the traces do not show which is the cause."
    ),
    DIFFERS: "Record both runs with `record_shapes=True` to distinguish shape from dtype.",
}
INFERRED = 0.6
_RECORDED = frozenset({SHAPES, DTYPES, MEMORY_KIND})
"""Causes that a trace can show by itself."""
_EQUAL_WORK = frozenset({DTYPES, DUPLICATE, MEMORY_KIND, LINK})
"""Causes with equal work on both sides, so that a difference of times is a saving."""


def findings(
    rows: list[dict[str, Any]], first: list[Group], second: list[Group], base: Run, head: Run
) -> tuple[Finding, ...]:
    """One finding per cause that matters, in the order in which causes are tested."""
    size = max(sum(group.bytes or 0 for group in side) for side in (first, second))
    took = max(sum(group.sum_ns for group in side) for side in (first, second))
    steps = budget(head)
    gpus = [run.meta.fingerprint.get("gpu") for run in (base, head)]
    other_gpu = f"{gpus[0]} and {gpus[1]}" if None not in gpus and gpus[0] != gpus[1] else ""
    found = []
    for cause in _ORDER:
        own = [row for row in rows if row["cause"] == cause]
        more_bytes = sum(
            row["head_bytes"] - row["base_bytes"]
            for row in own
            if row["head_bytes"] is not None and row["base_bytes"] is not None
        )
        more_ns = sum(row["head_sum_ns"] - row["base_sum_ns"] for row in own)
        less = abs(more_bytes) < max(1, LEAST_BYTES_SHARE * size)
        if own and not (less and abs(more_ns) < max(1, LEAST_TIME_SHARE * took)):
            found.append(_finding(cause, own, more_bytes, more_ns, steps, other_gpu))
    return tuple(found)


def _finding(
    cause: str, rows: list[dict[str, Any]], more_bytes: int, more_ns: int, steps: Budget, other_gpu: str
) -> Finding:
    heaviest = max(rows, key=lambda row: (abs(row["head_sum_ns"] - row["base_sum_ns"]), row["because"]))
    groups = [row["head_group"] for row in rows if row["head_group"]]
    exposed = sum(group.exposed_ns for group in groups)
    saving = min(more_ns, exposed) if cause in _EQUAL_WORK and more_ns > 0 and not other_gpu else None
    saving = saving or None
    others = f", and {len(rows) - 1:,} more tensors" if len(rows) > 2 else ""
    others = ", and 1 more tensor" if len(rows) == 2 else others
    return Finding(
        _CODES[cause],
        steps.severity(saving * steps.steps) if saving else Severity.INFO,
        f"{_TITLES[cause]}: {_tensor(heaviest, cause)}{heaviest['because']}{others}; "
        f"{_change(more_bytes, more_ns, cause)}",
        f"{_gpus(cause, other_gpu)}{_ADVICE[cause]}{_lines(heaviest)}",
        saving,
        Basis.MEASURED if saving else None,
        "time of these copies in head minus that in base, at most the exposed time in head" if saving else "",
        CONFIDENT if cause in _RECORDED and _recorded(heaviest, cause) else INFERRED,
        _evidence(groups),
    )


def _gpus(cause: str, other_gpu: str) -> str:
    if not other_gpu or cause not in _EQUAL_WORK:
        return ""
    return f"The runs used {other_gpu}, whose links may explain the difference. "


_TITLES = {
    SHAPES: "The runs copy tensors of different shape",
    DTYPES: "The runs copy the same elements in different dtypes",
    DUPLICATE: "The runs copy a tensor of one shape a different number of times",
    ONE_SIDE: "A tensor is copied in only one run",
    MEMORY_KIND: "The runs copy the same bytes from different host memory",
    LINK: "The same copies run at a different rate",
    DIFFERS: "The runs copy different bytes, cause unknown",
}


def _recorded(row: dict[str, Any], cause: str) -> bool:
    """Whether the trace itself shows the cause, not only the runs' settings."""
    return cause == MEMORY_KIND or bool(row["base_shape"] and row["head_shape"])


def _tensor(row: dict[str, Any], cause: str) -> str:
    known = row["head_group"] or row["base_group"]
    if cause == SHAPES or not known.shape:
        return ""
    return f"{known.shape}, " if cause == DTYPES else f"{known.shape} {known.dtype}, "


def _change(more_bytes: int, more_ns: int, cause: str) -> str:
    way = "more" if more_bytes > 0 else "less"
    size = f"{human(abs(more_bytes), 'bytes')} {way} per step" if more_bytes else "the same bytes per step"
    if cause == SHAPES:
        return f"head copies {size}: different work, so times are not compared"
    took = f"{human(abs(more_ns), 'ns')} {'more' if more_ns > 0 else 'less'}" if more_ns else "equally long"
    return f"head copies {size}, which takes {took}"


def _lines(row: dict[str, Any]) -> str:
    lines = [
        f"{side} {brief(row[f'{side}_group'].source)}"
        for side in ("base", "head")
        if row[f"{side}_group"] and row[f"{side}_group"].source
    ]
    return f" Source: {', '.join(lines)}." if lines else ""


def _evidence(groups: list[Group]) -> dict[str, list[int]]:
    rows = [row for group in sorted(groups, key=lambda one: -one.sum_ns) for row in group.rows]
    return {"device_intervals": rows[:EVIDENCE_ROWS]} if rows else {}


ELEMENTS, ITEM, DTYPE, SHAPE = "elements", "item_bytes", "copied_dtype", "copied_shape"
NEEDED_ITEM, NARROW, WHERE = "needed_item_bytes", "narrower_dtype", "converted"
ON_HOST, ON_DEVICE = "host", "device"
COPY_OPS = ("aten::copy_", "aten::_to_copy", "aten::to")
WIDE = ("double", "long int", "long", "long long", "__int64")
FACTORS = (2, 4, 8)
LEAST_BYTES = 4096
"""Below this size a copy takes its fixed cost, so fewer bytes save nothing."""


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
    distinct = copies[keys].drop_duplicates()
    copied = [_copied(*row) for row in distinct.itertuples(index=False, name=None)]
    known = pd.DataFrame(copied, columns=list(_COLUMNS), index=distinct.index)
    types: dict[str, Any] = {
        name: "object" if name in (DTYPE, SHAPE, NARROW, WHERE) else "Int64" for name in _COLUMNS
    }
    known = pd.DataFrame({name: known[name].astype(kind) for name, kind in types.items()})
    codes = copies.groupby(keys, sort=False, dropna=False).ngroup()
    table = known.set_axis(codes.loc[distinct.index]).reindex(codes).set_axis(copies.index)
    return copies.join(table)


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


def with_conversions(run: Run, copies: pd.DataFrame) -> pd.DataFrame:
    """Add the narrower dtype to which kernels convert the copies, if nothing else reads them as copied."""
    wide = (
        copies[DTYPE].isin(WIDE)
        & copies[NARROW].isna()
        & (copies[C.BYTES] >= LEAST_BYTES).fillna(value=False)
    )
    if not wide.any():
        return copies
    uses = _uses(run, copies[wide])
    keyed = copies.assign(order=np.arange(len(copies)), step_key=copies[C.STEP].fillna(-1).astype(np.int64))
    keys = [*KEYS, "step_key", DTYPE, ELEMENTS]
    counts = keyed[wide].groupby(keys, as_index=False).agg(copies=(ITEM, "size"), start=(C.START_NS, "min"))
    found = counts.merge(uses, on=keys, how="left")
    enough = (
        (found["converted"] >= found["copies"]) & (found["others"] == 0) & (found["first"] >= found["start"])
    )
    found = found[enough.fillna(value=False)]
    joined = keyed[wide].merge(found[[*keys, "to", "to_bytes"]], on=keys, how="inner").set_index("order")
    result = copies.copy()
    at = copies.index[joined.index.to_numpy(dtype=np.int64)]
    result.loc[at, NARROW] = joined["to"].to_numpy(object)
    result.loc[at, NEEDED_ITEM] = ints(joined, "to_bytes")
    result.loc[at, WHERE] = ON_DEVICE
    return result


def _uses(run: Run, copies: pd.DataFrame) -> pd.DataFrame:
    """Count how often kernels of each step convert, or otherwise read, these dtypes and sizes."""
    where = pc.field(C.KIND) == str(DeviceKind.KERNEL)
    columns = [C.RANK, C.DEVICE, C.STEP, C.START_NS, C.OP_ROW]
    kernels = run.table("device_intervals", columns=columns, where=where)
    kernels = kernels[kernels[C.OP_ROW].notna()].drop_duplicates([*KEYS, C.OP_ROW]).reset_index(drop=True)
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
    grouped = used.groupby([*KEYS, "step_key", DTYPE, ELEMENTS], as_index=False)
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
    hits = {(one.dtype, one.elements) for one in inputs if one is not None}
    return [(dtype, elements, "", 0) for dtype, elements in sorted(hits & wanted)]


SCALARS_WHY = (
    "without the copy the host could be earlier by at most the time it was blocked; a wait costs nothing if "
    "kernels still run after it"
)


def scalars(
    copies: pd.DataFrame, hiding: Hiding, steps: Budget, code: str, title: str, advice: str
) -> list[Finding]:
    """Finding on copies of at most 8 bytes that leave the device without kernels."""
    rows = copies[(copies[C.BYTES] <= SCALAR_BYTES).fillna(value=False) & copies[BLOCKED_NS].notna()]
    saving = hiding.starved(rows)
    if not steps.matters(saving):
        return []
    blocked = int(rows[BLOCKED_NS].sum())
    words = {
        "count": human(len(rows) / steps.steps, "").removesuffix(".00"),
        "per": per(steps),
        "blocked": f"for {human(steps.per_step(blocked), 'ns')}; kernels could start up to "
        f"{human(steps.per_step(saving), 'ns')} earlier",
        "places": places(rows, BLOCKED_NS),
    }
    return [
        Finding(
            code,
            steps.severity(saving),
            title.format(**words),
            advice.format(**words),
            steps.per_step(saving),
            Basis.ESTIMATED,
            "per gap between kernels in which such copies end, the minimum of the time the host was blocked "
            f"in them and the gap since their call, {steps.per}, {WORST}",
            0.7,
            evidence(rows, BLOCKED_NS),
        )
    ]
