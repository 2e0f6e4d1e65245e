"""Tiles with key numbers, charts with theme and caption, and HTML attributes."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from dash import Input, Output, State, dcc, html, no_update
from dash.development.base_component import Component

from tracekit.render.cells import plain

from ..figures.axis import COLORWAY, unpack
from ..figures.pictures import draw_picture
from ..site import Context, Site
from .text import human, with_code

Number = int | float
_MIN_CHANGE = 0.001  # smaller relative changes are shown as no change


@dataclass(frozen=True, kw_only=True)
class Tile:
    """A key number, or its range over devices, ranks or steps."""

    label: str  # name of the number
    low: Number  # minimum, exactly as the analysis reports it
    high: Number  # maximum
    unit: str  # as in `tracekit.analysis.Column`
    note: str = ""  # explanation below the value
    wanted: str = ""  # `low` or `high` if one of them is better
    href: str = ""  # address of the page with details

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
    """Return the change from the baseline, and whether it is `better`, `worse` or neither (empty)."""
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


def _show_tile(tile: Tile, base: Tile | None) -> Component:
    label = dcc.Link(tile.label, href=tile.href) if tile.href else tile.label
    low, to, high = tile.text.partition(" to ")  # do not break the upper bound from its unit
    value: Any = [f"{low}{to}", html.Span(high, className="tk-nowrap")] if to else tile.text
    parts: list[Component] = [
        html.Dt(label, className="tk-tile-label"),
        html.Dd(value, className="tk-tile-value"),
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
_INK = {False: ("#1f2328", "#d8dce1"), True: ("#e4e6e9", "#3b3f46")}
_CONFIG: Any = {
    "displaylogo": False,
    "responsive": True,
    "modeBarButtonsToRemove": ["select2d", "lasso2d", "toImage"],
}


MAX_DRAWN = 800
"""Maximum bars and points of a picture; Plotly draws figures with more."""
MAX_CORNERS = 8_000
"""Maximum corners of all lines and areas of a picture, which the browser draws as few shapes."""


class Chart(Component):
    """Figure that `assets/charts.js` draws: as its picture, if any, until someone zooms, else with Plotly.

    Attributes are those of `dcc.Graph`, the `picture` as HTML, and the `label` of the figure.
    """

    _namespace, _type = "tracekit", "Chart"
    _prop_names = (  # type: ignore[assignment]
        "id",
        "figure",
        "config",
        "className",
        "style",
        "clickData",
        "picture",
        "label",
    )
    _valid_wildcard_attributes = ()  # type: ignore[assignment]


def chart(context: Context, name: str, figure: dict[str, Any], *, caption: str) -> Component:
    """Show a figure with its caption and download buttons.

    Args:
        context: The current context.
        name: Id of the chart, unique on its page.
        figure: Figure from `dashboards.figures`.
        caption: One sentence.
    """
    shown = with_theme(figure, dark=context.dark)
    height = {"height": shown["layout"]["height"]}
    picture = draw_picture(figure, label=caption) if _is_small(figure) else ""
    graph = Chart(
        id={"type": "chart", "page": context.view.page, "name": name},
        figure=shown,
        config=_CONFIG,
        className="tk-graph",
        style=height,
        picture=picture,
        label=caption,
    )
    pictures = []
    for kind in ("PNG", "SVG"):
        named = data(format=kind.lower(), name=f"{context.view.run}-{name}")
        named |= aria(label=f"{kind}: {caption}")
        pictures.append(html.Button(kind, type="button", title=f"Save chart as {kind}", **named))
    words = html.Figcaption([html.Span(with_code(caption)), html.Span(pictures, className="tk-picture")])
    # the room of a chart that is drawn later
    place = html.Div(graph, style={} if picture else {"minHeight": height["height"]})
    return html.Figure([place, words], className="tk-chart")


def _is_small(figure: dict[str, Any]) -> bool:
    """Return whether a figure has few bars and points, and few corners of lines, areas and cells."""
    drawn = corners = 0
    for trace in figure["data"]:
        if "z" in trace:
            corners += 4 * sum(map(len, trace["z"]))
            continue
        count = len(unpack(trace.get("x", [])))
        drawn += 0 if trace.get("mode") == "lines" else count
        corners += count
    return drawn <= MAX_DRAWN and corners <= MAX_CORNERS


def with_theme(figure: dict[str, Any], *, dark: bool) -> dict[str, Any]:
    """Add the theme's colors, fonts and margins; the figure's settings take precedence."""
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
    axes = {name: axis | layout[name] for name in layout if name[1:].startswith("axis")}
    for drawn in axes.values():
        if drawn.get("title", {}).get("text"):  # keep the title clear of the ticks, px
            drawn["title"] = {"standoff": 8} | drawn["title"]
    # dark text inside bars is legible on every color of the palette
    inside = {"insidetextfont": {"color": "#111"}}
    traces = [
        inside | trace if trace.get("type") == "bar" and "text" in trace else trace
        for trace in figure["data"]
    ]
    return {"data": traces, "layout": base | {"xaxis": axis, "yaxis": axis} | layout | axes}


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
