"""Work and rates of ops against the roofs of their device."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeAlias

import numpy as np
import numpy.typing as npt
import pandas as pd

from tracekit.schema import C

from .._shared.common import ints, share, spans, union_by
from .work import DTYPE, MATRIX, MOVED, NARROW, OP, OWNER, PRECISION, SIMT, UNKNOWN

if TYPE_CHECKING:
    from tracekit.intervals import Ints

    from .._shared.common import Floats
    from .mfu import Peaks

    Bools: TypeAlias = npt.NDArray[np.bool_]
    Objects: TypeAlias = npt.NDArray[np.object_]

NEAR = 0.30
"""Minimum utilization at which an op is bound by a roof; libraries reach 60-90% on large matrices."""

_KEYS = [C.RANK, C.DEVICE, OP, C.INPUT_SHAPES, PRECISION, C.FLOPS, MOVED, MATRIX]


def has_work(calls: pd.DataFrame) -> pd.Series:
    """Whether FLOPs or bytes of each call are known."""
    return (calls[C.FLOPS] != UNKNOWN) | (calls[MOVED] != UNKNOWN)


def grouped(kernels: pd.DataFrame, calls: pd.DataFrame, peaks: Peaks) -> tuple[pd.DataFrame, Ints]:
    """One row per device, op, shapes, precision and work of a call, every call in one row.

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
    table[C.BYTES] = _known(moved * count, moved != UNKNOWN)
    group = _group_of(kernels, calls, codes)
    timed = table.join(_times(kernels, group, len(table)))
    return _against_roofs(timed, peaks), group


def _group_of(kernels: pd.DataFrame, calls: pd.DataFrame, codes: Ints) -> Ints:
    """The group of each kernel, `UNKNOWN` for one without a call."""
    keys = [OWNER, C.RANK, C.DEVICE]
    index = pd.MultiIndex.from_frame(calls[keys].astype(np.int64))
    wanted = pd.MultiIndex.from_frame(kernels[keys].fillna(UNKNOWN).astype(np.int64))
    at = index.get_indexer(wanted)
    found: Ints = np.where(at < 0, UNKNOWN, codes[at])
    return found


def _times(kernels: pd.DataFrame, group: Ints, groups: int) -> pd.DataFrame:
    """Times of the kernels of each group, their share, and flags from their names."""
    owned = kernels[group != UNKNOWN]
    codes = group[group != UNKNOWN]
    sums = np.zeros(groups, np.int64)
    np.add.at(sums, codes, ints(owned, C.DUR_NS))
    whole = kernels.groupby([C.RANK, C.DEVICE])[C.DUR_NS].transform("sum").to_numpy(np.int64)
    of_device = np.zeros(groups, np.int64)
    of_device[codes] = whole[group != UNKNOWN]
    return pd.DataFrame(
        {
            "device_ns": union_by(codes, groups, *spans(owned)),
            "sum_ns": sums,
            "share": share(sums, of_device),
            **{flag: _any(owned[flag], codes, groups) for flag in (SIMT, NARROW)},
        }
    )


def _any(flags: pd.Series, codes: Ints, groups: int) -> Bools:
    found = np.zeros(groups, np.bool_)
    found[codes[flags.to_numpy(bool)]] = True
    return found


def _known(values: Ints | Floats, known: Bools) -> pd.Series:
    """Integers, missing if unknown."""
    filled = np.where(known, np.nan_to_num(values), 0).astype(np.int64)
    return pd.Series(filled).astype("Int64").where(pd.Series(known))


