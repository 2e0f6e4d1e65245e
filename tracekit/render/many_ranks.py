"""Summaries of tables with a row per rank: min, median and max, with their ranks."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tracekit.analysis import Column
from tracekit.render.headers import header
from tracekit.schema import C

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    import pandas as pd

    from tracekit.render.data import Record

MOST_GROUPS = 6
_PLACES = (C.RANK, C.DEVICE)
_SHOWN = (
    Column("of", "", "column of the table"),
    Column("min", "", "minimum over all ranks", unit_in=C.UNIT),
    Column("min_rank", "", "rank with the minimum, the lowest of several"),
    Column("median", "", "lower median", unit_in=C.UNIT),
    Column("max", "", "maximum over all ranks", unit_in=C.UNIT),
    Column("max_rank", "", "rank with the maximum, the lowest of several"),
    Column(C.UNIT, "", "unit of the values"),
)


def summary(
    frame: pd.DataFrame, columns: Sequence[Column], limit: int
) -> tuple[list[Record], list[Column]] | None:
    """Summarize a table with a row per rank, or per rank and a few labels; None for other tables.

    Args:
        frame: The table.
        columns: Its columns.
        limit: Maximum rows.

    Returns:
        Rows and columns to show instead; a row per column with a unit, up to the limit.
    """
    candidates = [column for column in columns if column.name not in _PLACES and not _is_row(column.name)]
    measures = [column for column in candidates if _measures(frame, column)]
    labels = [column.name for column in candidates if not column.unit and column not in measures]
    places = [name for name in _PLACES if name in frame]
    if C.ROW_ID in frame:  # each row is an event, even if it is its rank's only one
        return None
    if C.RANK not in places or not measures or frame.duplicated([*places, *labels]).any():
        return None
    groups = list(frame.groupby(labels, sort=True, observed=True, dropna=False)) if labels else [((), frame)]
    if len(groups) > MOST_GROUPS:
        return None
    each = max(1, limit // len(groups))
    rows = [
        {**dict(zip(labels, key, strict=True)), **row}
        for key, own in groups
        for row in _measured(own, measures[:each])
    ]
    return rows, [*(column for column in columns if column.name in labels), *_SHOWN]


def _is_row(name: str) -> bool:
    """Tell whether a column refers to a row of the run, which differs between ranks."""
    return name.endswith("_row")


def _measures(frame: pd.DataFrame, column: Column) -> bool:
    """Tell whether a column has values to compare: any with a unit, or floats without one."""
    from pandas.api.types import is_float_dtype

    if column.unit:
        return column.unit not in {"prose", "id"}
    return is_float_dtype(frame[column.name].dtype) and bool(frame[column.name].notna().any())


def _measured(own: pd.DataFrame, measures: Sequence[Column]) -> Iterator[Record]:
    for column in measures:
        known = own[own[column.name].notna()].sort_values([column.name, C.RANK], kind="stable")
        if known.empty:
            continue
        values, ranks = known[column.name], known[C.RANK]
        max_rank = ranks[values == values.iloc[-1]].min()
        yield {
            "of": header(column),
            "min": values.iloc[0],
            "min_rank": ranks.iloc[0],
            "median": values.iloc[(len(known) - 1) // 2],
            "max": values.iloc[-1],
            "max_rank": max_rank,
            C.UNIT: column.unit,
        }


def left_out(frame: pd.DataFrame, show_all: str) -> str:
    """Return the line below the summary: the number of rows, and how to see them."""
    return f"min, median and max of {len(frame):,} rows of {frame[C.RANK].nunique():,} ranks; {show_all}\n"
