"""Work and rates of ops against the roofs of their device."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, TypeAlias

import numpy as np
import numpy.typing as npt
import pandas as pd

from tracekit.analysis import EVIDENCE_ROWS, Basis, Bottleneck, Finding, Rule, Severity
from tracekit.analysis.savings import CONFIDENT, LEAST_SHARE, WARN_SHARE, Budget, budget
from tracekit.runs.intervals import Ints
from tracekit.runs.run import Run
from tracekit.schema import C

from ..shared.common import Floats, duration, ints, percent, share, spans, union_by
from ..shared.host_rows import source_lines
from ..shared.tensor_shapes import parse_shapes
from .work import DTYPE, MATRIX, MOVED, NARROW, OP, OWNER, PRECISION, SIMT, UNKNOWN

if TYPE_CHECKING:
    from .devices import Peaks

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
    used = share(roof, ran)
    return table.assign(
        tflops=share(flops, ran * 1_000),
        gb_per_s=share(moved, ran),
        intensity=share(flops, moved),
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
        tflops=share(sums[C.FLOPS].to_numpy(np.float64), device * 1_000),
        gb_per_s=share(_float(sums[C.BYTES]), device),
        utilization=share(_float(sums["roof_ns"]), device),
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
        tflops=share(flops, ints(table, "host_ns").astype(np.float64) * 1_000), **{C.FLOPS: flops}
    )
    return _sorted(rated, "host_ns", [C.RANK, OP, C.INPUT_SHAPES, DTYPE, C.FLOPS])


def _sorted(table: pd.DataFrame, by: str, keys: list[str]) -> pd.DataFrame:
    return table.sort_values([by, *keys], ascending=[False, *(True for _ in keys)], ignore_index=True)


GROUP = "group"
SPEEDUP = 2.0
"""Maximum estimated speedup by TF32, whose peak is 2 to 8 times that of FP32."""
ALIGNED = 8
"""16-bit elements in the 16 bytes that tensor cores load at once."""
SHORT_NS = 5_000
"""A call with a roof below this time is as short as the cost of launching a kernel."""
_HALF = ("fp16", "bf16")
_PRODUCTS = ("mm", "addmm", "bmm", "baddbmm", "linear", "_addmm_activation", "addbmm")

RULES = (
    Rule(
        "fp32_without_tf32",
        states=(
            "products or convolutions of float32 run kernels whose names indicate FP32 without tensor "
            f"cores, bound by the FP32 peak (at least {NEAR:.0%} of it), on a device with a higher TF32 "
            f"peak; TF32 would save at least {LEAST_SHARE:.0%} of a step"
        ),
        why=(
            "TF32 keeps the range and 10 bits of the mantissa, and its peak is 2 to 8 times FP32's; calls "
            "far from the FP32 peak are bound by something else"
        ),
        bound=Bottleneck.COMPUTE,
    ),
    Rule(
        "unaligned_half_precision",
        states=(
            "16-bit products with a dimension that is not a multiple of 8 run kernels whose names indicate "
            f"loads of fewer than 8 elements or no tensor cores, below {NEAR:.0%} of their roof, in at least "
            f"{WARN_SHARE:.0%} of a step"
        ),
        why="tensor cores load 16 bytes, 8 elements of 16 bits, at once; narrower loads are slower",
        bound=Bottleneck.COMPUTE,
    ),
    Rule(
        "low_matrix_utilization",
        states=(
            f"the calls of a counted op that reach below {NEAR:.0%} of both roofs take at least "
            f"{WARN_SHARE:.0%} of a step, and no other rule explains it"
        ),
        why="libraries reach 60-90% of a roof on large matrices; runs differ by less than 3% of a step",
        bound=Bottleneck.COMPUTE,
    ),
)


def findings(run: Run, table: pd.DataFrame, kernels: pd.DataFrame) -> tuple[Finding, ...]:
    """Findings on the table of ops.

    Args:
        run: The run.
        table: Work and rates by group of calls.
        kernels: The run's kernels with the group each belongs to.
    """
    known = table[table[MATRIX].astype(bool) & table["utilization"].notna()]
    if known.empty:
        return ()
    case = _Case(run, kernels, budget(run))
    plain = _plain_fp32(known)
    unaligned = _unaligned(known.drop(plain.index))
    rest = known.drop(plain.index).drop(unaligned.index)
    found = [*case.tf32(plain), *case.alignment(unaligned), *case.low(rest[rest["bound"] == "neither"])]
    return tuple(found)


def _plain_fp32(table: pd.DataFrame) -> pd.DataFrame:
    """Groups bound by FP32 according to kernel names, with a higher TF32 roof, and the saving by TF32."""
    named = (table[PRECISION] == "fp32") & table[SIMT].astype(bool) & (table["bound"] == "compute")
    plain = table[named & (table["tf32_tflops"] > table["peak_tflops"])]
    by_tf32 = plain[C.FLOPS] / (plain["tf32_tflops"] * 1_000)
    roof = np.fmax(plain["by_flops"], plain["by_bytes"])
    ratio = roof / np.fmax(by_tf32, plain["by_bytes"])
    remaining = plain["sum_ns"] / np.minimum(ratio, SPEEDUP)
    return plain.assign(saved=(plain["sum_ns"] - remaining).round().astype(np.int64))


def _unaligned(table: pd.DataFrame) -> pd.DataFrame:
    # a batched product is usually part of eager attention, where a fused kernel removes it
    products = table[OP].isin([f"aten::{name}" for name in _PRODUCTS if "b" not in name])
    slow = (table["utilization"] < NEAR) & (table[NARROW] | table[SIMT]).astype(bool)
    chosen = table[products & slow & table[PRECISION].isin(_HALF)]
    unaligned = chosen[C.INPUT_SHAPES].map(lambda text: bool(unaligned_sizes(text)))
    return chosen[unaligned.astype(bool)]


def unaligned_sizes(shapes: str) -> list[int]:
    """Sizes of the last two dimensions of the multiplied matrices that are not multiples of 8.

    Example:
        >>> unaligned_sizes("[[50257],[64,768],[768,50257]]")
        [50257]
    """
    found = [shape for shape in parse_shapes(shapes) if isinstance(shape, tuple) and len(shape) > 1]
    return sorted({size for shape in found[-2:] for size in shape[-2:] if size % ALIGNED})


class _Case:
    """Builder of findings on groups of calls."""

    def __init__(self, run: Run, kernels: pd.DataFrame, spent: Budget) -> None:
        self._run, self._kernels, self._budget = run, kernels, spent

    def tf32(self, groups: pd.DataFrame) -> list[Finding]:
        """Findings on FP32 where TF32 is faster, separate for products and convolutions."""
        is_convolution = groups[OP].str.contains("conv")
        return [
            *self._tf32(groups[~is_convolution], "matrix products", _ALLOW_PRODUCTS),
            *self._tf32(groups[is_convolution], "convolutions", _ALLOW_CONVOLUTIONS),
        ]

    def _tf32(self, groups: pd.DataFrame, what: str, advice: str) -> list[Finding]:
        saved = int(groups["saved"].sum()) if len(groups) else 0
        if not self._budget.matters(saved):
            return []
        total = int(groups["sum_ns"].sum())
        peaks = groups.iloc[0]
        return [
            Finding(
                "fp32_without_tf32",
                self._budget.severity(saved),
                f"Float32 {what} run without tensor cores for {self._part(total)}",
                f"{advice}, if 10 bits of mantissa are enough{self._where(groups)}",
                self._budget.per_step(saved),
                Basis.ESTIMATED,
                f"their roof with TF32 ({peaks['tf32_tflops']:g} against {peaks['peak_tflops']:g} TFLOP/s) "
                f"over the one without, at most {SPEEDUP:g} times faster; device time "
                f"{self._budget.per}, which shortens the step unless the device waits for the host",
                0.7,
                self._evidence(groups),
            )
        ]

    def alignment(self, groups: pd.DataFrame) -> list[Finding]:
        """Findings on 16-bit products whose sizes prevent full loads by tensor cores."""
        total = int(groups["sum_ns"].sum()) if len(groups) else 0
        if not self._budget.matters(total, least=WARN_SHARE):
            return []
        first = groups.sort_values("sum_ns", ascending=False, kind="stable").iloc[0]
        sizes = ", ".join(str(size) for size in unaligned_sizes(first[C.INPUT_SHAPES]))
        return [
            Finding(
                "unaligned_half_precision",
                Severity.WARN,
                f"16-bit products with sizes that are not multiples of {ALIGNED} take "
                f"{self._part(total)} at {percent(_reached(groups))} of their roof",
                f"Pad {sizes} in {first[OP]} {_shapes(first)} to a multiple of {ALIGNED} (better 64)"
                f"{self._where(groups)}",
                confidence=CONFIDENT,
                evidence=self._evidence(groups),
                how="savings not estimated: they depend on the kernel that the library selects after padding",
            )
        ]

    def low(self, groups: pd.DataFrame) -> list[Finding]:
        """Findings on ops that are slow without a cause visible in names or shapes."""
        found = []
        for op, own in groups.groupby(OP, sort=True):
            total = int(own["sum_ns"].sum())
            if self._budget.matters(total, least=WARN_SHARE):
                found.append(self._low(str(op), own, total))
        return found

    def _low(self, op: str, groups: pd.DataFrame, total: int) -> Finding:
        calls = int(groups["calls"].sum())
        best, mean = int(groups["roof_ns"].sum()) // calls, total // calls
        first = groups.sort_values("sum_ns", ascending=False, kind="stable").iloc[0]
        return Finding(
            "low_matrix_utilization",
            Severity.INFO,
            f"{op} runs at {percent(_reached(groups))} of its roof for {self._part(total)}",
            f"{_SMALL if best < SHORT_NS else _LARGE} A call takes {duration(mean)} on average, its "
            f"work {duration(best)} at the roof; most time goes to {_shapes(first)} in "
            f"{first[PRECISION]}{self._where(groups)}",
            confidence=CONFIDENT,
            evidence=self._evidence(groups),
            how="savings not estimated: the distance from the roof is known, its cause is not",
        )

    def _part(self, total: int) -> str:
        unit = "step time" if self._budget.marked else "capture"
        return f"{percent(self._budget.share(total))} of the {unit}"

    def _kernels_of(self, groups: pd.DataFrame) -> pd.DataFrame:
        own = self._kernels[self._kernels[GROUP].isin(groups.index)]
        return own.sort_values([C.DUR_NS, C.ROW_ID], ascending=[False, True]).head(EVIDENCE_ROWS)

    def _where(self, groups: pd.DataFrame) -> str:
        """Source line that launched the longest of these kernels, as the end of a sentence."""
        line = source_lines(self._run, self._kernels_of(groups)[OWNER].head(1)).iloc[0]
        return f"; the longest kernel is launched at {line}" if line else ""

    def _evidence(self, groups: pd.DataFrame) -> dict[str, list[int]]:
        own = self._kernels_of(groups)
        hosts = own[OWNER].drop_duplicates().to_numpy(dtype=np.int64)
        return {"device_intervals": ints(own, C.ROW_ID).tolist(), "host_intervals": hosts.tolist()}


def _shapes(row: pd.Series) -> str:
    """Shapes of a group's inputs, without non-tensors at the end."""
    return re.sub(r"(?:,\[\])+\]$", "]", str(row[C.INPUT_SHAPES]))


def _reached(groups: pd.DataFrame) -> float:
    """Roof over device time of all groups together."""
    return float(groups["roof_ns"].sum()) / max(1, int(groups["device_ns"].sum()))


_ALLOW_PRODUCTS = 'Allow TF32 with `torch.set_float32_matmul_precision("high")` (or use autocast to bf16)'
_ALLOW_CONVOLUTIONS = (
    "cuDNN may use TF32 by default: check that `torch.backends.cudnn.allow_tf32` is not turned off (or use "
    "autocast to bf16)"
)
_SMALL = (
    "A call has too little work to fill the device: do more per call (a larger batch, or several products "
    "as one `torch.bmm`)."
)
_LARGE = "Names and shapes do not show the cause: profile one call with Nsight Compute or rocprof-compute."
