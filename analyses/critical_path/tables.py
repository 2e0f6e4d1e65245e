"""Tables of the critical path: its segments, and what-if savings of removing parts of it."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pandas as pd
from pandas.api.types import union_categoricals

from tracekit.runs.intervals import covered
from tracekit.schema import C

from ..shared.common import ints, share
from .host import LAUNCH, OP, OUTSIDE, RUNTIME, SYNC
from .walk import ALL_KINDS, COMMUNICATE, DEVICE_KINDS, LAUNCH_DELAY, MEMCPY, WINDOW
from .whatif import CLASS, CLASSES, COMMUNICATION, COPIES, DEVICE_OP, HOST_OP, LAUNCHES, WAITS

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tracekit.runs.intervals import Union
    from tracekit.runs.run import Run

    from .host import Bools, Small
    from .walk import Graph
    from .whatif import WhatIf

LISTED = 50
"""Number of longest segments listed."""
OPS_TRIED = 3
"""Ops of the host and of the device removed in turn; with the four classes at most ten passes."""

HOST_KINDS = (OP, OUTSIDE, RUNTIME)
"""Kinds of an op's own host time."""
_CLASS_KINDS = {
    LAUNCHES: (LAUNCH, LAUNCH_DELAY),
    COPIES: (MEMCPY,),
    WAITS: (SYNC,),
    COMMUNICATION: (COMMUNICATE,),
}
WHAT_IF = [C.RANK, "removed", "where", "saving_ns", "saving_share", "new_step_ns", "path_ns"]
TOTAL = "total_ns"
"""Saving over all steps of a rank, for findings; not a column of the result."""
_TEXT = (C.KIND, "op")
_COUNTED = ("path_ns", "share", "segments")


def named(own: Graph, path: pd.DataFrame) -> pd.DataFrame:
    """A path with kinds and ops as text, and row ids of the run's tables."""
    interval, number = path["interval"].to_numpy(), path["slice"].to_numpy()
    row = np.where(number >= 0, own.host.slices.row[number], np.int32(-1))
    rows = own.host.row_id if len(own.host.row_id) else row
    found = described(own, path)
    found[WINDOW] = path[WINDOW]
    found["device_row"] = _ids(ints(own.device.frame, C.ROW_ID)[interval], interval < 0)
    found["host_row"] = _ids(rows[row], row < 0)
    return found


def described(own: Graph, path: pd.DataFrame | dict[str, Small]) -> pd.DataFrame:
    """A path with kinds and ops as text."""
    start, end = (np.asarray(path[name]) for name in ("start", "end"))
    return pd.DataFrame(
        {
            C.KIND: pd.Categorical.from_codes(path["kind"], pd.Index(ALL_KINDS)),
            "op": pd.Categorical.from_codes(path["label"], pd.Index(own.labels)),
            C.START_NS: start,
            C.DUR_NS: end - start,
        },
        copy=False,
    )


def _ids(rows: Small, absent: Bools) -> pd.api.extensions.ExtensionArray:
    return pd.arrays.IntegerArray(rows.astype(np.int64, copy=False), absent)


def inside(path: pd.DataFrame, steps: Union) -> pd.DataFrame:
    """Restrict the segments of a path to the time in steps."""
    start, length = ints(path, C.START_NS), ints(path, C.DUR_NS)
    return path.assign(**{C.DUR_NS: covered(steps, start, start + length)})


def joined(paths: Sequence[pd.DataFrame]) -> pd.DataFrame:
    """Concatenate the paths of all ranks, with common sorted categories."""
    named = {name: _sorted([path[name] for path in paths]) for name in (C.KIND, "op")}
    combined = paths[0] if len(paths) == 1 else pd.concat(paths, ignore_index=True)
    return combined.assign(**named)


def _sorted(columns: Sequence[pd.Series]) -> pd.Categorical:
    combined = union_categoricals([column.cat.remove_unused_categories() for column in columns])
    return combined.reorder_categories(sorted(combined.categories))


