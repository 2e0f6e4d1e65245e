"""Axes in readable units: one scale per axis, and exact text for every point."""

from __future__ import annotations

import base64
import re
from collections.abc import Iterable, Sequence
from functools import cache
from html import escape
from itertools import islice
from pathlib import Path
from typing import Any, Final

import numpy as np
import pandas as pd

from tracekit.analysis.idle_causes import label
from tracekit.analysis.kernel_names import brief
from tracekit.errors import clean
from tracekit.runs.text import SIZES, TIMES

from ..components.text import human

_SCALES = {"ns": (TIMES, "ns"), "bytes": (SIZES, "B")}
LABEL = 48
"""Maximum characters of an axis label; the hover text has the full name."""


def scale_values(values: Sequence[float | None], unit: str) -> tuple[list[float | None], str]:
    """Scale values by the unit that fits the largest; also return the unit.

    Example:
        >>> scale_values([1_500_000, None, 250_000], "ns")
        ([1.5, None, 0.25], 'ms')
        >>> scale_values([0.25, 1.0], "share")
        ([25.0, 100.0], '%')
    """
    if unit == "share":
        return [None if value is None else 100 * value for value in values], "%"
    scales, base = _SCALES.get(unit, ((), unit))
    largest = max((abs(value) for value in values if value is not None), default=0)
    size, name = next(((size, name) for size, name in scales if largest >= size), (1, base))
    return [None if value is None else value / size for value in values], name


def scale_rows(rows: Sequence[Sequence[float | None]], unit: str) -> tuple[list[list[float | None]], str]:
    """Scale rows of values by the unit that fits the largest; also return the unit.

    Example:
        >>> scale_rows([[1_500_000], [None, 250_000]], "ns")
        ([[1.5], [None, 0.25]], 'ms')
    """
    flat, name = scale_values([value for row in rows for value in row], unit)
    scaled = iter(flat)
    return [list(islice(scaled, len(row))) for row in rows], name


def scale_factor(values: Iterable[float], unit: str) -> tuple[float, str]:
    """Return the factor that scales values to the unit of the largest, and the unit.

    Example:
        >>> scale_factor([2_000_000, 500], "ns")
        (1e-06, 'ms')
    """
    largest = max((abs(value) for value in values), default=0)
    (shown,), name = scale_values([largest], unit)
    return ((shown or 0.0) / largest if largest else 1.0), name


def row_axis(names: Sequence[str], *, width: int = LABEL) -> dict[str, Any]:
    """Return a vertical axis with one named row per bar, the first at the top."""
    return {
        "tickvals": list(range(len(names))),
        "ticktext": [shorten_label(name, width) for name in names],
        "autorange": "reversed",
        "automargin": True,
    }


def format_values(values: Iterable[Any], unit: str) -> list[str]:
    """Format each value."""
    return [human(value, unit) for value in values]


def shorten_label(text: str, width: int = LABEL) -> str:
    """Return an escaped name for an axis or legend; long names are cut in the middle."""
    return escape(brief(clean(text), width))


def hover_name(text: str, width: int = 90) -> str:
    """Return an escaped name for hover text, wrapped into at most six lines."""
    text = clean(text)
    cut = text if len(text) <= 6 * width else text[: 6 * width] + "…"
    return "<br>".join(escape(cut[start : start + width]) for start in range(0, max(len(cut), 1), width))


def hover(names: Iterable[str], texts: Iterable[str]) -> dict[str, Any]:
    """Return the hover text of points: their names, and a text below each.

    Example:
        >>> hover(["gemm"], ["1.50 ms"])
        {'hovertext': ['gemm<br>1.50 ms'], 'hoverinfo': 'text'}
    """
    lines = [f"{hover_name(name)}<br>{text}" for name, text in zip(names, texts, strict=True)]
    return {"hovertext": lines, "hoverinfo": "text"}


def add_unit(title: str, scale: str) -> str:
    """Return an axis title with its unit.

    Example:
        >>> add_unit("sum", "ms"), add_unit("", "ms"), add_unit("step", "")
        ('sum (ms)', 'ms', 'step')
        >>> add_unit("launches", "count")
        'launches'
    """
    name = shorten_label(title)
    return f"{name} ({scale})" if name and scale and scale != "count" else name or scale


_PALETTE = Path(__file__).parents[1] / "assets" / "palette.css"


@cache
def _colors() -> dict[str, str]:
    """Return the colors of the light theme, which charts have in both, by name."""
    light = _PALETTE.read_text(encoding="utf-8").split("}", 1)[0]
    return dict(re.findall(r"--tkl-([a-z0-9-]+): (#[0-9a-f]{6});", light))


