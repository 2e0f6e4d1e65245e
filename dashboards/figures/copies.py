"""Copy sizes and rates, memory in use over time, and the roofline."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd

from tracekit.schema import C

from ..components.text import human
from .axis import hover_name
from .bars import histogram
from .lines import Dots, Limit, lines, points

Positions = npt.NDArray[np.int64]
_UNKNOWN_SIZE = -1


def sizes(tables: Mapping[str, pd.DataFrame]) -> dict[str, Any]:
    """Draw the number of copies by size in powers of two, from the `sizes` table of each direction."""
    counts_of = {}
    for name, table in tables.items():
        from_bytes = table["from_bytes"].fillna(_UNKNOWN_SIZE).astype("int64").tolist()
        counts_of[name] = dict(zip(from_bytes, table["copies"].tolist(), strict=True))
    recorded_lows = sorted({low for counts in counts_of.values() for low in counts if low != _UNKNOWN_SIZE})
    lows = _powers_of_two(recorded_lows)
    # Bins from `low` up to twice as much; copies of no bytes and of unknown size have a bin each.
    unknown = [None] if any(_UNKNOWN_SIZE in counts for counts in counts_of.values()) else []
    lower: list[int | None] = [*lows, *unknown]
    upper: list[int | None] = [*(2 * low or 1 for low in lows), *unknown]
    counts_by_name = {
        name: [counts.get(_UNKNOWN_SIZE if low is None else low, 0) for low in lower]
        for name, counts in counts_of.items()
    }
    figure = histogram(lower, upper, counts_by_name, bin_unit="bytes", title="copies", x_title="copy size")
    figure["layout"]["height"] = 380
    figure["layout"]["xaxis"]["ticktext"] = ["unknown" if low is None else _format_size(low) for low in lower]
    return figure


def _format_size(low: int) -> str:
    """Return the text of a power of two in bytes, such as `4 KiB`, which needs no decimals."""
    return human(low, "bytes").replace(".00", "")


def _powers_of_two(lows: Sequence[int]) -> list[int]:
    """Return every power of two from the smallest to the largest, and 0 if it occurs."""
    positive = [low for low in lows if low]
    if not positive:
        return list(lows)
    exponents = range(min(positive).bit_length() - 1, max(positive).bit_length())
    return [*([0] if 0 in lows else []), *(1 << exponent for exponent in exponents)]


def rates(groups: Mapping[str, pd.DataFrame], ceilings: Mapping[str, float]) -> dict[str, Any]:
    """Draw rate over size of groups of equal copies, by direction and memory, with the link's ceilings.

    Args:
        groups: The `groups` table of each direction, by its name; rows without size or rate are left out.
        ceilings: Known ceilings in GB/s, by direction.
    """
    # Both axes are logarithmic, which have no place for 0; missing values drop out, too.
    drawable = {
        name: table[(table["bytes_each"] > 0) & (table["gb_per_s"] > 0)] for name, table in groups.items()
    }
    series = [
        _dots_of_copies(f"{direction} {memory}", rows)
        for direction, table in drawable.items()
        for memory, rows in table.groupby("memory", sort=True, observed=True)
    ]
    copy_sizes = [size for dots in series for size in dots.x]
    ends = [min(copy_sizes), max(copy_sizes)] if copy_sizes else [1, 2]
    limits = [
        Limit(f"{name} ceiling {human(rate, 'GB/s')}", ends, [rate, rate]) for name, rate in ceilings.items()
    ]
    return points(series, limits, x_title="copy size", y_title="GB/s", x_ticks=_size_ticks(ends))


def _dots_of_copies(name: str, rows: pd.DataFrame) -> Dots:
    """Return the points of one direction and memory; their areas are the time that the copies take."""
    longest = float(rows["sum_ns"].max()) or 1.0
    copy_sizes = [int(size) for size in rows["bytes_each"]]
    groups = zip(rows["op"], copy_sizes, rows["copies"], rows["gb_per_s"], strict=True)
    return Dots(
        name,
        copy_sizes,
        [float(rate) for rate in rows["gb_per_s"]],
        [
            f"{hover_name(str(op) or '(no op recorded)')}<br>"
            f"{human(int(count), 'count')} × {human(size, 'bytes')}"
            f"<br>{human(float(rate), 'GB/s')}<br>{name}"
            for op, size, count, rate in groups
        ],
        [float(sum_ns) / longest for sum_ns in rows["sum_ns"]],
    )


def _size_ticks(ends: Sequence[float]) -> tuple[list[float], list[str]]:
    """Return position and label of some powers of two around the smallest and the largest size.

    Starts at an even exponent, so that a step of two has 1, 4, 16, 64, 256 of each unit.
    """
    least, most = int(ends[0]).bit_length() - 1, int(ends[1]).bit_length()
    step = max(2, (most - least) // 8)  # about eight ticks
    values = [float(1 << exponent) for exponent in range(least - least % 2, most + 1, step)]
    return values, [_format_size(int(value)) for value in values]


MAX_POINTS = 4_000
"""Maximum points of a line."""


def chunk_extremes(*series: npt.NDArray[np.float64], most: int = MAX_POINTS) -> Positions:
    """Return indices of the first, last, minimum and maximum value of each series in equal chunks.

    A line through them looks like one through all values, whose peaks fewer points would miss.

    Args:
        series: Values of equal length; NaN where missing.
        most: Maximum number of indices.
    """
    count = len(series[0])
    if count <= most:
        return np.arange(count)
    parts = max(1, most // (2 + 2 * len(series)))  # a chunk has two ends, and two extremes of each series
    edges = np.linspace(0, count, parts + 1).astype(np.int64)
    starts = edges[:-1]
    positions = [starts, edges[1:] - 1]
    for values in series:
        positions += [_first_extreme(values, edges, smallest=smallest) for smallest in (True, False)]
    return np.unique(np.concatenate(positions))


def _first_extreme(values: npt.NDArray[np.float64], edges: Positions, *, smallest: bool) -> Positions:
    """Return the index of the first minimum or maximum between edges; missing values are neither."""
    filled = np.where(np.isnan(values), np.inf if smallest else -np.inf, values)
    reduce = np.minimum if smallest else np.maximum
    extreme = np.repeat(reduce.reduceat(filled, edges[:-1]), np.diff(edges))
    hits = np.flatnonzero(filled == extreme)
    return hits[np.searchsorted(hits, edges[:-1])]  # the first hit from the start of each chunk on


def over_time(timeline: pd.DataFrame, *, most: int = MAX_POINTS) -> dict[str, Any]:
    """Draw allocated and reserved bytes over time, from `memory`'s `timeline` of one rank and device."""
    values_of = {
        name: timeline[name].to_numpy(dtype=np.float64, na_value=np.nan)
        for name in ("allocated", "reserved")
        if timeline[name].notna().any()
    }
    drawn = chunk_extremes(*values_of.values(), most=most)
    series = {
        name: [None if np.isnan(value) else int(value) for value in values[drawn].tolist()]
        for name, values in values_of.items()
    }
    moments = timeline[C.T_NS].to_numpy(np.int64)[drawn].tolist()
    return lines(moments, series, "bytes", title="memory in use", x_title="time", x_unit="ns", stepped=True)


