"""Advice on matrix products, convolutions and attention that stay far from the device's peak."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import numpy as np

from tracekit.analysis import EVIDENCE_ROWS, Basis, Finding, Rule, Severity
from tracekit.savings import CONFIDENT, WARN_SHARE, Budget, budget
from tracekit.schema import C

from .._shared.common import ints
from .._shared.hosts import source_lines
from .._shared.tensors import parse_shapes
from .._shared.units import duration, percent
from .ops import NEAR
from .work import MATRIX, NARROW, OP, OWNER, PRECISION, SIMT

if TYPE_CHECKING:
    import pandas as pd

    from tracekit.run import Run

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
            "cores, bound by the FP32 peak (at least 30% of it), on a device with a higher TF32 peak; TF32 "
            "would save at least 1% of a step"
        ),
        why=(
            "TF32 keeps the range and 10 bits of the mantissa, and its peak is 2 to 8 times FP32's; calls "
            "far from the FP32 peak are bound by something else"
        ),
    ),
    Rule(
        "unaligned_half_precision",
        states=(
            "16-bit products with a dimension that is not a multiple of 8 run kernels whose names indicate "
            "loads of fewer than 8 elements or no tensor cores, below 30% of their roof, in at least 3% "
            "of a step"
        ),
        why="tensor cores load 16 bytes, 8 elements of 16 bits, at once; narrower loads are slower",
    ),
    Rule(
        "low_matrix_utilization",
        states=(
            "the calls of a counted op that reach below 30% of both roofs take at least 3% of a step, and "
            "no other rule explains it"
        ),
        why="libraries reach 60-90% of a roof on large matrices; runs differ by less than 3% of a step",
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
    products = table[OP].isin([f"aten::{name}" for name in _PRODUCTS])
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