def result_tables(
    run: Run, paths: pd.DataFrame, what_if: pd.DataFrame, *, marked: bool
) -> dict[str, pd.DataFrame]:
    """All tables of the analysis; per step only if steps are marked."""
    result = {
        "by_kind": _totals(paths, [C.RANK, C.KIND], [C.RANK]),
        "what_if": what_if[WHAT_IF],
        "by_op": _totals(paths, [C.RANK, C.KIND, "op"], [C.RANK]),
        "segments": _longest(paths),
    }
    if marked:
        result["per_step"] = _totals(paths, [C.RANK, C.STEP, C.KIND], [C.RANK, C.STEP])
    return result


def _totals(paths: pd.DataFrame, keys: list[str], window: list[str]) -> pd.DataFrame:
    """Time, share of the windows and number of segments by keys, the longest of each window first."""
    grouped = paths.groupby(keys, sort=True, observed=True)[C.DUR_NS]
    table = grouped.agg(path_ns="sum", segments="count").reset_index()
    table = table.astype({name: str for name in _TEXT if name in keys})
    windows = table.groupby(window)["path_ns"].transform("sum")
    table["share"] = share(table["path_ns"], windows.to_numpy(np.int64))
    order = [*window, "path_ns", *(key for key in keys if key not in window)]
    ascending = [name != "path_ns" for name in order]
    return table.sort_values(order, ascending=ascending, ignore_index=True)[[*keys, *_COUNTED]]


def _longest(paths: pd.DataFrame) -> pd.DataFrame:
    length = ints(paths, C.DUR_NS)
    threshold = np.partition(length, -LISTED)[-LISTED] if len(length) > LISTED else 0
    ordered = (
        paths[length >= threshold]
        .astype({C.KIND: object, "op": object})
        .sort_values(
            [C.DUR_NS, C.RANK, C.START_NS, C.STEP, C.KIND], ascending=[False, True, True, True, True]
        )
    )
    columns = [C.RANK, C.STEP, C.KIND, "op", C.DUR_NS, C.START_NS, "device_row", "host_row"]
    return ordered.head(LISTED)[columns].reset_index(drop=True)


def what_if(model: WhatIf, path: pd.DataFrame, steps: int) -> pd.DataFrame:
    """What-if savings of one rank, largest first; amounts are per step."""
    candidates = _candidates(path, waits=model.waits)
    savings = model.savings([(where, what) for where, what, _ in candidates])
    span = model.span_ns
    rows = [
        (what, where, saved // steps, saved / span, (span - saved) // steps, on_path // steps, saved)
        for (where, what, on_path), saved in zip(candidates, savings, strict=True)
    ]
    amounts = dict.fromkeys(("saving_ns", "new_step_ns", "path_ns", TOTAL), np.int64)
    table = pd.DataFrame(rows, columns=[*WHAT_IF[1:], TOTAL]).astype(amounts)
    order = ["saving_ns", "path_ns", "where", "removed"]
    return table.sort_values(order, ascending=[False, False, True, True], ignore_index=True)


def _candidates(path: pd.DataFrame, *, waits: bool) -> list[tuple[str, str, int]]:
    """Parts of the path to remove, with their time on the path.

    Waits are included even without time of their own: a wait may return at the instant the device finishes.
    """
    by_kind = path.groupby(C.KIND, observed=True)[C.DUR_NS].sum()
    candidates = []
    for where, kinds in ((DEVICE_OP, DEVICE_KINDS), (HOST_OP, HOST_KINDS)):
        own = path[path[C.KIND].isin(kinds)]
        ops = own.groupby("op", observed=True)[C.DUR_NS].sum().reset_index().astype({"op": object})
        top = ops.sort_values([C.DUR_NS, "op"], ascending=[False, True]).head(OPS_TRIED)
        candidates += [(where, str(op), int(ns)) for op, ns in zip(top["op"], top[C.DUR_NS], strict=True)]
    for name in CLASSES:
        own_kinds = [kind for kind in _CLASS_KINDS[name] if kind in by_kind.index]
        if own_kinds or (name == WAITS and waits):
            candidates.append((CLASS, name, int(by_kind[own_kinds].sum())))
    return candidates
