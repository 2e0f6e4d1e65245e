"""Tables of `roofline`: work and rates of ops against the roofs of their device."""

from __future__ import annotations

import numpy as np
import pandas as pd

from tracekit.analysis import Column, TableSpec
from tracekit.runs.intervals import Ints
from tracekit.schema import C

from ..shared.common import (
    DEVICE,
    PLACE,
    RANK,
    STEP,
    Bools,
    Floats,
    Objects,
    ints,
    share,
    sort_by,
    spans,
    sum_by_code,
    union_by,
)
from .calls import DTYPE, MATRIX, MOVED, NARROW, OP, OWNER, PRECISION, SIMT, UNKNOWN
from .devices import PEAKS, Peaks

MIN_BOUND_SHARE = 0.30
"""Minimum utilization at which an op is bound by a roof; libraries reach 60-90% on large matrices."""

_WORK = (
    Column("tflops", "TFLOP/s", "FLOPs over device time"),
    Column("gb_per_s", "GB/s", "bytes over device time"),
)
_AMOUNTS = (
    Column(C.FLOPS, "FLOP", "Σ of the FLOPs of the calls"),
    Column(C.BYTES, "bytes", "Σ of the minimum bytes the calls must move"),
    Column("roof_ns", "ns", "minimum time at the device's peaks: by FLOPs or by bytes, whichever is longer"),
)
_UTILIZATION = Column("utilization", "share", "roof over device time")
_DEVICE_NS = Column("device_ns", "ns", "time at least one kernel of these calls runs")
_SHARE = Column("share", "share", "Σ of durations over that of all kernels of the device")
_SUM = Column("sum_ns", "ns", "Σ of durations of the kernels")
_OP = Column("op", "", "innermost op with known FLOPs, else the op that launched the kernels")
_CALLS = Column("calls", "count", "calls that launched a kernel")
_SHAPES = Column(C.INPUT_SHAPES, "", "shapes of the inputs")
_MFU = (
    Column("mfu", "share", "Σ over precisions of FLOPs / peak, over window; none if uncounted > matrix"),
    Column("tflops", "TFLOP/s", "FLOPs over window"),
    Column(C.FLOPS, "FLOP", "FLOPs of counted calls"),
    Column("window_ns", "ns", "length of the window"),
    Column("matrix_ns", "ns", "time a kernel of a counted call runs"),
    Column("uncounted_ns", "ns", "time a kernel multiplies matrices with unknown FLOPs"),
)
FAMILIES = (_OP, _CALLS, _DEVICE_NS, _SHARE, _UTILIZATION, *_WORK, *_AMOUNTS, _SUM, RANK, DEVICE)
OPS = (
    *(_OP, _SHAPES, Column("precision", "", "peak it is compared with; the dtype if there is none")),
    *(_CALLS, _DEVICE_NS, _UTILIZATION),
    Column("bound", "", f"compute, memory or neither (utilization below {MIN_BOUND_SHARE:.0%})"),
    *_WORK,
    Column("intensity", "", "FLOPs per byte"),
    *_AMOUNTS,
    Column("peak_tflops", "TFLOP/s", "dense peak of the precision"),
    Column("peak_gb_per_s", "GB/s", "memory bandwidth"),
    *(_SUM, _SHARE, RANK, DEVICE),
)
HOST = (
    *(_OP, _SHAPES),
    Column("dtype", "", "dtype of the first tensor"),
    Column("calls", "count", "counted calls"),
    Column("host_ns", "ns", "Σ of durations of the calls on the host"),
    Column("tflops", "TFLOP/s", "FLOPs over host time"),
    Column(C.FLOPS, "FLOP", "Σ of the FLOPs of the calls"),
    RANK,
)
TABLES = (
    TableSpec("summary", "Whole capture, per device", (RANK, DEVICE, *_MFU, *PEAKS)),
    TableSpec("per_step", "Per profiled step and device", (RANK, DEVICE, STEP, *_MFU)),
    TableSpec("families", "By op", FAMILIES),
    TableSpec("ops", "By op, shapes and precision", OPS),
    TableSpec("host", "Work of ops on the host (no kernel of an op in this capture)", HOST),
)

