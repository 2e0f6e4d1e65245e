"""Tiles with key numbers, charts with theme and caption, and HTML attributes."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pandas as pd
from dash import Input, Output, State, dcc, html, no_update
from dash.development.base_component import Component

from tracekit.render import human
from tracekit.render.cells import plain

from ..figures.axis import COLORWAY
from ..figures.bars import bars, compose_bars
from ..site import Context, Site

Number = int | float
_MIN_CHANGE = 0.001
"""Smaller relative changes are shown as no change."""


@dataclass(frozen=True, kw_only=True)
class Tile:
    """A key number, or its range over devices, ranks or steps.

    Attributes:
        label: Name of the number.
        low: Minimum, exactly as the analysis reports it.
        high: Maximum.
        unit: As in `tracekit.analysis.Column`.
        note: Explanation below the value.
        wanted: `low` or `high` if one of them is better.
        href: Address of the page with details.
    """

    label: str
    low: Number
    high: Number
    unit: str
    note: str = ""
    wanted: str = ""
    href: str = ""

    @property
    def text(self) -> str:
        """The formatted value.

        Example:
            >>> Tile(label="step", low=1_000_000, high=2_000_000, unit="ns").text
            '1.00 to 2.00 ms'
        """
        low, high = human(self.low, self.unit), human(self.high, self.unit)
        if low == high:
            return low
        amount, _, unit = low.partition(" ")
        return f"{amount if high.endswith(f' {unit}') else low} to {high}"


def make_tiles(values: Iterable[Any], *, label: str, unit: str, **more: str) -> list[Tile]:
    """Create a tile with the minimum and maximum of values; none without values.

    Args:
        values: The values; missing ones are left out.
        label: Name of the number.
        unit: Unit of the values.
        more: Further fields of `Tile`.
    """
    numbers = [plain(value) for value in values if value is not None and value == value]
    return [Tile(label=label, low=min(numbers), high=max(numbers), unit=unit, **more)] if numbers else []


def describe_change(tile: Tile, base: Tile) -> tuple[str, str]:
    """Return the change from the baseline, and whether it is `better`, `worse` or neither (empty).

    Example:
        >>> old = Tile(label="step", low=100, high=100, unit="ns", wanted="low")
        >>> describe_change(Tile(label="step", low=90, high=90, unit="ns", wanted="low"), old)
        ('−10.0%', 'better')
    """
    is_share = tile.unit == "share"
    if tile.low != tile.high or base.low != base.high or not (is_share or base.low):
        return "", ""
    difference = tile.low - base.low
    change = abs(difference if is_share else difference / base.low)
    if change < _MIN_CHANGE:
        return "no change", ""
    grew = difference > 0
    verdict = "" if not tile.wanted else "better" if grew == (tile.wanted == "high") else "worse"
    return f"{'+' if grew else '−'}{100 * change:.1f}{' points' if is_share else '%'}", verdict


def show_tiles(tiles: Sequence[Tile], base: Sequence[Tile] = ()) -> list[Component]:
    """Show tiles, each with the baseline's value of the same label."""
    before = {tile.label: tile for tile in base}
    return [_show_tile(tile, before.get(tile.label)) for tile in tiles]


def _format_value(tile: Tile) -> str | list[Component | str]:
    """Format the value; do not break a range's upper bound from its unit."""
    low, to, high = tile.text.partition(" to ")
    return [f"{low}{to}", html.Span(high, className="tk-nowrap")] if to else tile.text


def _show_tile(tile: Tile, base: Tile | None) -> Component:
    label = dcc.Link(tile.label, href=tile.href) if tile.href else tile.label
    parts: list[Component] = [
        html.Dt(label, className="tk-tile-label"),
        html.Dd(_format_value(tile), className="tk-tile-value"),
    ]
    if tile.note:
        parts.append(html.Dd(tile.note, className="tk-tile-note"))
    if base is not None:
        text, verdict = describe_change(tile, base)
        change = f"{text}{', ' + verdict if verdict else ''}"
        marked = html.Span(change, className=f"tk-change tk-{verdict or 'same'}")
        compared: Any = [marked, f" vs. {base.text}"] if text else f"baseline {base.text}"
        parts.append(html.Dd(compared, className="tk-tile-base"))
    return html.Dl(parts, className="tk-tile")


def aria(**attributes: str) -> dict[str, Any]:
    """Return ARIA attributes with their HTML names.

    Example:
        >>> aria(label="Pages", hidden="true")
        {'aria-label': 'Pages', 'aria-hidden': 'true'}
    """
    return {f"aria-{name}": value for name, value in attributes.items()}


def data(**attributes: str) -> dict[str, Any]:
    """Return data attributes with their HTML names.

    Example:
        >>> data(key="o")
        {'data-key': 'o'}
    """
    return {f"data-{name}": value for name, value in attributes.items()}


HEIGHT = 320
STANDOFF = 8
"""Pixels between ticks and axis title."""
_INK = {False: ("#1f2328", "#d8dce1"), True: ("#e4e6e9", "#3b3f46")}
_CONFIG: Any = {
    "displaylogo": False,
    "responsive": True,
    "modeBarButtonsToRemove": ["select2d", "lasso2d", "toImage"],
}


