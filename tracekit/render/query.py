"""Output formats of `tracekit query`."""

from __future__ import annotations

import csv
import io
import json
import shutil
from itertools import chain
from typing import TYPE_CHECKING, Any

from rich.cells import cell_len

from tracekit.errors import clean
from tracekit.export.views import cell, plain, unit
from tracekit.render.cells import escape, folded
from tracekit.render.layout import SHOW_ALL, Laid, lay_out

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from tracekit.export.query import Answer, Heading

    Rows = Sequence[Sequence[Any]]

_BATCH = 10_000


def pieces(answer: Answer, output_format: str, *, limit: int = 0) -> Iterator[str]:
    """Render the rows of a query in pieces, without holding all rows in memory.

    Args:
        answer: The rows, with none fetched yet.
        output_format: One of `tracekit.cli.options.FORMATS`.
        limit: Maximum rows, 0 for all; the same as of the query.
    """
    if output_format == "json":
        return _json(answer, limit)
    if output_format == "csv":
        return _csv(answer, limit)
    if output_format == "markdown":
        return _markdown(answer, limit)
    return _table(answer, limit)


def _batches(answer: Answer, limit: int) -> Iterator[Rows]:
    left = limit or None
    while left is None or left > 0:
        rows = answer.fetch(_BATCH if left is None else min(_BATCH, left))
        if not rows:
            return
        left = None if left is None else left - len(rows)
        yield rows


def _more(answer: Answer, shown: int, limit: int) -> int:
    return answer.count() - shown if limit and answer.fetch(1) else 0


def _json(answer: Answer, limit: int) -> Iterator[str]:
    names = [one.name for one in answer.headings]
    columns = [{"name": one.name, "type": one.type, "unit": unit(one.name)} for one in answer.headings]
    yield f'{{"schema": "tracekit.query/1", "columns": {json.dumps(columns)}, "rows": ['
    separator = ""
    for rows in _batches(answer, limit):
        yield separator + ", ".join(
            json.dumps(dict(zip(names, map(plain, row), strict=True)), allow_nan=False) for row in rows
        )
        separator = ", "
    yield f'], "more": {_more(answer, limit, limit)}}}\n'


def _csv(answer: Answer, limit: int) -> Iterator[str]:
    names = [[one.name for one in answer.headings]]
    for rows in chain([names], _batches(answer, limit)):
        stream = io.StringIO()
        csv.writer(stream, lineterminator="\n").writerows([map(_field, row) for row in rows])
        yield stream.getvalue()


def _field(value: Any) -> Any:
    converted = plain(value)
    if isinstance(converted, str):
        return clean(converted)
    return json.dumps(converted) if isinstance(converted, bool | list | dict) else converted


def _markdown(answer: Answer, limit: int) -> Iterator[str]:
    first = list(chain.from_iterable(_batches(answer, limit)))
    words = _words(answer.headings, first)
    yield _line([escape(one.name) for one in answer.headings])
    yield _line(["---" if word else "---:" for word in words])
    for row in first:
        yield _line([escape(cell(value)) for value in row])
    if more := _more(answer, len(first), limit):
        yield f"\n{more} more rows\n"


def _line(cells: list[str]) -> str:
    return f"| {' | '.join(cells)} |\n"


def _words(headings: Sequence[Heading], rows: Rows) -> list[bool]:
    """Tell for each column whether it holds text, which is left-aligned."""
    return [any(isinstance(plain(row[place]), str) for row in rows) for place in range(len(headings))]


def _table(answer: Answer, limit: int) -> Iterator[str]:
    rows = list(chain.from_iterable(_batches(answer, limit)))
    if not rows:
        yield f"{', '.join(clean(one.name) for one in answer.headings)}\n(no rows)\n"
        return
    laid = [
        _laid(clean(one.name), [cell(row[place]) for row in rows], words=words)
        for place, (one, words) in enumerate(zip(answer.headings, _words(answer.headings, rows), strict=True))
    ]
    yield lay_out(laid, shutil.get_terminal_size((120, 40)).columns)
    if more := _more(answer, len(rows), limit):
        yield f"{more:,} more row{'s' * (more != 1)}; {SHOW_ALL}\n"


def _laid(head: str, cells: list[str], *, words: bool) -> Laid:
    return Laid(folded(head, max(map(cell_len, cells))), cells, words, prose=False, identifies=False)
