"""Fields of a row with formatted values."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pyarrow.compute as pc

from tracekit.render import human
from tracekit.schema import TABLES, C

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tracekit.run import Run

UNITS = {
    C.START_NS: "ns",
    C.DUR_NS: "ns",
    C.BYTES: "bytes",
    C.STATIC_SHARED_BYTES: "bytes",
    C.DYNAMIC_SHARED_BYTES: "bytes",
    C.FLOPS: "FLOP",
    C.OCCUPANCY_PCT: "%",
}
"""Units of columns; all others are names or ids."""


def row(run: Run, table: str, number: int) -> dict[str, Any] | None:
    """Return a row, or None if it does not exist. `steps` has no row ids; rows are numbered."""
    if table == "steps":
        found = run.arrow(table).slice(number, 1) if 0 <= number < run.rows(table) else None
    else:
        found = run.arrow(table, where=pc.field(C.ROW_ID) == number)
    records = found.to_pylist() if found is not None else []
    return records[0] if records else None


def described(table: str, values: dict[str, Any]) -> dict[str, dict[str, Any]]:
    """Return value, unit, text and meaning of each field, in schema order.

    Example:
        >>> fields = described("steps", {C.RANK: 0, C.STEP: 3, C.NAME: "s", C.START_NS: 1500, C.DUR_NS: 9})
        >>> fields[C.START_NS]["value"], fields[C.START_NS]["text"]
        (1500, '1.50 µs')
    """
    return {
        column.name: {
            "value": values[column.name],
            "unit": UNITS.get(column.name, ""),
            "text": human(values[column.name], UNITS.get(column.name, "")),
            "meaning": column.meaning,
        }
        for column in TABLES[table].columns
    }


def some(run: Run, rows: Sequence[int], columns: Sequence[str]) -> dict[int, dict[str, Any]]:
    """Return columns of host rows, by row id."""
    found = run.arrow("host_intervals", columns=[C.ROW_ID, *columns], where=pc.field(C.ROW_ID).isin(rows))
    return {record[C.ROW_ID]: record for record in found.to_pylist()}
