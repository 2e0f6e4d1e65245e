"""Limit a bar chart to the rows with the smallest and largest values."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import pandas as pd

MOST = 32
"""Maximum number of bars; half from each end."""


def ends(frame: pd.DataFrame, by: pd.Series, what: str) -> tuple[pd.DataFrame, str]:
    """Keep the rows with the smallest and largest values, in table order; also return a caption.

    Args:
        frame: The rows.
        by: The value of each row.
        what: Name of the value, for the caption.

    Returns:
        The rows and the caption; the caption is empty if no row was dropped.

    Example:
        >>> import pandas as pd
        >>> frame = pd.DataFrame({"rank": range(256), "idle_ns": range(256)})
        >>> shown, words = ends(frame, frame["idle_ns"], "idle time")
        >>> len(shown), words
        (32, ' Showing the 16 lowest and 16 highest of 256 by idle time.')
    """
    if len(frame) <= MOST:
        return frame, ""
    half = MOST // 2
    order = by.reset_index(drop=True).sort_values(kind="stable").index
    most = by.reset_index(drop=True).iloc[::-1].sort_values(kind="stable").index[-half:]  # ties: first rows
    least = [place for place in order if place not in set(most)][:half]
    words = f" Showing the {half} lowest and {half} highest of {len(frame):,} by {what}."
    return frame.iloc[sorted([*least, *most])].reset_index(drop=True), words
