"""Tables as CSV with exact values; cells that look like spreadsheet formulas are quoted."""

from __future__ import annotations

import csv
import io
import zipfile
from typing import TYPE_CHECKING, Any

from tracekit.render.cells import clean
from tracekit.render.data import records

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    import pandas as pd

    from tracekit.analysis import Column, TableSpec

_FORMULA = ("=", "+", "-", "@")
_ROWS = 10_000


def safe(value: Any) -> Any:
    """Return a CSV cell; text that a spreadsheet would evaluate is quoted.

    Example:
        >>> safe("=1+1"), safe(-1), safe(None), safe("aten::mm")
        ("'=1+1", -1, None, 'aten::mm')
    """
    if value is None or isinstance(value, bool | int | float):
        return value
    text = clean(str(value))
    return f"'{text}" if text.lstrip().startswith(_FORMULA) else text


def sheet(frame: pd.DataFrame, columns: Sequence[Column]) -> Iterator[str]:
    """Yield the table as CSV in chunks."""
    yield _lines([[safe(column.name) for column in columns]])
    for start in range(0, len(frame), _ROWS):
        rows = records(frame.iloc[start : start + _ROWS], columns)
        yield _lines([[safe(value) for value in row.values()] for row in rows])


def _lines(rows: list[list[Any]]) -> str:
    stream = io.StringIO()
    csv.writer(stream, lineterminator="\n").writerows(rows)
    return stream.getvalue()


def archive(tables: Mapping[str, tuple[TableSpec, pd.DataFrame]]) -> bytes:
    """Return a zip with one CSV per table; the keys are the file stems."""
    stream = io.BytesIO()
    with zipfile.ZipFile(stream, "w", zipfile.ZIP_DEFLATED) as files:
        for name, (spec, frame) in tables.items():
            with files.open(f"{name}.csv", "w") as file:
                for piece in sheet(frame, spec.columns):
                    file.write(piece.encode())
    return stream.getvalue()
