"""How objects of tracekit appear in notebooks, and as pandas and Plotly objects."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import pandas as pd


class Displayed:
    """Adds a summary in HTML, which notebooks show, and conversions.

    The renderers are imported by name, when they are first needed: they know the objects, not the reverse.
    """

    __slots__ = ()

    def _repr_html_(self) -> str:
        """Return a summary without scripts, in the reader's light or dark theme."""
        text: str = import_module("tracekit.render.notebook").html(self)
        return text

    def to_pandas(self, table: str = "") -> pd.DataFrame:
        """Return a table as a DataFrame; times are integer nanoseconds.

        Args:
            table: Name of a table: of a run such as `steps`, of a result or a diff one of its tables. By
                default the steps of a run, the first table of a result, the causes of a diff, the
                outcomes of trials, and the fields of a finding.

        Raises:
            UnknownNameError: There is no such table.

        Example:
            >>> import tracekit
            >>> tracekit.analyze("latest", "ops").to_pandas()  # doctest: +SKIP
        """
        frame: pd.DataFrame = import_module("tracekit.render.notebook").to_pandas(self, table)
        return frame

    def plot(self, *, dark: bool = False) -> Any:
        """Return the dashboard's figure as a Plotly figure.

        Args:
            dark: Draw for a dark background.

        Raises:
            MissingDependencyError: The packages of the dashboard are not installed.
            UnusableInputError: There is nothing to draw.

        Example:
            >>> import tracekit
            >>> tracekit.analyze("latest", "idle_gaps").plot()  # doctest: +SKIP
        """
        return import_module("tracekit.render.notebook").plot(self, dark=dark)
