"""Kernels with the grid they were launched with, grouped by configuration."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pandas as pd
import pyarrow.compute as pc

from tracekit.kernel_names import family
from tracekit.schema import C, DeviceKind

from .._shared.common import ints, share
from .._shared.hosts import NO_OP, host_rows, texts
from .._shared.ranges import medians
from .._shared.tensors import numel, parse_shapes
from . import residency

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tracekit.run import Run

    from .._shared.common import Floats
    from .._shared.tensors import Shape

UNKNOWN = -1
OP, FAMILY, NUMEL, SHARED = "op", "family", "numel", "shared_bytes"
GRID = [C.GRID_X, C.GRID_Y, C.GRID_Z]
BLOCK = [C.BLOCK_X, C.BLOCK_Y, C.BLOCK_Z]
KEYS = [OP, FAMILY, *GRID, *BLOCK, NUMEL, C.REGISTERS, SHARED, C.RANK, C.DEVICE]
_READ = (
    C.ROW_ID,
    C.NAME,
    C.RANK,
    C.DEVICE,
    C.START_NS,
    C.DUR_NS,
    C.STEP,
    C.OP_ROW,
    *GRID,
    *BLOCK,
    C.REGISTERS,
    C.STATIC_SHARED_BYTES,
    C.DYNAMIC_SHARED_BYTES,
    C.OCCUPANCY_PCT,
)


def kernels(run: Run) -> pd.DataFrame:
    """All kernels with op, family, shapes and elements; unknown integers are `UNKNOWN`."""
    where = pc.field(C.KIND) == str(DeviceKind.KERNEL)
    frame = run.table("device_intervals", columns=_READ, where=where)
    names = frame[C.NAME].astype(object)
    host = host_rows(run, frame[C.OP_ROW], [C.NAME, C.INPUT_SHAPES, C.PHASE])
    shapes = texts(host[C.INPUT_SHAPES], "")
    largest = {text: _largest(text) for text in pd.unique(shapes)}
    static, dynamic = frame[C.STATIC_SHARED_BYTES], frame[C.DYNAMIC_SHARED_BYTES]
    counts = [*GRID, *BLOCK, C.REGISTERS, C.OP_ROW]
    plain = {name: frame[name].fillna(UNKNOWN).astype(np.int64) for name in counts}
    shared = static.fillna(0) + dynamic.fillna(0)
    plain[SHARED] = shared.mask(static.isna() & dynamic.isna(), UNKNOWN).astype(np.int64)
    base = frame[[C.ROW_ID, C.RANK, C.DEVICE, C.START_NS, C.DUR_NS, C.STEP]]
    percent = frame[C.OCCUPANCY_PCT].to_numpy(dtype=np.float64, na_value=np.nan)
    return base.assign(**plain).join(
        pd.DataFrame(
            {
                C.NAME: names,
                FAMILY: names.map({name: family(name) for name in names.unique()}),
                OP: texts(host[C.NAME], NO_OP),
                "occupancy": np.where(percent > 0, percent / 100, np.nan),
                C.PHASE: texts(host[C.PHASE], ""),
                C.INPUT_SHAPES: shapes,
                NUMEL: pd.Series(shapes, index=frame.index).map(largest).astype(np.int64),
            },
            index=frame.index,
        )
    )


def shapes_of(text: str) -> list[Shape]:
    """Shapes of all input tensors with dimensions, including those in lists."""
    found: list[Shape] = []
    for entry in parse_shapes(text):
        found += entry if isinstance(entry, list) else [entry] if entry else []
    return found


def _largest(text: str) -> int:
    return max(map(numel, shapes_of(text)), default=UNKNOWN)


def grouped(rows: pd.DataFrame, keys: Sequence[str]) -> pd.DataFrame:
    """One row per combination of keys: launches, times, occupancy, and the first row.

    `counted` are the launches in profiled steps and `counted_ns` their time.
    """
    groups = rows.groupby(list(keys), sort=True, observed=True)
    codes = groups.ngroup().to_numpy().astype(np.int64)
    table = groups.size().rename("launches").reset_index()
    size, duration = len(table), ints(rows, C.DUR_NS)
    in_steps = rows[C.STEP].notna().to_numpy()
    for name, which in (("total_ns", np.ones(len(rows), bool)), ("counted_ns", in_steps)):
        table[name] = np.zeros(size, np.int64)
        sums = table[name].to_numpy(copy=True)
        np.add.at(sums, codes[which], duration[which])
        table[name] = sums
    table["counted"] = np.bincount(codes[in_steps], minlength=size).astype(np.int64)
    table["median_ns"] = medians(codes, size, duration)
    order = np.lexsort((ints(rows, C.ROW_ID), ints(rows, C.START_NS), codes))
    first_rows = order[np.concatenate(([True], np.diff(codes[order]) > 0))[: len(order)]]
    table["first_row"] = ints(rows, C.ROW_ID)[first_rows]
    table["first_ns"] = ints(rows, C.START_NS)[first_rows]
    table["occupancy"] = groups["occupancy"].median().to_numpy(dtype=np.float64)
    table["share"] = share(table["total_ns"], int(duration.sum()))
    return table


def configurations(run: Run, rows: pd.DataFrame) -> pd.DataFrame:
    """Kernels by configuration, with quantities derived from device limits, sorted by time."""
    table = grouped(rows, KEYS)
    table["blocks"] = table[GRID].prod(axis=1).astype(np.int64)
    table["block_threads"] = table[BLOCK].prod(axis=1).astype(np.int64)
    table["threads"] = table["blocks"] * table["block_threads"]
    for name in (NUMEL, C.REGISTERS, SHARED):
        table[name] = table[name].astype("Int64").mask(table[name] == UNKNOWN)
    gpus = residency.devices(run)
    counts = table[C.DEVICE].map({index: sm.count for index, sm in gpus.items()}).astype("Int64")
    table["sms"] = counts
    table["resident_blocks"] = residency.resident_blocks(table, gpus)
    table["max_threads"] = table[C.DEVICE].map({index: sm.threads for index, sm in gpus.items()})
    table["blocks_per_sm"] = _ratio(table["blocks"], counts)
    table["waves"] = _ratio(table["blocks"], counts * table["resident_blocks"])
    waves = table["waves"].to_numpy()
    table["tail_share"] = 1 - waves / np.maximum(np.ceil(waves), 1)
    table["threads_per_element"] = _ratio(table["threads"], table[NUMEL])
    keys = ["total_ns", *KEYS]
    return table.sort_values(keys, ascending=[False, *(True for _ in KEYS)], ignore_index=True)


def _ratio(part: pd.Series, whole: pd.Series) -> Floats:
    """Ratio of part to whole, NaN if either is unknown."""
    known = (part.notna() & whole.notna()).to_numpy(dtype=bool)
    ratio = share(part.fillna(0), whole.fillna(0).to_numpy(dtype=np.int64))
    result: Floats = np.where(known, ratio, np.nan)
    return result
