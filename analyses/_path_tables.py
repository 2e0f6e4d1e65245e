"""Tables of the critical path: what is on it, and what removing a part of it would save."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pandas as pd

from tracekit.schema import C

from ._common import ints, share
from ._path_host import LAUNCH, OP, OUTSIDE, RUNTIME, SYNC
from ._path_walk import ALL_KINDS, COMMUNICATE, COMPUTE, GRAPH, LAUNCH_DELAY, MEMCPY, MEMSET
from ._path_whatif import (
    CLASS,
    CLASSES,
    COMMUNICATION,
    COPIES,
    DEVICE_OP,
    HOST_OP,
    LAUNCHES,
    WAITS,
)

if TYPE_CHECKING:
    from tracekit.run import Run

    from ._path_walk import Graph
    from ._path_whatif import WhatIf

LISTED = 50
"""Longest segments that are listed: enough to look at."""
OPS_TRIED = 3
"""Ops of the host and of the device that are removed in turn; with the four classes ten passes at most."""

DEVICE_KINDS = (COMPUTE, COMMUNICATE, MEMCPY, MEMSET, GRAPH)
HOST_KINDS = (OP, OUTSIDE, RUNTIME)
"""Kinds that are an op's own host time."""
_CLASS_KINDS = {
    LAUNCHES: (LAUNCH, LAUNCH_DELAY),
    COPIES: (MEMCPY,),
    WAITS: (SYNC,),
    COMMUNICATION: (COMMUNICATE,),
}
WHAT_IF = [C.RANK, "removed", "where", "saving_ns", "saving_share", "new_step_ns", "path_ns"]
TOTAL = "total_ns"
"""Saving over all steps of a rank: what findings add up, no column of the result."""
_COUNTED = ("path_ns", "share", "segments")


def named(own: Graph, path: pd.DataFrame) -> pd.DataFrame:
    """A path with kinds and ops as text, and row ids of the run's tables."""
    interval, number = ints(path, "interval"), ints(path, "slice")
    device_row = own.device.frame[C.ROW_ID].to_numpy(np.int64)[interval]
    row = np.where(number >= 0, own.host.slices.row[number], -1)
    host_row = own.host.row_id[row] if len(own.host.row_id) else row
    return pd.DataFrame(
        {
            C.KIND: pd.Categorical.from_codes(ints(path, "kind"), pd.Index(ALL_KINDS)),
            "op": pd.Categorical.from_codes(ints(path, "label"), pd.Index(own.labels)),
            C.START_NS: ints(path, "start"),
            C.DUR_NS: ints(path, "end") - ints(path, "start"),
            "device_row": pd.Series(device_row, dtype="Int64").where(interval >= 0),
            "host_row": pd.Series(host_row, dtype="Int64").where(row >= 0),
        }
    )


def tables(run: Run, paths: pd.DataFrame, what_if: pd.DataFrame, *, marked: bool) -> dict[str, pd.DataFrame]:
    """Every table of the analysis; per step only where steps are marked."""
    plain = paths.astype({C.KIND: object, "op": object})
    made = {
        "by_kind": _totals(plain, [C.RANK, C.KIND], [C.RANK]),
        "what_if": what_if[WHAT_IF],
        "by_op": _totals(plain, [C.RANK, C.KIND, "op"], [C.RANK]),
        "segments": _longest(plain),
    }
    if marked:
        made["per_step"] = _totals(plain, [C.RANK, C.STEP, C.KIND], [C.RANK, C.STEP])
    return made


def _totals(paths: pd.DataFrame, keys: list[str], whole: list[str]) -> pd.DataFrame:
    """Time, share of the windows and number of segments by keys, the longest of each window first."""
    table = paths.groupby(keys, sort=True)[C.DUR_NS].agg(path_ns="sum", segments="count").reset_index()
    windows = table.groupby(whole)["path_ns"].transform("sum")
    table["share"] = share(table["path_ns"], windows.to_numpy(np.int64))
    order = [*whole, "path_ns", *(key for key in keys if key not in whole)]
    rising = [name != "path_ns" for name in order]
    return table.sort_values(order, ascending=rising, ignore_index=True)[[*keys, *_COUNTED]]


def _longest(paths: pd.DataFrame) -> pd.DataFrame:
    ordered = paths.sort_values(
        [C.DUR_NS, C.RANK, C.START_NS, C.STEP, C.KIND], ascending=[False, True, True, True, True]
    )
    columns = [C.RANK, C.STEP, C.KIND, "op", C.DUR_NS, C.START_NS, "device_row", "host_row"]
    return ordered.head(LISTED)[columns].reset_index(drop=True)


def what_if(model: WhatIf, path: pd.DataFrame, steps: int) -> pd.DataFrame:
    """The candidates of one rank, the largest saving first; amounts are per step."""
    rows = []
    for where, what, on_path in _candidates(path):
        saving = model.saving(where, what)
        left = model.span_ns - saving
        rows.append(
            (what, where, saving // steps, saving / model.span_ns, left // steps, on_path // steps, saving)
        )
    amounts = dict.fromkeys(("saving_ns", "new_step_ns", "path_ns", TOTAL), np.int64)
    table = pd.DataFrame(rows, columns=[*WHAT_IF[1:], TOTAL]).astype(amounts)
    order = ["saving_ns", "path_ns", "where", "removed"]
    return table.sort_values(order, ascending=[False, False, True, True], ignore_index=True)


def _candidates(path: pd.DataFrame) -> list[tuple[str, str, int]]:
    """What is on the path and worth trying without, with its time on the path."""
    by_kind = path.groupby(C.KIND, observed=True)[C.DUR_NS].sum()
    tried = []
    for where, kinds in ((DEVICE_OP, DEVICE_KINDS), (HOST_OP, HOST_KINDS)):
        own = path[path[C.KIND].isin(kinds)]
        ops = own.groupby("op", observed=True)[C.DUR_NS].sum().reset_index().astype({"op": object})
        top = ops.sort_values([C.DUR_NS, "op"], ascending=[False, True]).head(OPS_TRIED)
        tried += [(where, str(op), int(ns)) for op, ns in zip(top["op"], top[C.DUR_NS], strict=True)]
    for name in CLASSES:
        own_kinds = [kind for kind in _CLASS_KINDS[name] if kind in by_kind.index]
        if own_kinds:
            tried.append((CLASS, name, int(by_kind[own_kinds].sum())))
    return tried
