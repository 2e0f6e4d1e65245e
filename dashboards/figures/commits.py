"""A metric over commits: runs as points, a line through the medians, and marks at changes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from .axis import label, texts, whole

if TYPE_CHECKING:
    from collections.abc import Sequence

TICKS = 30
"""Maximum commits named on the axis."""


@dataclass(frozen=True)
class Commit:
    """A commit, or uncommitted changes on top of one.

    Attributes:
        name: Short SHA, with + for uncommitted changes.
        details: Hover text.
        values: Value of each run.
        median: Median of the values.
        hrefs: Addresses of the runs.
        dirty: Whether there were uncommitted changes; drawn as open marks and not part of the line.
        mark: Label of a significant change from the previous commit; empty for none.
    """

    name: str
    details: str
    values: tuple[float, ...]
    median: float
    hrefs: tuple[str, ...]
    dirty: bool = False
    mark: str = ""


def over_commits(commits: Sequence[Commit], unit: str, *, title: str) -> dict[str, Any]:
    """Draw a metric over commits, the oldest at the left.

    Args:
        commits: Commits in order.
        unit: Unit of the metric.
        title: Its name.
    """
    factor, scale = _scale([value for one in commits for value in one.values], unit)
    every = max(1, -(-len(commits) // TICKS))
    places = range(0, len(commits), every)
    marked = [(at, one.mark) for at, one in enumerate(commits) if one.mark]
    return {
        "data": [
            _medians(commits, unit, factor),
            _runs(commits, unit, factor, dirty=False),
            *([_runs(commits, unit, factor, dirty=True)] if any(one.dirty for one in commits) else []),
        ],
        "layout": {
            "height": 400,
            "hovermode": "closest",
            "showlegend": True,
            "margin": {"l": 48, "r": 16, "t": 40, "b": 80 if len(commits) > 8 else 40},
            "xaxis": {
                "tickvals": list(places),
                "ticktext": [label(commits[at].name, 14) for at in places],
                "tickangle": -45 if len(commits) > 8 else 0,
                "range": [-0.5, len(commits) - 0.5],
            },
            "yaxis": {
                "title": {"text": f"{label(title)} ({scale})"},
                "rangemode": "tozero",
                "automargin": True,
            },
            "shapes": [_line(at) for at, _ in marked],
            "annotations": [_note(at, text) for at, text in marked],
        },
    }


def _scale(values: Sequence[float], unit: str) -> tuple[float, str]:
    from .axis import scaled

    largest = max(values, default=0.0)
    (shown,), name = scaled([largest], unit)
    return ((shown or 0.0) / largest if largest else 1.0), name


def _medians(commits: Sequence[Commit], unit: str, factor: float) -> dict[str, Any]:
    clean = [(at, one) for at, one in enumerate(commits) if not one.dirty]
    values_text = texts((one.median for _, one in clean), unit)
    return {
        "type": "scatter",
        "mode": "lines+markers",
        "name": "median per commit",
        "x": [at for at, _ in clean],
        "y": [one.median * factor for _, one in clean],
        "line": {"width": 1.5},
        "marker": {"symbol": "line-ew-open", "size": 16, "line": {"width": 3}},
        "hovertext": [
            f"{whole(one.details)}<br>median {text} of {len(one.values)}"
            for (_, one), text in zip(clean, values_text, strict=True)
        ],
        "hoverinfo": "text",
    }


def _runs(commits: Sequence[Commit], unit: str, factor: float, *, dirty: bool) -> dict[str, Any]:
    points = [
        (at, one, value, href)
        for at, one in enumerate(commits)
        if one.dirty == dirty
        for value, href in zip(one.values, one.hrefs, strict=True)
    ]
    values_text = texts((value for _, _, value, _ in points), unit)
    return {
        "type": "scatter",
        "mode": "markers",
        "name": "run with uncommitted changes" if dirty else "run",
        "x": [at for at, _, _, _ in points],
        "y": [value * factor for _, _, value, _ in points],
        "marker": {"symbol": "circle-open" if dirty else "circle", "size": 8, "opacity": 0.8},
        "customdata": [href for _, _, _, href in points],
        "hovertext": [
            f"{whole(one.details)}<br>{text}"
            for (_, one, _, _), text in zip(points, values_text, strict=True)
        ],
        "hoverinfo": "text",
    }


def _line(at: int) -> dict[str, Any]:
    place = {"xref": "x", "x0": at - 0.5, "x1": at - 0.5, "yref": "paper", "y0": 0, "y1": 1}
    return {"type": "line", **place, "line": {"dash": "dot", "width": 1.5, "color": "#868e96"}}


def _note(at: int, text: str) -> dict[str, Any]:
    place = {"x": at - 0.5, "xref": "x", "y": 1, "yref": "paper", "yanchor": "top", "xanchor": "left"}
    return {**place, "text": label(text), "showarrow": False}