def color(name: str) -> str:
    """Return the color of something.

    Raises:
        KeyError: It has none.

    Example:
        >>> color("copies"), color("copy H2D")
        ('#e69f00', '#e69f00')
    """
    return _colors()[re.sub(r"[^a-z0-9]+", "-", name.lower()).strip("-")]


def color_of_cause(cause: str) -> str:
    """Return the color of a cause of idle time.

    Raises:
        KeyError: There is no such cause.

    Example:
        >>> color_of_cause("dataload") == color("idle: data loading")
        True
    """
    return color(f"idle {label(cause)}")


COLORWAY: Final = (
    "#3b82c4",  # blue
    "#e69f00",  # orange
    "#009e73",  # green
    "#d55e00",  # vermilion
    "#cc79a7",  # pink
    "#56b4e9",  # sky
    "#9467bd",  # violet
    "#868e96",  # gray
)
"""After Okabe and Ito, with a lighter blue and no yellow, for contrast on white and on dark."""
TOTAL: Final = "#868e96"
"""Totals and reference lines."""
SEQUENTIAL: Final = (
    "#00224e",
    "#123570",
    "#3b496c",
    "#575d6d",
    "#707173",
    "#8a8678",
    "#a59c74",
    "#c3b369",
    "#e1cc55",
    "#fee838",
)
"""Colors of heatmaps from low to high, at equal distances: Cividis, which is color-blind safe."""
LEGEND: Final = {"traceorder": "normal", "orientation": "h", "y": 1.02, "yanchor": "bottom", "x": 0}
"""Horizontal legend above the plot."""
STACKED: Final = {"barmode": "stack", "showlegend": True, "legend": LEGEND}
"""Layout of stacked bars."""


def hatch(shape: str, *, size: int, solidity: float) -> dict[str, Any]:
    """Return a pattern of dark lines over the color of a bar.

    Args:
        shape: Lines, as Plotly names them.
        size: Distance of the lines, in pixels.
        solidity: Share of the area that they cover.
    """
    lines = {"fillmode": "overlay", "fgcolor": "rgba(0,0,0,0.35)"}
    return {"shape": shape, **lines, "size": size, "solidity": solidity}


MAX_BARS = 32
"""Maximum number of bars; half from each end."""


def keep_extremes(frame: pd.DataFrame, by: pd.Series, what: str) -> tuple[pd.DataFrame, str]:
    """Keep the rows with the smallest and largest values, in table order; also return a caption.

    Args:
        frame: The rows.
        by: The value of each row.
        what: Name of the value, for the caption.

    Returns:
        The rows and the caption; the caption is empty if no row was dropped.

    Example:
        >>> import pandas as pd
        >>> frame = pd.DataFrame({"rank": range(256), "idle_ns": range(256)})
        >>> shown, words = keep_extremes(frame, frame["idle_ns"], "idle time")
        >>> len(shown), words
        (32, ' Showing the 16 lowest and 16 highest of 256 by idle time.')
    """
    if len(frame) <= MAX_BARS:
        return frame, ""
    half = MAX_BARS // 2
    order = by.reset_index(drop=True).sort_values(kind="stable").index
    most = by.reset_index(drop=True).iloc[::-1].sort_values(kind="stable").index[-half:]  # ties: first rows
    least = [position for position in order if position not in set(most)][:half]
    words = f" Showing the {half} lowest and {half} highest of {len(frame):,} by {what}."
    return frame.iloc[sorted([*least, *most])].reset_index(drop=True), words


MAX_LIST = 200
"""Longer arrays are sent as base64."""


def pack(values: Sequence[float | None]) -> Any:
    """Encode numbers for a trace; missing values become null or NaN.

    Example:
        >>> pack([1, None])
        [1, None]
        >>> pack([0.0] * 1000)["dtype"]
        'f8'
    """
    if len(values) <= MAX_LIST:
        return list(values)
    array = np.array([np.nan if value is None else value for value in values], dtype="<f8")
    return {"dtype": "f8", "bdata": base64.b64encode(array.tobytes()).decode("ascii")}


def unpack(value: Any) -> list[float | None]:
    """Decode the output of `pack`, for drawing without Plotly.

    Example:
        >>> unpack(pack([1.5, None] + [0.0] * 300))[:2]
        [1.5, None]
    """
    if not isinstance(value, dict):
        return list(value)
    array = np.frombuffer(base64.b64decode(value["bdata"]), dtype="<f8")
    return [None if np.isnan(number) else float(number) for number in array]
