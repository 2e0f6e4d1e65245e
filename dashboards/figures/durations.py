"""Step times: lines of one rank's measures, or one line per rank."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tracekit.render.data import plain
from tracekit.schema import C

from .axis import scaled
from .lines import lines

if TYPE_CHECKING:
    import pandas as pd

OWN = "own_ns"
MEASURES = {
    "after earlier steps": OWN,
    "on the host": "host_ns",
    "device busy": "device_busy_ns",
}
"""Lines of a single rank: name and column of `steps.steps`."""
OUTLIER = "warmup_outlier"


def durations(frame: pd.DataFrame) -> dict[str, Any]:
    """Draw step times; warm-up outliers are marked with a cross.

    Args:
        frame: `steps.steps`, of one rank or several.
    """
    ranks = sorted(frame[C.RANK].unique().tolist())
    steps = sorted(frame[C.STEP].unique().tolist())
    if len(ranks) == 1:
        series = {name: _values(frame, column, steps) for name, column in MEASURES.items()}
        series = _distinct(series)
    else:
        series = {f"rank {rank}": _values(frame[frame[C.RANK] == rank], OWN, steps) for rank in ranks}
    figure = lines(steps, series, "ns", title="step time", x_title="step")
    figure["data"] += _outlier_marks(frame, [value for values in series.values() for value in values])
    figure["layout"]["showlegend"] = True
    return figure


def _distinct(series: dict[str, list[float | None]]) -> dict[str, list[float | None]]:
    """Drop empty measures; draw equal ones once under both names."""
    distinct: dict[str, list[float | None]] = {}
    for name, values in series.items():
        same = next((known for known, others in distinct.items() if others == values), None)
        if same is not None:
            distinct = {f"{old} and {name}" if old == same else old: line for old, line in distinct.items()}
        elif any(values):
            distinct[name] = values
    return distinct


def _values(frame: pd.DataFrame, column: str, steps: list[int]) -> list[float | None]:
    known = dict(zip(frame[C.STEP].tolist(), map(plain, frame[column].astype(object)), strict=True))
    return [known.get(step) for step in steps]


def _outlier_marks(frame: pd.DataFrame, every: list[float | None]) -> list[dict[str, Any]]:
    """Draw the warm-up outliers on the scale of the lines."""
    outliers = frame[frame[OUTLIER].astype(bool)]
    if outliers.empty:
        return []
    values = outliers[OWN].tolist()
    at, _ = scaled([*every, *values], "ns")
    return [
        {
            "type": "scatter",
            "mode": "markers",
            "name": "warm-up outlier",
            "x": outliers[C.STEP].tolist(),
            "y": at[len(every) :],
            "marker": {"symbol": "x", "size": 11, "color": "#d55e00"},
            "hoverinfo": "skip",
        }
    ]
