"""Charts: a figure in the theme of the page, with a caption that says in words what it shows."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from dash import dcc, html

from .figures.palette import COLORWAY

if TYPE_CHECKING:
    from dash.development.base_component import Component

    from .context import Context

HEIGHT = 320
_INK = {False: ("#1f2328", "#d8dce1"), True: ("#e4e6e9", "#3b3f46")}
_CONFIG = {
    "displaylogo": False,
    "responsive": True,
    "modeBarButtonsToRemove": ["select2d", "lasso2d"],
}


def chart(context: Context, name: str, figure: dict[str, Any], *, caption: str) -> Component:
    """A figure as it is shown.

    Args:
        context: What is looked at; gives the theme.
        name: Id of the chart, unique on its page.
        figure: From a function of `figures`.
        caption: What it shows, in a sentence; also its text for assistive technology.
    """
    config: Any = {**_CONFIG, "toImageButtonOptions": {"filename": f"{context.view.run}-{name}"}}
    shown = themed(figure, dark=context.dark)
    graph = dcc.Graph(
        id={"type": "chart", "page": context.view.page, "name": name},
        figure=shown,
        config=config,
        className="tk-graph",
        style={"height": shown["layout"]["height"]},
    )
    return html.Figure([graph, html.Figcaption(caption)], className="tk-chart")


def themed(figure: dict[str, Any], *, dark: bool) -> dict[str, Any]:
    """The figure with the theme's colours, fonts and spaces; what the figure says itself stays.

    Example:
        >>> themed({"data": [], "layout": {"height": 100}}, dark=True)["layout"]["height"]
        100
    """
    ink, grid = _INK[dark]
    axis = {"gridcolor": grid, "zerolinecolor": grid, "linecolor": grid}
    layout = figure.get("layout", {})
    base = {
        "height": HEIGHT,
        "paper_bgcolor": "rgba(0,0,0,0)",
        "plot_bgcolor": "rgba(0,0,0,0)",
        "font": {"family": "system-ui, sans-serif", "size": 12, "color": ink},
        "colorway": list(COLORWAY),
        "margin": {"l": 48, "r": 16, "t": 16, "b": 44},
        "hoverlabel": {"align": "left", "font": {"family": "system-ui, sans-serif"}},
        "legend": {"orientation": "h", "y": 1.02, "yanchor": "bottom", "x": 0},
        "bargap": 0.25,
    }
    axes = {name: axis | layout[name] for name in layout if name[1:].startswith("axis")}
    return {"data": figure["data"], "layout": base | {"xaxis": axis, "yaxis": axis} | layout | axes}