def _against_roofs(table: pd.DataFrame, peaks: Peaks) -> pd.DataFrame:
    flops, moved = table[C.FLOPS].to_numpy(np.float64), _float(table[C.BYTES])
    matrix = table[MATRIX].to_numpy(bool)
    device = ints(table, C.DEVICE)
    compute = peaks.of_each(device, table[PRECISION])
    compute[~matrix] = np.nan
    memory = peaks.memory_of_each(device)
    by_flops, by_bytes = flops / (compute * 1_000), moved / memory
    roof = np.where(matrix, np.where(np.isnan(by_flops), np.nan, np.fmax(by_flops, by_bytes)), by_bytes)
    ran = ints(table, "device_ns").astype(np.float64)
    used = _over(roof, ran)
    return table.assign(
        tflops=_over(flops, ran * 1_000),
        gb_per_s=_over(moved, ran),
        intensity=_over(flops, moved),
        roof_ns=_known(np.rint(roof), ~np.isnan(roof)),
        utilization=used,
        bound=_bound(used, by_flops, by_bytes, matrix),
        peak_tflops=compute,
        peak_gb_per_s=memory,
        tf32_tflops=peaks.of_each(device, pd.Series("tf32", index=table.index)),
        by_flops=by_flops,
        by_bytes=by_bytes,
    )


def _bound(used: Floats, by_flops: Floats, by_bytes: Floats, matrix: Bools) -> Objects:
    """Binding roof; missing if a roof that could bind is unknown."""
    closest = np.where(np.nan_to_num(by_flops) >= np.nan_to_num(by_bytes), "compute", "memory")
    word = np.where(used >= NEAR, closest, "neither").astype(object)
    word[np.isnan(used) | (matrix & np.isnan(by_bytes) & ~(used >= NEAR))] = None
    return word


def _over(part: Floats, whole: Floats) -> Floats:
    result: Floats = np.divide(part, whole, out=np.full(part.shape, np.nan), where=whole > 0)
    return result


def _float(values: pd.Series) -> Floats:
    found: Floats = values.to_numpy(dtype=np.float64, na_value=np.nan)
    return found


def shown(table: pd.DataFrame) -> pd.DataFrame:
    """Rows with known work, longest first."""
    known_work = table[table[C.FLOPS].notna() | table[C.BYTES].notna()]
    return _sorted(known_work, "device_ns", [C.RANK, C.DEVICE, OP, C.INPUT_SHAPES, PRECISION, C.FLOPS])


def families(kernels: pd.DataFrame, table: pd.DataFrame, group: Ints) -> pd.DataFrame:
    """Rows by op; amounts are missing if one of the op's rows has none."""
    keys = [C.RANK, C.DEVICE, OP]
    by_op = table.groupby(keys, sort=True, observed=True)
    parts = by_op[[C.FLOPS, C.BYTES, "roof_ns"]]
    whole = parts.sum().where(parts.count().eq(by_op.size(), axis=0))
    sums = by_op[["calls", "sum_ns", "share"]].sum().join(whole).reset_index()
    owned = kernels[group != UNKNOWN]
    family = by_op.ngroup().to_numpy(np.int64)[group[group != UNKNOWN]]
    sums["device_ns"] = union_by(family, len(sums), *spans(owned))
    device = sums["device_ns"].to_numpy(np.float64)
    rated = sums.assign(
        tflops=_over(sums[C.FLOPS].to_numpy(np.float64), device * 1_000),
        gb_per_s=_over(_float(sums[C.BYTES]), device),
        utilization=_over(_float(sums["roof_ns"]), device),
    )
    known_work = rated[rated[C.FLOPS].notna() | rated[C.BYTES].notna()]
    return _sorted(known_work, "device_ns", keys)


def on_host(calls: pd.DataFrame) -> pd.DataFrame:
    """Work of counted calls by rank, op, shapes and dtype, with rates over their host durations."""
    keys = [C.RANK, OP, C.INPUT_SHAPES, DTYPE, C.FLOPS]
    by_key = calls.groupby(keys, sort=True, observed=True)
    table = by_key[C.DUR_NS].agg(["size", "sum"]).reset_index()
    table = table.rename(columns={"size": "calls", "sum": "host_ns"})
    flops = ints(table, C.FLOPS).astype(np.float64) * ints(table, "calls")
    rated = table.assign(
        tflops=_over(flops, ints(table, "host_ns").astype(np.float64) * 1_000), **{C.FLOPS: flops}
    )
    return _sorted(rated, "host_ns", [C.RANK, OP, C.INPUT_SHAPES, DTYPE, C.FLOPS])


def _sorted(table: pd.DataFrame, by: str, keys: list[str]) -> pd.DataFrame:
    return table.sort_values([by, *keys], ascending=[False, *(True for _ in keys)], ignore_index=True)
