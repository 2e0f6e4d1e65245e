"""Charts: themed figures with captions."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from dash import Input, Output, State, dcc, html, no_update

from ..figures.palette import COLORWAY
from .aria import aria

if TYPE_CHECKING:
    from dash.development.base_component import Component

    from ..context import Context
    from ..site import Site

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
    shown = themed(figure, dark=context.dark)
    graph = dcc.Graph(
        id={"type": "chart", "page": context.view.page, "name": name},
        figure=shown,
        config=_CONFIG,
        className="tk-graph",
        style={"height": shown["layout"]["height"]},
    )
    pictures = [_picture(kind, f"{context.view.run}-{name}", caption) for kind in ("PNG", "SVG")]
    words = html.Figcaption([html.Span(caption), html.Span(pictures, className="tk-picture")])
    return html.Figure([graph, words], className="tk-chart")


def _picture(kind: str, name: str, caption: str) -> Component:
    data: dict[str, Any] = {"data-format": kind.lower(), "data-name": name}
    data |= aria(label=f"{kind}: {caption}")
    return html.Button(kind, type="button", title=f"Save chart as {kind}", **data)


def themed(figure: dict[str, Any], *, dark: bool) -> dict[str, Any]:
    """Add the theme's colours, fonts and margins; the figure's settings take precedence.

    Example:
        >>> themed({"data": [], "layout": {"height": 100}}, dark=True)["layout"]["height"]
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
    """Use dark text inside bars, which is legible on every colour of the palette."""
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
        href = (clicked or {}).get("points", [{}])[0].get("customdata")
        is_local = isinstance(href, str) and href.startswith("/") and not href.startswith("//")
        return href if is_local and path == f"/{page}" else no_update
