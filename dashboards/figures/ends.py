"""The rows of a table that are furthest apart, where a bar for each would fill many screens."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import pandas as pd

MOST = 32
"""Bars at most; of more rows, half as many from each end."""


def ends(frame: pd.DataFrame, by: pd.Series, what: str) -> tuple[pd.DataFrame, str]:
    """Both ends of a table by a measure, in the table's order, and the sentence that says so.

    Args:
        frame: A row for each rank and device, say.
        by: The measure of each row.
        what: What the measure is, for the sentence.

    Returns:
        The frame and no words where it has no more than `MOST` rows.

    Example:
        >>> import pandas as pd
        >>> frame = pd.DataFrame({"rank": range(256), "idle_ns": range(256)})
        >>> shown, words = ends(frame, frame["idle_ns"], "idle time")
        >>> len(shown), words
        (32, ' Of 256, the 16 with the least and the 16 with the most idle time are shown.')
    """
    if len(frame) <= MOST:
        return frame, ""
    half = MOST // 2
    order = by.reset_index(drop=True).sort_values(kind="stable").index
    most = by.reset_index(drop=True).iloc[::-1].sort_values(kind="stable").index[-half:]  # lowest of equals
    least = [place for place in order if place not in set(most)][:half]
    words = f" Of {len(frame):,}, the {half} with the least and the {half} with the most {what} are shown."
    return frame.iloc[sorted([*least, *most])].reset_index(drop=True), words
