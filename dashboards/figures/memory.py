"""Copy sizes and rates, memory in use over time, the areas of allocations, and the roofline."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd

from tracekit.schema import C

from ..components.text import human
from .axis import COLORWAY, LEGEND, TOTAL, add_unit, hover_name, scale_factor, shorten_label
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


MORE = "other groups"
EARLIER = "(before the capture)"
"""Group without a color of its own."""
OTHERS = "smaller allocations"
_HATCHED = {"shape": "/", "size": 6, "solidity": 0.25, "fillmode": "overlay", "fgcolor": "rgba(0,0,0,0.6)"}
_Path = list[tuple[int, int]]


def stack_lives(spans: Iterable[tuple[int, int, int]]) -> list[_Path]:
    """Return per allocation the times at which its lower edge moves, with the edge from then on.

    They are stacked in order of their starts; those above one that is freed drop by its size. `spans` are
    start, end and size of each, with the start before the end.
    """
    lives = list(spans)
    events = [(start, True, number) for number, (start, _, _) in enumerate(lives)]
    events += [(end, False, number) for number, (_, end, _) in enumerate(lives)]
    live: list[int] = []
    paths: list[_Path] = [[] for _ in lives]
    for time, begins, number in sorted(events):  # at equal times, frees come first
        if begins:
            paths[number].append((time, sum(lives[other][2] for other in live)))
            live.append(number)
            continue
        place = live.index(number)
        live.pop(place)
        for other in live[place:]:
            last, edge = paths[other][-1]
            lower = edge - lives[number][2]
            paths[other][-1 if last == time else len(paths[other]) :] = [(time, lower)]
    return paths


def draw_lives(
    lives: pd.DataFrame, over_time: pd.DataFrame, by: str, layers: Mapping[str, str]
) -> dict[str, Any]:
    """Draw the largest allocations as areas over time, and the bytes of all others on top of them.

    Args:
        lives: The rows of `lifetimes` of one rank and device that `over_time` counts as the largest.
        over_time: The rows of `active` of the same rank and device.
        by: Column of `lives` whose values are told apart by color.
        layers: Columns of `over_time` that part the others, by the name of the group.
    """
    wide, unit = scale_factor((int(time) for time in over_time[C.T_NS]), "ns")
    tall, size = scale_factor((int(value) for value in over_time["allocated"]), "bytes")
    sums = lives.groupby(by, sort=True)["size"].sum().sort_values(ascending=False, kind="stable")
    colored = [group for group in dict.fromkeys([*layers, *map(str, sums.index)]) if group != EARLIER]
    colors = dict(zip(colored, COLORWAY[:-1], strict=False))
    shown = lives[(lives["life_ns"] > 0) & (lives["size"] > 0)].to_dict("records")
    spans = [
        (int(row[C.START_NS]), int(row[C.START_NS]) + int(row["life_ns"]), int(row["size"])) for row in shown
    ]
    traces = []
    for row, path, (_, end, height) in zip(shown, stack_lives(spans), spans, strict=True):
        x, y = _outline(path, end, height)
        area = _area([time * wide for time in x], [edge * tall for edge in y])
        traces.append(area | _color_and_legend(str(row[by]), colors) | {"text": _hover_text(row)})
    traces += _others(over_time, layers or {OTHERS: "others"}, colors, (wide, tall))
    seen: set[str] = set()
    for trace in traces:
        trace["showlegend"] = trace["legendgroup"] not in seen
        seen.add(trace["legendgroup"])
    layout = {
        "height": 420,
        "xaxis": {"title": {"text": add_unit("time", unit)}},
        "yaxis": {"title": {"text": add_unit("memory in use", size)}, "rangemode": "tozero"},
        "legend": LEGEND,
        "showlegend": True,
        "hovermode": "closest",
    }
    return {"data": traces, "layout": layout}


def _color_and_legend(group: str, colors: dict[str, str]) -> dict[str, Any]:
    """Return color and legend of an area; groups beyond the palette, and earlier allocations, are gray."""
    named = group if group in colors or group in {EARLIER, OTHERS} else MORE
    return {
        "name": shorten_label(named, 32),
        "legendgroup": hover_name(named),
        "fillcolor": colors.get(group, TOTAL),
    }


def _outline(path: _Path, end: int, size: int) -> tuple[list[int], list[int]]:
    """Return the corners of an area whose lower edge moves in steps."""
    x, y = [path[0][0]], [path[0][1]]
    for time, edge in path[1:]:
        x += [time, time]
        y += [y[-1], edge]
    x.append(end)
    y.append(y[-1])
    return [*x, *reversed(x), x[0]], [*y, *(edge + size for edge in reversed(y)), y[0]]


def _area(x: list[float], y: list[float]) -> dict[str, Any]:
    edge = {"color": "rgba(0,0,0,0.45)", "width": 0.5}
    shape = {"type": "scatter", "mode": "lines", "fill": "toself", "hoveron": "fills", "line": edge}
    return {**shape, "x": x, "y": y}


def _hover_text(row: dict[Any, Any]) -> str:
    crosses = f"<br>crosses the {row['edge']} of the capture" if row["edge"] else ""
    words = [hover_name(str(row[name])) for name in ("op", "category", "module")]
    life = f"{human(int(row['life_ns']), 'ns')} from {human(int(row[C.START_NS]), 'ns')}"
    return "<br>".join([human(int(row["size"]), "bytes"), *dict.fromkeys(words), life]) + crosses


def _others(
    over_time: pd.DataFrame, layers: Mapping[str, str], colors: dict[str, str], scales: tuple[float, float]
) -> list[dict[str, Any]]:
    """Draw what the largest allocations leave of the allocated bytes, in hatched layers on top of them."""
    moments = over_time.drop_duplicates(C.T_NS, keep="last")
    times = [int(time) * scales[0] for time in moments[C.T_NS]]
    edge = moments["largest"]
    traces = []
    for name, column in layers.items():
        lower, upper = edge, edge + moments[column]
        edge = upper
        if not moments[column].any():
            continue
        up, down = (
            _step_corners(times, [int(value) * scales[1] for value in values]) for values in (upper, lower)
        )
        traces.append(
            _area([*up[0], *reversed(down[0])], [*up[1], *reversed(down[1])])
            | _color_and_legend(name, colors)
            | {"text": OTHERS if name == OTHERS else f"{OTHERS}: {name}"}
            | {"fillpattern": _HATCHED, "line": {"width": 0}}
        )
    return traces


def _step_corners(x: list[float], y: list[float]) -> tuple[list[float], list[float]]:
    """Return the corners of a line whose values hold until the next."""
    later = [*x[1:], *x[-1:]]
    corners_x = [corner for pair in zip(x, later, strict=True) for corner in pair]
    return corners_x, [corner for value in y for corner in (value, value)]


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
