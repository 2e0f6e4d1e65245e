"""Roofline plot."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tracekit.render import human
from tracekit.schema import C

from .axis import whole
from .points import Dots, Limit, points

if TYPE_CHECKING:
    import pandas as pd

BOUNDS = ("compute", "memory", "neither")
KILO = 1_000
"""GFLOP/s per TFLOP/s; GB/s times FLOP/byte gives GFLOP/s."""


def roofs(ops: pd.DataFrame) -> dict[str, Any]:
    """Draw ops by what bounds them, with a roof per precision.

    Args:
        ops: Rows of `roofline`'s `ops` with an intensity and a rate above zero.
    """
    longest = float(ops["device_ns"].max()) or 1.0
    bounds = ops["bound"].fillna("").astype(str)
    kinds = [
        _dots(bound or "unknown", ops[bounds == bound], longest)
        for bound in (*BOUNDS, "")
        if (bounds == bound).any()
    ]
    x = ops["intensity"].astype(float)
    limits = _limits(ops, float(x.min()) / 2, float(x.max()) * 2)
    figure = points(kinds, limits, x_title="arithmetic intensity (FLOP/byte)", y_title="TFLOP/s")
    figure["layout"]["height"] = 440
    return figure


def _dots(bound: str, ops: pd.DataFrame, longest: float) -> Dots:
    columns = ["op", C.INPUT_SHAPES, "precision", "tflops", "intensity", "utilization", "device_ns"]
    hover = [_hover(*row) for row in zip(*(ops[column] for column in columns), strict=True)]
    weight = (ops["device_ns"].astype(float) / longest).tolist()
    name = f"{bound}-bound" if bound in BOUNDS[:2] else f"bound by {bound}" if bound != "unknown" else bound
    x, y = ops["intensity"].astype(float).tolist(), ops["tflops"].astype(float).tolist()
    return Dots(name, x, y, hover, weight)


def _hover(
    op: str, shapes: str, precision: str, tflops: float, intensity: float, used: float, device_ns: int
) -> str:
    lines = [
        whole(str(op)),
        whole(str(shapes)),
        f"{whole(str(precision))}: {human(float(tflops), 'TFLOP/s')} at {intensity:,.2f} FLOP/byte",
        f"device time {human(int(device_ns), 'ns')}",
    ]
    return "<br>".join(lines if used != used else [*lines, f"{human(float(used), 'share')} of the roof"])


def _limits(ops: pd.DataFrame, low: float, high: float) -> list[Limit]:
    known = ops.dropna(subset=["peak_tflops", "peak_gb_per_s"])
    peaks = known[["precision", "peak_tflops", "peak_gb_per_s"]].drop_duplicates()
    limits = []
    for precision, peak, bandwidth in peaks.itertuples(index=False, name=None):
        ridge = KILO * peak / bandwidth
        x = sorted({low, min(max(ridge, low), high), high})
        y = [min(peak, bandwidth * each / KILO) for each in x]
        lines = f"{precision}: {human(float(peak), 'TFLOP/s')}, {human(float(bandwidth), 'GB/s')}"
        limits.append(Limit(lines, x, y))
    return limits
