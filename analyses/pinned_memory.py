"""Cost of copies by memory of their host side, against the rate of the link.

`copies.reading` defines direction, memory and ceiling. A rate is missing if a size is unknown, the ceiling
for copies inside the device.

The driver stages a copy from pageable memory through a pinned buffer: it is slower and blocks the host. From
pinned memory it would take bytes over the reachable rate (best pinned rate seen, else 80% of the link); the
saving is the time above that, at most the exposed time. Without such a rate no saving is estimated.

Sources: Levental & Orlova, note 24; nsys rule for pageable copies.

Example:
    >>> import tracekit
    >>> result = tracekit.analyze(tracekit.open("latest"), "pinned_memory")  # doctest: +SKIP
    >>> result.tables["by_memory"]  # doctest: +SKIP
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from tracekit.analysis import Analysis, Column, Remark, Result, TableSpec
from tracekit.analysis.savings import budget
from tracekit.runs.run import busy
from tracekit.schema import C, CopyKind, Memory

from .copies import groups as copy_tables
from .copies import order, rules
from .copies.groups import Hiding
from .copies.reading import (
    BLOCKED_NS,
    CALL_NS,
    CEILING,
    DIRECTION,
    MEMORY,
    REACHABLE,
    WAIT_NS,
    ceilings,
    code_by,
    counted,
    host_waits,
    read,
)
from .shared.common import DEVICE, RANK, absent_device_note

if TYPE_CHECKING:
    from collections.abc import Sequence

    import pandas as pd

    from tracekit.runs.run import Run

NO_COPIES = Remark("no copies in this capture: no memcpy was recorded")
NO_BYTES = "some copies were recorded without bytes (as by AMD's profiler), so their rates are unknown"
HOST_MEMORY_UNKNOWN = "the profiler does not record whether host memory is pageable or pinned (AMD: `Host`)"
NO_CEILING = (
    "the ceiling is unknown: the PCIe link was not recorded (`tracekit collect` reads it from NVML) and "
    "there is no pinned copy of 1 MiB or more"
)
_LINKED = (str(CopyKind.H2D), str(CopyKind.D2H))


def compute(run: Run) -> Result:
    """Sum up the copies of a run by direction and memory."""
    copies = read(run)
    if copies.empty:
        empty = busy(run, [C.DUR_NS]).empty
        return Result(notes=(absent_device_note(run) if empty else NO_COPIES,))
    waits = host_waits(run, copies)
    copies = copies.assign(**{BLOCKED_NS: waits[CALL_NS] + waits[WAIT_NS]})
    rates = ceilings(run, copies[copies[DIRECTION].isin(_LINKED)])
    copies = copies.merge(rates, on=[C.RANK, C.DEVICE, DIRECTION], how="left")
    hiding = Hiding(run)
    tables = {"by_memory": _by(copies, [DIRECTION, MEMORY], hiding)}
    tables["by_device"] = _by(copies, [C.RANK, C.DEVICE, DIRECTION, MEMORY], hiding)
    tables["by_name"] = copy_tables.totals(copies, [C.NAME], hiding)[[one.name for one in _BY_NAME]]
    steps = budget(run)
    recurring = counted(copies, marked=steps.marked)
    found = (
        *rules.pinned_findings(run, recurring, hiding, steps),
        *order.order_findings(run, recurring, hiding, steps),
    )
    return Result(tables, found, _notes(copies))


def _by(copies: pd.DataFrame, keys: Sequence[str], hiding: Hiding) -> pd.DataFrame:
    table = copy_tables.totals(copies, keys, hiding)
    codes, count = code_by(copies, keys)
    grouped = copies.assign(rate=copy_tables.rate(copies[C.BYTES], copies[C.DUR_NS])).groupby(codes)
    table["median_gb_per_s"] = grouped["rate"].median().to_numpy(np.float64)
    table["min_bytes"] = grouped[C.BYTES].min().astype("Int64").to_numpy()
    table["max_bytes"] = grouped[C.BYTES].max().astype("Int64").to_numpy()
    table[CEILING] = grouped[CEILING].max().to_numpy(np.float64)
    table[BLOCKED_NS] = copy_tables.sums(copies, codes, count, BLOCKED_NS)
    return table[[*keys, *(column.name for column in _MEASURES)]]


def _notes(copies: pd.DataFrame) -> tuple[str, ...]:
    linked = copies[copies[DIRECTION].isin(_LINKED)]
    holds = {
        NO_BYTES: copies[C.BYTES].isna().any(),
        HOST_MEMORY_UNKNOWN: (linked[MEMORY] == str(Memory.UNKNOWN)).any(),
        NO_CEILING: len(linked) > 0 and linked[REACHABLE].isna().all(),
    }
    return tuple(note for note, true in holds.items() if true)


_DIRECTION = Column(DIRECTION, "", "H2D, D2H, D2D, P2P, H2H or unknown")
_MEMORY = Column(MEMORY, "", "memory of the host side: pageable, pinned, unified, device or unknown")
_MEASURES = (
    copy_tables.COPIES,
    copy_tables.BYTES,
    copy_tables.SUM,
    copy_tables.UNION,
    copy_tables.GB_PER_S,
    Column("median_gb_per_s", "GB/s", "median over the copies of bytes over duration"),
    Column(CEILING, "GB/s", "maximum of the link's rate and the best pinned copy, of the fastest device"),
    copy_tables.EXPOSED,
    copy_tables.BLOCKED,
    Column("min_bytes", "bytes", "smallest copy"),
    Column("max_bytes", "bytes", "largest copy"),
)
_BY_NAME = (
    Column(C.NAME, "", "name as recorded"),
    copy_tables.COPIES,
    copy_tables.BYTES,
    copy_tables.SUM,
    copy_tables.UNION,
    copy_tables.GB_PER_S,
)

ANALYSIS = Analysis(
    name="pinned_memory",
    title="Copies by host memory",
    question="What do copies from pageable memory cost, and how close to the link's rate are copies?",
    definition=(
        "memory = that of the host side; GB/s = bytes over Σ of durations; ceiling = the larger of PCIe "
        "generation × lanes and the best pinned copy of ≥ 1 MiB in that direction; exposed = the part of the "
        "union that no kernel or opaque graph overlaps; blocked = launching call plus the wait directly "
        "after it inside the same op."
    ),
    tables=(
        TableSpec("by_memory", "By direction and memory", (_DIRECTION, _MEMORY, *_MEASURES)),
        TableSpec("by_device", "Per device", (RANK, DEVICE, _DIRECTION, _MEMORY, *_MEASURES)),
        TableSpec("by_name", "By name as recorded", _BY_NAME),
    ),
    sources=("Levental & Orlova, note 24", "nsys rule cuda_memcpy_async (pageable)"),
    order=52,
    compute=compute,
    rules=(*rules.PINNED_RULES, *order.RULES),
)