_KEYS = [C.RANK, C.DEVICE, OP, C.INPUT_SHAPES, PRECISION, C.FLOPS, MOVED, MATRIX]


def has_work(calls: pd.DataFrame) -> pd.Series:
    """Whether FLOPs or bytes of each call are known."""
    return (calls[C.FLOPS] != UNKNOWN) | (calls[MOVED] != UNKNOWN)


def group_calls(kernels: pd.DataFrame, calls: pd.DataFrame, peaks: Peaks) -> tuple[pd.DataFrame, Ints]:
    """Return one row per device, op, shapes, precision and work of a call, every call in one row.

    Args:
        kernels: The kernels of a run with their calls.
        calls: The calls with their FLOPs and bytes.
        peaks: Peaks of the devices.

    Returns:
        The table, including columns that are not shown (roofs and flags from kernel names), and the row of
        each kernel, `UNKNOWN` for a kernel without a call.
    """
    by_key = calls.groupby(_KEYS, sort=True, observed=True)
    codes = by_key.ngroup().to_numpy().astype(np.int64)
    table = by_key.size().rename("calls").reset_index()
    flops = ints(table, C.FLOPS).astype(np.float64)
    moved, count = ints(table, MOVED), ints(table, "calls")
    table[C.FLOPS] = np.where(flops == UNKNOWN, np.nan, flops) * count
    table[C.BYTES] = _nullable(moved * count, moved != UNKNOWN)
    group = _group_of(kernels, calls, codes)
    timed = table.join(_times(kernels, group, len(table)))
    return _against_roofs(timed, peaks), group


def _group_of(kernels: pd.DataFrame, calls: pd.DataFrame, codes: Ints) -> Ints:
    """The group of each kernel, `UNKNOWN` for one without a call."""
    keys = [OWNER, C.RANK, C.DEVICE]
    index = pd.MultiIndex.from_frame(calls[keys].astype(np.int64))
    wanted = pd.MultiIndex.from_frame(kernels[keys].fillna(UNKNOWN).astype(np.int64))
    call = index.get_indexer(wanted)
    group: Ints = np.where(call < 0, UNKNOWN, codes[call])
    return group


def _times(kernels: pd.DataFrame, group: Ints, groups: int) -> pd.DataFrame:
    """Times of the kernels of each group, their share, and flags from their names."""
    of_calls = kernels[group != UNKNOWN]
    codes = group[group != UNKNOWN]
    sums = sum_by_code(codes, groups, ints(of_calls, C.DUR_NS))
    device_ns = kernels.groupby([C.RANK, C.DEVICE])[C.DUR_NS].transform("sum").to_numpy(np.int64)
    of_device = np.zeros(groups, np.int64)
    of_device[codes] = device_ns[group != UNKNOWN]
    return pd.DataFrame(
        {
            "device_ns": union_by(codes, groups, *spans(of_calls)),
            "sum_ns": sums,
            "share": share(sums, of_device),
            **{flag: _any(of_calls[flag], codes, groups) for flag in (SIMT, NARROW)},
        }
    )


def _any(flags: pd.Series, codes: Ints, groups: int) -> Bools:
    is_any = np.zeros(groups, np.bool_)
    is_any[codes[flags.to_numpy(bool)]] = True
    return is_any


def _nullable(values: Ints | Floats, is_known: Bools) -> pd.Series:
    """Integers, missing if unknown."""
    filled = np.where(is_known, np.nan_to_num(values), 0).astype(np.int64)
    return pd.Series(filled).astype("Int64").where(pd.Series(is_known))


