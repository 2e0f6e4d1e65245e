"""Charts: a figure in the theme of the page, with a caption that says in words what it shows."""

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
"""Pixels between an axis' ticks and its title."""
_INK = {False: ("#1f2328", "#d8dce1"), True: ("#e4e6e9", "#3b3f46")}
_CONFIG: Any = {
    "displaylogo": False,
    "responsive": True,
    "modeBarButtonsToRemove": ["select2d", "lasso2d", "toImage"],
}


def chart(context: Context, name: str, figure: dict[str, Any], *, caption: str) -> Component:
    """A figure as it is shown.

    Args:
        context: What is looked at; gives the theme.
        name: Id of the chart, unique on its page.
        figure: From a function of `figures`.
        caption: What it shows, in a sentence; also its text for assistive technology.
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
    return html.Button(kind, type="button", title=f"Save this chart as {kind}", **data)


def themed(figure: dict[str, Any], *, dark: bool) -> dict[str, Any]:
    """The figure with the theme's colours, fonts and spaces; what the figure says itself stays.

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
    axes = {name: axis | _titled(layout[name]) for name in layout if name[1:].startswith("axis")}
    return {
        "data": [_written(trace) for trace in figure["data"]],
        "layout": base | {"xaxis": axis, "yaxis": axis} | layout | axes,
    }


def _written(trace: dict[str, Any]) -> dict[str, Any]:
    """The trace with dark text inside of its bars, which is legible on every colour of the palette."""
    if trace.get("type") != "bar" or "text" not in trace:
        return trace
    return {"insidetextfont": {"color": "#111"}} | trace


def _titled(axis: dict[str, Any]) -> dict[str, Any]:
    """The axis with its title clear of its ticks, however long these are; the margin grows with both."""
    title = axis.get("title", {})
    return axis | {"title": {"standoff": STANDOFF} | title} if title.get("text") else axis


def visits(site: Site, page: str, name: str) -> None:
    """Have a click on a point of a chart open the address that the point carries.

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
        own = isinstance(href, str) and href.startswith("/") and not href.startswith("//")
        return href if own and path == f"/{page}" else no_update