BOUNDS = ("compute", "memory", "neither")
"""What bounds an op in the analysis `roofline`, in the order of the legend; else it is unknown."""
KILO = 1_000
"""GFLOP/s per TFLOP/s; GB/s times FLOP/byte gives GFLOP/s."""


def roofs(ops: pd.DataFrame) -> dict[str, Any]:
    """Draw ops by what bounds them, with a roof per precision.

    The rows of `roofline`'s `ops` must have an intensity and a rate above zero.
    """
    longest = float(ops["device_ns"].max()) or 1.0
    bounds = ops["bound"].fillna("").astype(str)
    names = {"compute": "compute-bound", "memory": "memory-bound", "": "unknown"}
    series = [
        Dots(
            names.get(bound, f"bound by {bound}"),
            rows["intensity"].astype(float).tolist(),
            rows["tflops"].astype(float).tolist(),
            list(map(_hover, *(rows[column] for column in _HOVER))),
            (rows["device_ns"].astype(float) / longest).tolist(),  # areas
        )
        for bound in (*BOUNDS, "")
        for rows in [ops[bounds == bound]]
        if len(rows)
    ]
    x = ops["intensity"].astype(float)
    limits = _roof_lines(ops, float(x.min()) / 2, float(x.max()) * 2)  # roofs extend beyond the ops
    figure = points(series, limits, x_title="arithmetic intensity (FLOP/byte)", y_title="TFLOP/s")
    figure["layout"]["height"] = 440
    return figure


_HOVER = ("op", C.INPUT_SHAPES, "precision", "tflops", "intensity", "utilization", "device_ns")


def _hover(
    op: str, shapes: str, precision: str, tflops: float, intensity: float, utilization: float, device_ns: int
) -> str:
    """Return the hover text of an op; `utilization` is the share of its roof, NaN if unknown."""
    texts = [
        hover_name(str(op)),
        hover_name(str(shapes)),
        f"{hover_name(str(precision))}: {human(float(tflops), 'TFLOP/s')} at {intensity:,.2f} FLOP/byte",
        f"device time {human(int(device_ns), 'ns')}",
    ]
    if not pd.isna(utilization):
        texts.append(f"{human(float(utilization), 'share')} of the roof")
    return "<br>".join(texts)


def _roof_lines(ops: pd.DataFrame, low: float, high: float) -> list[Limit]:
    """Return the roof of each precision: the rate that the peaks allow between two intensities, FLOP/byte."""
    with_peaks = ops.dropna(subset=["peak_tflops", "peak_gb_per_s"])
    peaks = with_peaks[["precision", "peak_tflops", "peak_gb_per_s"]].drop_duplicates()
    limits = []
    for precision, peak, bandwidth in peaks.itertuples(index=False, name=None):
        ridge = KILO * peak / bandwidth  # below this intensity the bandwidth limits, above it the peak rate
        x = sorted({low, min(max(ridge, low), high), high})
        y = [min(peak, bandwidth * intensity / KILO) for intensity in x]
        name = f"{precision}: {human(float(peak), 'TFLOP/s')}, {human(float(bandwidth), 'GB/s')}"
        limits.append(Limit(name, x, y))
    return limits
