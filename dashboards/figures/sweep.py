"""Sweeps as lines, grouped bars, cumulative shares, metrics over commits, and measured effects."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import Any, TypeAlias

from tracekit.analysis.savings import Trial
from tracekit.runs.run import Run

from ..components.text import human
from . import axis
from .bars import bars, vertical_line

_MARKS = ("circle", "square", "diamond", "triangle-up", "x", "cross", "star", "hexagon")
_DASHES = ("solid", "dash", "dot", "dashdot")


@dataclass(frozen=True)
class Spread:
    """Median, minimum and maximum of the repeats at one setting, with the runs, lowest first."""

    x: Any
    median: float
    minimum: float
    maximum: float
    runs: tuple[Run, ...]
    typical: Run


Series: TypeAlias = "Sequence[tuple[str, Sequence[Spread]]]"
"""Names and points of lines."""


def lines(
    series: Series, unit: str, *, x: str, y: str, href: Callable[[Run], str], log: bool = True
) -> dict[str, Any]:
    """Draw a quantity over a setting; whiskers span the repeats.

    Args:
        series: Lines, at least one of them with a point.
        unit: Unit of the quantity.
        x: Title of the axis of the setting.
        y: Title of the quantity.
        href: Address to open when the point of a run is clicked.
        log: Whether to use a logarithmic axis for positive numbers.
    """
    flat = [value for _, dots in series for dot in dots for value in (dot.median, dot.minimum, dot.maximum)]
    factor, scale = axis.scale_factor(flat, unit)
    traces = [
        _line(name, dots, unit, factor, place) | {"customdata": [href(dot.typical) for dot in dots]}
        for place, (name, dots) in enumerate(series)
    ]
    values = list({repr(dot.x): dot.x for _, dots in series for dot in dots}.values())
    return {
        "data": traces,
        "layout": {
            "height": 420,
            "showlegend": len(series) > 1,
            "hovermode": "closest",
            "xaxis": {"title": {"text": axis.shorten_label(x)}, **_ticks(values, log=log)},
            "yaxis": {
                "title": {"text": f"{axis.shorten_label(y)} ({scale})"},
                "rangemode": "tozero",
                "automargin": True,
            },
        },
    }


def _line(name: str, dots: Sequence[Spread], unit: str, factor: float, place: int) -> dict[str, Any]:
    places = ["unknown" if dot.x is None else dot.x for dot in dots]
    texts = []
    for x, dot in zip(places, dots, strict=True):
        median, low, high = axis.format_values((dot.median, dot.minimum, dot.maximum), unit)
        runs = f"{len(dot.runs)} run{'s' * (len(dot.runs) != 1)}"
        texts.append(f"{axis.hover_name(str(x))}: {median}<br>{low} to {high}, {runs}")
    return {
        "type": "scatter",
        "mode": "lines+markers",
        "name": axis.shorten_label(name, 64),
        "x": [x if _number(x) else axis.shorten_label(str(x)) for x in places],
        "y": [dot.median * factor for dot in dots],
        "error_y": {
            "type": "data",
            "symmetric": False,
            "array": [(dot.maximum - dot.median) * factor for dot in dots],
            "arrayminus": [(dot.median - dot.minimum) * factor for dot in dots],
            "thickness": 1,
            "width": 4,
        },
        "marker": {"symbol": _MARKS[place % len(_MARKS)], "size": 8},
        "line": {"dash": _DASHES[place // len(_MARKS) % len(_DASHES)]},
        **axis.hover([name] * len(dots), texts),
    }


def _number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _ticks(values: Sequence[Any], *, log: bool) -> dict[str, Any]:
    if not all(_number(value) for value in values):
        return {"type": "category"}
    ticks = sorted(values)
    logarithmic = log and ticks[0] > 0
    return {
        "type": "log" if logarithmic else "linear",
        **({"tickvals": ticks, "ticktext": [f"{tick:g}" for tick in ticks]} if len(ticks) <= 24 else {}),
    }


def group_bars(
    names: Sequence[str],
    values: Sequence[float | None],
    unit: str,
    *,
    groups: Sequence[str],
    kinds: Mapping[str, str],
    title: str = "",
) -> dict[str, Any]:
    """Draw horizontal bars with a color and pattern per group, the first at the top.

    Args:
        names: One label per bar; any text.
        values: One value per bar.
        unit: Unit of the values.
        groups: Group of each bar.
        kinds: Colors of all groups that there can be, so that each has its own wherever it is drawn.
        title: Axis title.
    """
    x, _ = axis.scale_values(values, unit)
    written = axis.format_values(values, unit)
    traces = [
        {
            "type": "bar",
            "orientation": "h",
            "name": group,
            "x": [x[index] for index in members],
            "y": members,
            "text": [written[index] for index in members],
            "textposition": "auto",
            **axis.hover(
                [names[index] for index in members], [f"{written[index]}<br>{group}" for index in members]
            ),
            # a fixed part of a row: Plotly would otherwise compute a width per trace
            "width": 0.75,
            "marker": {
                "color": kinds[group],
                "pattern": axis.hatch(("", "/", "x", ".")[place % 4], size=8, solidity=0.15),
            },
        }
        for place, group in enumerate(kinds)
        for members in [[index for index, group_of_bar in enumerate(groups) if group_of_bar == group]]
        if members
    ]
    layout = bars(names, values, unit, title=title)["layout"]
    # also where all bars are of one group: the reader must know of which
    return {"data": traces, "layout": layout | {"barmode": "overlay", "showlegend": len(kinds) > 1}}


FEW_ITEMS = 5
"""So many items have a tick each: ticks between them would be halves of items."""


def cumulative(shares: Sequence[float], names: Sequence[str], *, what: str) -> dict[str, Any]:
    """Draw the cumulative share, largest first.

    Args:
        shares: Share of each, from 0 to 1, descending.
        names: Name of each.
        what: Name of the items, in the plural.
    """
    upward = [100 * value for value in accumulate(shares)]
    hover = [
        f"first {count} of {len(shares)} {what}: {value:.1f}%<br>with {axis.hover_name(name)}"
        for count, (value, name) in enumerate(zip(upward, names, strict=True), start=1)
    ]
    trace = {
        "type": "scatter",
        "mode": "lines+markers" if len(shares) <= 60 else "lines",
        "x": axis.pack([float(count) for count in range(1, len(shares) + 1)]),
        "y": axis.pack(upward),
        "hovertext": hover,
        "hoverinfo": "text",
        "line": {"shape": "linear", "width": 2},
    }
    x_axis: dict[str, Any] = {
        "title": {"text": f"number of {what}, largest first"},
        "rangemode": "tozero",
        **({"dtick": 1} if len(shares) <= FEW_ITEMS else {}),
    }
    y_axis = {"title": {"text": "cumulative share (%)"}, "range": [0, 103]}
    return {"data": [trace], "layout": {"xaxis": x_axis, "yaxis": y_axis}}


MAX_TICKS = 30
"""Maximum commits named on the axis."""


@dataclass(frozen=True)
class Commit:
    """A commit, or uncommitted changes on top of one."""

    name: str  # short SHA, with + for uncommitted changes
    details: str  # hover text
    values: tuple[float, ...]  # value of each run
    median: float  # median of the values
    hrefs: tuple[str, ...]  # addresses of the runs
    colors: tuple[str, ...]  # colors of the runs
    # whether there were uncommitted changes; drawn as open marks and not part of the line
    dirty: bool = False
    mark: str = ""  # label of a significant change from the previous commit; empty for none
    level: float | None = None  # level of the stretch of the history between two steps; None if unknown


def over_commits(commits: Sequence[Commit], unit: str, *, title: str) -> dict[str, Any]:
    """Draw a metric over commits, the oldest at the left.

    Args:
        commits: Commits in order.
        unit: Unit of the metric.
        title: Its name.
    """
    factor, scale = axis.scale_factor([value for commit in commits for value in commit.values], unit)
    tick_step = max(1, -(-len(commits) // MAX_TICKS))
    places = range(0, len(commits), tick_step)
    marked = [(place, commit.mark) for place, commit in enumerate(commits) if commit.mark]
    anchor = {"xref": "x", "y": 1, "yref": "paper", "yanchor": "top", "xanchor": "left"}
    return {
        "data": [
            _medians(commits, unit, factor),
            _runs(commits, unit, factor, dirty=False),
            *([_runs(commits, unit, factor, dirty=True)] if any(commit.dirty for commit in commits) else []),
            *_levels(commits, unit, factor),
        ],
        "layout": {
            "height": 400,
            "hovermode": "closest",
            "showlegend": True,
            "margin": {"l": 48, "r": 16, "t": 40, "b": 80 if len(commits) > 8 else 40},
            "xaxis": {
                "tickvals": list(places),
                "ticktext": [axis.shorten_label(commits[place].name, 14) for place in places],
                "tickangle": -45 if len(commits) > 8 else 0,
                "range": [-0.5, len(commits) - 0.5],
            },
            "yaxis": {
                "title": {"text": f"{axis.shorten_label(title)} ({scale})"},
                "rangemode": "tozero",
                "automargin": True,
            },
            "shapes": [vertical_line(place - 0.5) for place, _ in marked],
            "annotations": [
                anchor | {"x": place - 0.5, "text": axis.shorten_label(text), "showarrow": False}
                for place, text in marked
            ],
        },
    }


def _medians(commits: Sequence[Commit], unit: str, factor: float) -> dict[str, Any]:
    clean = [(place, commit) for place, commit in enumerate(commits) if not commit.dirty]
    return {
        "type": "scatter",
        "mode": "lines+markers",
        "name": "median per commit",
        "x": [place for place, _ in clean],
        "y": [commit.median * factor for _, commit in clean],
        "line": {"width": 1.5},
        "marker": {"symbol": "line-ew-open", "size": 16, "line": {"width": 3}},
        **axis.hover(
            [commit.details for _, commit in clean],
            [f"median {human(commit.median, unit)} of {len(commit.values)}" for _, commit in clean],
        ),
    }


def _levels(commits: Sequence[Commit], unit: str, factor: float) -> list[dict[str, Any]]:
    """Draw the levels between steps as one broken line; nothing without a step."""
    known = [
        (place, commit, commit.level) for place, commit in enumerate(commits) if commit.level is not None
    ]
    if len({level for *_, level in known}) < 2:
        return []
    return [
        {
            "type": "scatter",
            "mode": "lines",
            "name": "level between steps",
            "x": [place for place, *_ in known],
            "y": [level * factor for *_, level in known],
            "line": {"width": 2, "dash": "dash", "shape": "hvh"},
            **axis.hover([commit.details for _, commit, _ in known], [human(at, unit) for *_, at in known]),
        }
    ]


def _runs(commits: Sequence[Commit], unit: str, factor: float, *, dirty: bool) -> dict[str, Any]:
    drawn = [(place, commit) for place, commit in enumerate(commits) if commit.dirty == dirty]
    values = [value for _, commit in drawn for value in commit.values]
    details = [commit.details for _, commit in drawn for _ in commit.values]
    return {
        "type": "scatter",
        "mode": "markers",
        "name": "run with uncommitted changes" if dirty else "run",
        "x": [place for place, commit in drawn for _ in commit.values],
        "y": [value * factor for value in values],
        "marker": {
            "symbol": "circle-open" if dirty else "circle",
            "size": 8,
            "opacity": 0.8,
            "color": [color for _, commit in drawn for color in commit.colors],
        },
        "customdata": [href for _, commit in drawn for href in commit.hrefs],
        **axis.hover(details, axis.format_values(values, unit)),
    }


def draw_effects(trials: Sequence[Trial]) -> dict[str, Any]:
    """Draw the measured change of the step time of each trial with its interval, the first one on top."""
    names = [trial.change for trial in trials]
    bounds = [trial.ci95 or (trial.ratio, trial.ratio) for trial in trials]
    changes = [100 * (trial.ratio - 1) for trial in trials]
    trace = {
        "type": "scatter",
        "mode": "markers",
        "x": changes,
        "y": list(range(len(names))),
        "marker": {"size": 8},
        "error_x": {
            "type": "data",
            "symmetric": False,
            "array": [100 * (high - trial.ratio) for trial, (_, high) in zip(trials, bounds, strict=True)],
            "arrayminus": [100 * (trial.ratio - low) for trial, (low, _) in zip(trials, bounds, strict=True)],
        },
        **axis.hover(names, [f"{trial.status}, {trial.effect}" for trial in trials]),
    }
    return {
        "data": [trace],
        "layout": {
            "height": 110 + 30 * len(names),
            "xaxis": {"title": {"text": "change of the step time (%)"}},
            "yaxis": axis.row_axis(names) | {"showgrid": False, "zeroline": False},
            "shapes": [vertical_line(0)],
        },
    }