def chart(context: Context, name: str, figure: dict[str, Any], *, caption: str) -> Component:
    """Show a figure with its caption and download buttons.

    Args:
        context: The current context.
        name: Id of the chart, unique on its page.
        figure: Figure from `dashboards.figures`.
        caption: One sentence.
    """
    shown = with_theme(figure, dark=context.dark)
    graph = dcc.Graph(
        id={"type": "chart", "page": context.view.page, "name": name},
        figure=shown,
        config=_CONFIG,
        className="tk-graph",
        style={"height": shown["layout"]["height"]},
    )
    pictures = [_picture(kind, f"{context.view.run}-{name}", caption) for kind in ("PNG", "SVG")]
    words = html.Figcaption([html.Span(caption), html.Span(pictures, className="tk-picture")])
    place = html.Div(graph, style={"minHeight": shown["layout"]["height"]})  # also while plotly loads
    return html.Figure([place, words], className="tk-chart")


def bar_chart(
    context: Context,
    name: str,
    labels: Iterable[Any],
    values: pd.Series[Any],
    unit: str = "ns",
    *,
    title: str,
    caption: str,
) -> list[Component]:
    """Show a column as bars, the first at the top; nothing without rows.

    Args:
        context: The current context.
        name: Id of the chart, unique on its page.
        labels: One label per bar; any text.
        values: One value per bar.
        unit: Unit of the values.
        title: What the values are, for the axis.
        caption: One sentence.
    """
    if values.empty:
        return []
    return [
        chart(
            context, name, bars(list(map(str, labels)), values.tolist(), unit, title=title), caption=caption
        )
    ]


def parts_chart(
    context: Context,
    name: str,
    labels: Iterable[Any],
    parts: Mapping[str, pd.Series[Any]],
    *,
    title: str,
    caption: str,
) -> list[Component]:
    """Show columns of times as stacked bars; nothing without rows.

    Args:
        context: The current context.
        name: Id of the chart, unique on its page.
        labels: One label per bar; any text.
        parts: One value per bar, by name of the part, in stacking order.
        title: What the values are, for the axis.
        caption: One sentence.
    """
    labels = list(map(str, labels))
    if not labels:
        return []
    times = {part: values.tolist() for part, values in parts.items()}
    return [chart(context, name, compose_bars(labels, times, "ns", title=title), caption=caption)]


def _picture(kind: str, name: str, caption: str) -> Component:
    data: dict[str, Any] = {"data-format": kind.lower(), "data-name": name}
    data |= aria(label=f"{kind}: {caption}")
    return html.Button(kind, type="button", title=f"Save chart as {kind}", **data)


def with_theme(figure: dict[str, Any], *, dark: bool) -> dict[str, Any]:
    """Add the theme's colors, fonts and margins; the figure's settings take precedence.

    Example:
        >>> with_theme({"data": [], "layout": {"height": 100}}, dark=True)["layout"]["height"]
        100
    """
    ink, grid = _INK[dark]
    axis = {"gridcolor": grid, "zerolinecolor": grid, "linecolor": grid, "automargin": True}
    layout = figure.get("layout", {})
    base = {
        "height": HEIGHT,
        "paper_bgcolor": "rgba(0,0,0,0)",
        "plot_bgcolor": "rgba(0,0,0,0)",
        "font": {"family": "system-ui, sans-serif", "size": 12, "color": ink},
        "colorway": list(COLORWAY),
        "margin": {"l": 48, "r": 16, "t": 16, "b": 36},
        "hoverlabel": {"align": "left", "font": {"family": "system-ui, sans-serif"}},
        "legend": {"orientation": "h", "y": 1.02, "yanchor": "bottom", "x": 0},
        "bargap": 0.25,
    }
    axes = {name: axis | _with_standoff(layout[name]) for name in layout if name[1:].startswith("axis")}
    return {
        "data": [_dark_bar_text(trace) for trace in figure["data"]],
        "layout": base | {"xaxis": axis, "yaxis": axis} | layout | axes,
    }


def _dark_bar_text(trace: dict[str, Any]) -> dict[str, Any]:
    """Use dark text inside bars, which is legible on every color of the palette."""
    if trace.get("type") != "bar" or "text" not in trace:
        return trace
    return {"insidetextfont": {"color": "#111"}} | trace


def _with_standoff(axis: dict[str, Any]) -> dict[str, Any]:
    """Keep the axis title clear of the ticks."""
    title = axis.get("title", {})
    return axis | {"title": {"standoff": STANDOFF} | title} if title.get("text") else axis


def connect_clicks(site: Site, page: str, name: str) -> None:
    """Open the address in a point's `customdata` when it is clicked.

    Args:
        site: The site, once per chart.
        page: Name of the page.
        name: Name of the chart.
    """

    @site.app.callback(
        Output("url", "href", allow_duplicate=True),
        Input({"type": "chart", "page": page, "name": name}, "clickData"),
        State("url", "pathname"),
        prevent_initial_call=True,
    )
    def visit(clicked: dict[str, Any] | None, path: str) -> Any:
        points = (clicked or {}).get("points") or [{}]
        href = points[0].get("customdata")
        is_local = isinstance(href, str) and href.startswith("/") and not href.startswith(("//", "/\\"))
        return href if is_local and path == f"/{page}" else no_update
