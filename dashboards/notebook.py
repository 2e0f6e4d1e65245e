"""Figures of the dashboard as Plotly figures, for notebooks."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import pandas as pd

from tracekit.analysis import TableSpec
from tracekit.errors import UnusableInputError

from .components.charts import with_theme
from .figures.lines import durations
from .figures.standard import Standard, first_figure

_STEPS = "steps"
_MIN_STEPS = 2


def draw(specs: Sequence[TableSpec], tables: Mapping[str, pd.DataFrame], *, dark: bool) -> Any:
    """Return the figure of the first table that has one.

    Args:
        specs: Specifications of the tables, most important first.
        tables: The tables by name.
        dark: Draw for a dark background.

    Raises:
        UnusableInputError: No table has values to compare.
    """
    import plotly.graph_objects as go

    times = tables.get(_STEPS)
    if times is not None and len(times) >= _MIN_STEPS and any(spec.name == _STEPS for spec in specs):
        figure: dict[str, Any] | None = durations(times)
    else:
        chosen = first_figure(specs, dict(tables))
        figure = _with_title(chosen) if chosen else None
    if figure is None:
        raise UnusableInputError("there is nothing to draw", hint="a figure compares two rows or more")
    return go.Figure(with_theme(figure, dark=dark))


def _with_title(chosen: Standard) -> dict[str, Any]:
    layout = {"title": {"text": chosen.caption}, **chosen.figure["layout"]}
    return chosen.figure | {"layout": layout}
