"""Tables of `roofline`: work and rates of ops against the roofs of their device.

`call` is the row in `calls` of each kernel, `group` that in the table of groups; `UNKNOWN` without one.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd

from tracekit.analysis import Column, TableSpec
from tracekit.analysis.kernel_names import family
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
    to_categorical,
    union_by,
)
from ..shared.groups import keys_of, number_by, rows_by_device, sum_by_code, sums_if_known
from .calls import DTYPE, MATRIX, MOVED, NARROW, OP, PRECISION, SIMT, UNKNOWN
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
KERNELS = (
    Column("family", "", "canonical name of kernels that do all the work of their calls"),
    Column("precision", "", "peak they are compared with; the dtype if there is none"),
    _CALLS,
    _SUM,
    Column("share", "share", "that over Σ of the durations of all kernels of the run"),
    Column("family_share", "share", "the same of all kernels of the family, also those of unknown work"),
    Column("peak_share", "share", "Σ of FLOPs over peak, over Σ of durations; missing without FLOPs"),
    Column("bandwidth_share", "share", "Σ of bytes over memory bandwidth, over Σ of durations"),
)
HOST = (
    *(_OP, _SHAPES),
    Column("dtype", "", "dtype of the first tensor"),
    Column("calls", "count", "counted calls"),
    Column("host_ns", "ns", "Σ of durations of the calls on the host"),
    Column("tflops", "TFLOP/s", "FLOPs over host time"),
    Column("threads", "count", "intra-op threads of the program; missing if not recorded"),
    Column(C.FLOPS, "FLOP", "Σ of the FLOPs of the calls"),
    RANK,
)
TABLES = (
    TableSpec("summary", "Whole capture, per device", (RANK, DEVICE, *_MFU, *PEAKS)),
    TableSpec("per_step", "Per profiled step and device", (RANK, DEVICE, STEP, *_MFU)),
    TableSpec("families", "By op", FAMILIES),
    TableSpec("ops", "By op, shapes and precision", OPS),
    TableSpec("kernels", "By family of kernels and precision, of all devices", KERNELS),
    TableSpec("host", "Work of ops on the host (no kernel of an op in this capture)", HOST),
)

_KEYS = [C.RANK, C.DEVICE, OP, C.INPUT_SHAPES, PRECISION, C.FLOPS, MOVED, MATRIX]


def has_work(calls: pd.DataFrame) -> pd.Series:
    """Whether FLOPs or bytes of each call are known."""
    return (calls[C.FLOPS] != UNKNOWN) | (calls[MOVED] != UNKNOWN)


def group_calls(
    kernels: pd.DataFrame, calls: pd.DataFrame, call: Ints, peaks: Peaks
) -> tuple[pd.DataFrame, Ints]:
    """Return one row per device, op, shapes, precision and work of a call, every call in one row.

    Returns:
        The table, including columns that are not shown (roofs and flags from kernel names), and the row of
        each kernel, `UNKNOWN` for a kernel without a call.
    """
    codes, first = number_by(calls, _KEYS)
    count, of_group = np.bincount(codes), keys_of(calls, _KEYS, first)
    flops, moved = ints(of_group, C.FLOPS).astype(np.float64), ints(of_group, MOVED)
    group = np.where(call == UNKNOWN, UNKNOWN, codes[call])
    work: dict[str, Any] = {
        "calls": count,
        C.FLOPS: np.where(flops == UNKNOWN, np.nan, flops) * count,
        C.BYTES: _nullable(moved * count, moved != UNKNOWN),
    }
    timed = of_group.assign(**work, **_times(kernels, group, len(first)))
    return _against_roofs(timed, peaks), group


def _times(kernels: pd.DataFrame, group: Ints, groups: int) -> dict[str, Any]:
    """Times of the kernels of each group, their share, and flags from their names."""
    duration, of_calls = ints(kernels, C.DUR_NS), group != UNKNOWN
    codes, (start, end) = group[of_calls], spans(kernels)
    on_device = np.zeros(groups, np.int64)
    for rows in rows_by_device(kernels).values():
        on_device[group[rows][of_calls[rows]]] = duration[rows].sum()
    sums = sum_by_code(codes, groups, duration[of_calls])
    return {
        "device_ns": union_by(codes, groups, start[of_calls], end[of_calls]),
        "sum_ns": sums,
        "share": share(sums, on_device),
        **{
            flag: np.bincount(codes, kernels[flag].to_numpy()[of_calls], groups) > 0
            for flag in (SIMT, NARROW)
        },
    }


def _nullable(values: Ints | Floats, is_known: Bools) -> pd.arrays.IntegerArray:
    """Integers, missing if unknown."""
    return pd.arrays.IntegerArray(np.where(is_known, np.nan_to_num(values), 0).astype(np.int64), ~is_known)


def _against_roofs(table: pd.DataFrame, peaks: Peaks) -> pd.DataFrame:
    flops, moved = table[C.FLOPS].to_numpy(np.float64), _float(table[C.BYTES])
    matrix = table[MATRIX].to_numpy(bool)
    device = ints(table, C.DEVICE)
    compute = peaks.tflops_of_each(device, table[PRECISION])
    compute[~matrix] = np.nan
    memory = peaks.gb_per_s_of_each(device)
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
        tf32_tflops=peaks.tflops_of_each(device, pd.Series("tf32", index=table.index)),
        by_flops=by_flops,
        by_bytes=by_bytes,
    )


def _name_bound(used: Floats, by_flops: Floats, by_bytes: Floats, matrix: Bools) -> Objects:
    """Binding roof; missing if a roof that could bind is unknown."""
    closest = np.where(np.nan_to_num(by_flops) >= np.nan_to_num(by_bytes), "compute", "memory")
    word = np.where(used >= MIN_BOUND_SHARE, closest, "neither").astype(object)
    word[np.isnan(used) | (matrix & np.isnan(by_bytes) & ~(used >= MIN_BOUND_SHARE))] = None
    return word


def _float(values: pd.Series | pd.arrays.IntegerArray) -> Floats:
    floats: Floats = values.to_numpy(dtype=np.float64, na_value=np.nan)
    return floats


def select_rated(table: pd.DataFrame) -> pd.DataFrame:
    """Rows with known work, longest first."""
    known_work = table[table[C.FLOPS].notna() | table[C.BYTES].notna()]
    return sort_by(known_work, "-device_ns", *PLACE, OP, C.INPUT_SHAPES, PRECISION, C.FLOPS)


def sum_families(kernels: pd.DataFrame, table: pd.DataFrame, group: Ints) -> pd.DataFrame:
    """Return rows by op; amounts are missing if one of the op's rows has none."""
    keys, of_calls = [C.RANK, C.DEVICE, OP], group != UNKNOWN
    codes, first = number_by(table, keys)
    groups, (start, end) = len(first), spans(kernels)
    floats = table[[C.FLOPS, "share"]].groupby(codes).sum()
    is_counted = np.bincount(codes, table[C.FLOPS].isna(), groups) == 0
    flops = np.where(is_counted, floats[C.FLOPS], np.nan)
    moved, roof = (sums_if_known(table, codes, groups, name) for name in (C.BYTES, "roof_ns"))
    device_ns = union_by(codes[group[of_calls]], groups, start[of_calls], end[of_calls])
    device = device_ns.astype(np.float64)
    rated: dict[str, Any] = {
        **{name: sum_by_code(codes, groups, ints(table, name)) for name in ("calls", "sum_ns")},
        "share": floats["share"],
        C.FLOPS: flops,
        C.BYTES: moved,
        "roof_ns": roof,
        "device_ns": device_ns,
        "tflops": share(flops, device * 1_000),
        "gb_per_s": share(_float(moved), device),
        "utilization": share(_float(roof), device),
    }
    known_work = is_counted | ~moved.isna()
    sums = table[keys].iloc[first].reset_index(drop=True).assign(**rated)
    return sort_by(sums[known_work], "-device_ns", *keys)


