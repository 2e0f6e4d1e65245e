"""How long steps take, one by one: lines of one rank's measures, or one line per rank."""

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
"""What is drawn of one rank: name and column of `steps.steps`."""
OUTLIER = "warmup_outlier"


def durations(frame: pd.DataFrame) -> dict[str, Any]:
    """Step times by number of the step; warm-up outliers are crossed.

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
    figure["data"] += _crossed(frame, [value for values in series.values() for value in values])
    figure["layout"]["showlegend"] = True
    return figure


def _distinct(series: dict[str, list[float | None]]) -> dict[str, list[float | None]]:
    """The measures that have values; of those that are equal at every step the name of both, drawn once."""
    kept: dict[str, list[float | None]] = {}
    for name, values in series.items():
        same = next((known for known, others in kept.items() if others == values), None)
        if same is not None:
            kept = {f"{old} and {name}" if old == same else old: held for old, held in kept.items()}
        elif any(values):
            kept[name] = values
    return kept


def _values(frame: pd.DataFrame, column: str, steps: list[int]) -> list[float | None]:
    known = dict(zip(frame[C.STEP].tolist(), map(plain, frame[column].astype(object)), strict=True))
    return [known.get(step) for step in steps]


def _crossed(frame: pd.DataFrame, every: list[float | None]) -> list[dict[str, Any]]:
    """The warm-up outliers, on the scale of the lines."""
    odd = frame[frame[OUTLIER].astype(bool)]
    if odd.empty:
        return []
    values = odd[OWN].tolist()
    at, _ = scaled([*every, *values], "ns")
    return [
        {
            "type": "scatter",
            "mode": "markers",
            "name": "warm-up outlier",
            "x": odd[C.STEP].tolist(),
            "y": at[len(every) :],
            "marker": {"symbol": "x", "size": 11, "color": "#d55e00"},
            "hoverinfo": "skip",
        }
    ]
