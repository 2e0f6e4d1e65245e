"""Tables with a row for each of many ranks, as people can read them: least, median and most, and whose."""

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
    Column("of", "", "what is measured"),
    Column("least", "", "least of all ranks", unit_in=C.UNIT),
    Column("least_rank", "", "rank that has it, the lowest of several"),
    Column("median", "", "the lower median", unit_in=C.UNIT),
    Column("most", "", "most of all ranks", unit_in=C.UNIT),
    Column("most_rank", "", "rank that has it, the lowest of several"),
    Column(C.UNIT, "", "unit of the values"),
)


def summary(
    frame: pd.DataFrame, columns: Sequence[Column], limit: int
) -> tuple[list[Record], list[Column]] | None:
    """What stands in a table of a row per rank, or per rank and a few other things; None for other tables.

    Args:
        frame: The table.
        columns: Its columns.
        limit: Rows that are shown at most.

    Returns:
        Rows and columns to show instead; a row for each of the first columns with a unit, as many as fit.
    """
    told = [column for column in columns if column.name not in _PLACES and not _is_row(column.name)]
    measures = [column for column in told if _measures(frame, column)]
    labels = [column.name for column in told if not column.unit and column not in measures]
    places = [name for name in _PLACES if name in frame]
    if C.ROW_ID in frame:  # each row is an event, though its rank may have no other in the table
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
    """Whether a column points to a row of the run, as to the longest gap: another one for each rank."""
    return name.endswith("_row")


def _measures(frame: pd.DataFrame, column: Column) -> bool:
    """Whether a column has values to compare; those without a unit that are no whole numbers have, too."""
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
        most = ranks[values == values.iloc[-1]].min()
        yield {
            "of": header(column),
            "least": values.iloc[0],
            "least_rank": ranks.iloc[0],
            "median": values.iloc[(len(known) - 1) // 2],
            "most": values.iloc[-1],
            "most_rank": most,
            C.UNIT: column.unit,
        }


def left_out(frame: pd.DataFrame, show_all: str) -> str:
    """What is said below: how many rows there are, and how to see them."""
    return f"{len(frame):,} rows of {frame[C.RANK].nunique():,} ranks in least, median and most; {show_all}\n"