def rate_kernels(kernels: pd.DataFrame, calls: pd.DataFrame, call: Ints, peaks: Peaks) -> pd.DataFrame:
    """Return the rates of kernels by family and precision, against the peaks of their devices.

    The matrix kernels of a call do its work, or all of its kernels where none is one. Calls whose work
    several families share, or whose peak is unknown, are not rated.
    """
    names, took = kernels[C.NAME].cat, ints(kernels, C.DUR_NS)
    families, of_name = np.unique([family(str(name)) for name in names.categories], return_inverse=True)
    code, is_matrix = of_name[names.codes.to_numpy()], kernels[MATRIX].to_numpy(bool)
    does = call != UNKNOWN
    has_matrix = np.bincount(call[does & is_matrix], minlength=len(calls)) > 0
    does[does] &= is_matrix[does] | ~has_matrix[call[does]]
    first, last = np.full(len(calls), len(families)), np.full(len(calls), UNKNOWN)
    np.minimum.at(first, call[does], code[does])
    np.maximum.at(last, call[does], code[does])
    by_flops, by_bytes = _best_ns(kernels, calls, call, peaks)
    known = np.where(calls[MATRIX].to_numpy(bool), by_flops, by_bytes)
    rated = np.flatnonzero((first == last) & ~np.isnan(known))
    run_ns, call_ns = took.sum(), sum_by_code(call[does], len(calls), took[does])
    rows = pd.DataFrame(
        {
            "family": to_categorical(families.tolist(), first[rated]),
            "precision": calls[PRECISION].array[rated],
            "calls": 1,
            "sum_ns": call_ns[rated],
            "peak_share": by_flops[rated],
            "bandwidth_share": by_bytes[rated],
        }
    )
    keys = ["family", "precision"]
    table = rows.groupby(keys).sum(min_count=1).reset_index().astype(dict.fromkeys(keys, "str"))
    ran = table["sum_ns"].to_numpy(np.float64)
    of_family = dict(zip(families, sum_by_code(code, len(families), took) / max(run_ns, 1), strict=True))
    rates = table.assign(
        share=share(ran, run_ns),
        family_share=table["family"].map(of_family).astype(float),
        peak_share=share(table["peak_share"].to_numpy(np.float64), ran),
        bandwidth_share=share(table["bandwidth_share"].to_numpy(np.float64), ran),
    )
    return sort_by(rates, "-sum_ns", *keys)