def _against_roofs(table: pd.DataFrame, peaks: Peaks) -> pd.DataFrame:
    flops, moved = table[C.FLOPS].to_numpy(np.float64), _float(table[C.BYTES])
    matrix = table[MATRIX].to_numpy(bool)
    device = ints(table, C.DEVICE)
    compute = peaks.of_each(device, table[PRECISION])
    compute[~matrix] = np.nan
    memory = np.array([peaks.gb_per_s(index) for index in device.tolist()], np.float64)
    # 1 TFLOP/s is 1,000 FLOP per ns; 1 GB/s is one byte per ns
    by_flops, by_bytes = flops / (compute * 1_000), moved / memory
    roof = np.where(matrix, np.where(np.isnan(by_flops), np.nan, np.fmax(by_flops, by_bytes)), by_bytes)
    ran = ints(table, "device_ns").astype(np.float64)
    utilization = share(roof, ran)
    return table.assign(
        tflops=share(flops, ran * 1_000),
        gb_per_s=share(moved, ran),
        intensity=share(flops, moved),
        roof_ns=_nullable(np.rint(roof), ~np.isnan(roof)),
        utilization=utilization,
        bound=_name_bound(utilization, by_flops, by_bytes, matrix),
        peak_tflops=compute,
        peak_gb_per_s=memory,
        tf32_tflops=peaks.of_each(device, pd.Series("tf32", index=table.index)),
        by_flops=by_flops,
        by_bytes=by_bytes,
    )


def _name_bound(used: Floats, by_flops: Floats, by_bytes: Floats, matrix: Bools) -> Objects:
    """Binding roof; missing if a roof that could bind is unknown."""
    closest = np.where(np.nan_to_num(by_flops) >= np.nan_to_num(by_bytes), "compute", "memory")
    word = np.where(used >= MIN_BOUND_SHARE, closest, "neither").astype(object)
    word[np.isnan(used) | (matrix & np.isnan(by_bytes) & ~(used >= MIN_BOUND_SHARE))] = None
    return word


def _float(values: pd.Series) -> Floats:
    floats: Floats = values.to_numpy(dtype=np.float64, na_value=np.nan)
    return floats


def select_rated(table: pd.DataFrame) -> pd.DataFrame:
    """Rows with known work, longest first."""
    known_work = table[table[C.FLOPS].notna() | table[C.BYTES].notna()]
    return sort_by(known_work, "-device_ns", *PLACE, OP, C.INPUT_SHAPES, PRECISION, C.FLOPS)


def sum_families(kernels: pd.DataFrame, table: pd.DataFrame, group: Ints) -> pd.DataFrame:
    """Return rows by op; amounts are missing if one of the op's rows has none.

    Args:
        kernels: The kernels of a run.
        table: Result of `group_calls`.
        group: int64 array of shape (kernels,): the row of each in the table, `UNKNOWN` without a call.
    """
    keys = [C.RANK, C.DEVICE, OP]
    by_op = table.groupby(keys, sort=True, observed=True)
    parts = by_op[[C.FLOPS, C.BYTES, "roof_ns"]]
    amounts = parts.sum().where(parts.count().eq(by_op.size(), axis=0))
    sums = by_op[["calls", "sum_ns", "share"]].sum().join(amounts).reset_index()
    of_calls = kernels[group != UNKNOWN]
    family = by_op.ngroup().to_numpy(np.int64)[group[group != UNKNOWN]]
    sums["device_ns"] = union_by(family, len(sums), *spans(of_calls))
    device = sums["device_ns"].to_numpy(np.float64)
    rated = sums.assign(
        tflops=share(sums[C.FLOPS].to_numpy(np.float64), device * 1_000),
        gb_per_s=share(_float(sums[C.BYTES]), device),
        utilization=share(_float(sums["roof_ns"]), device),
    )
    known_work = rated[rated[C.FLOPS].notna() | rated[C.BYTES].notna()]
    return sort_by(known_work, "-device_ns", *keys)


def rate_on_host(calls: pd.DataFrame) -> pd.DataFrame:
    """Work of counted calls by rank, op, shapes and dtype, with rates over their host durations."""
    keys = [C.RANK, OP, C.INPUT_SHAPES, DTYPE, C.FLOPS]
    by_key = calls.groupby(keys, sort=True, observed=True)
    table = by_key[C.DUR_NS].agg(["size", "sum"]).reset_index()
    table = table.rename(columns={"size": "calls", "sum": "host_ns"})
    flops = ints(table, C.FLOPS).astype(np.float64) * ints(table, "calls")
    rated = table.assign(
        tflops=share(flops, ints(table, "host_ns").astype(np.float64) * 1_000), **{C.FLOPS: flops}
    )
    return sort_by(rated, "-host_ns", *keys)