def _best_ns(kernels: pd.DataFrame, calls: pd.DataFrame, call: Ints, peaks: Peaks) -> tuple[Floats, Floats]:
    """Time of the FLOPs and of the bytes of each call at the peaks; NaN if unknown.

    Float32 products may use TF32 where it exists, unless the names of their kernels say otherwise.
    """
    device, precision = ints(calls, C.DEVICE), calls[PRECISION]
    compute = peaks.tflops_of_each(device, precision)
    tf32 = peaks.tflops_of_each(device, pd.Series("tf32", index=calls.index))
    is_plain = np.bincount(call[(call != UNKNOWN) & kernels[SIMT].to_numpy(bool)], minlength=len(calls)) > 0
    compute[(precision == "fp32").to_numpy(bool) & ~np.isnan(tf32) & ~is_plain] = np.nan
    memory = peaks.gb_per_s_of_each(device)
    flops, moved = (calls[name].to_numpy(np.float64) for name in (C.FLOPS, MOVED))
    is_matrix = calls[MATRIX].to_numpy(bool)
    by_flops = np.where(is_matrix & (flops != UNKNOWN), flops / (compute * 1_000), np.nan)
    return by_flops, np.where(moved != UNKNOWN, moved / memory, np.nan)


def rate_on_host(calls: pd.DataFrame, threads: int | None) -> pd.DataFrame:
    """Work of counted calls by rank, op, shapes and dtype, with rates over their host durations."""
    keys = [C.RANK, OP, C.INPUT_SHAPES, DTYPE, C.FLOPS]
    by_key = calls.groupby(keys, sort=True, observed=True)
    table = by_key[C.DUR_NS].agg(["size", "sum"]).reset_index()
    table = table.rename(columns={"size": "calls", "sum": "host_ns"})
    table = table.astype(dict.fromkeys(table.select_dtypes("category"), "str"))
    flops = ints(table, C.FLOPS).astype(np.float64) * ints(table, "calls")
    rated = table.assign(
        tflops=share(flops, ints(table, "host_ns").astype(np.float64) * 1_000),
        threads=pd.array([threads] * len(table), dtype="Int64"),
        **{C.FLOPS: flops},
    )
    return sort_by(rated, "-host_ns", *keys)
