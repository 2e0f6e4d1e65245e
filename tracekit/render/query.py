"""Answers of `tracekit query`: the work of its process, and its output formats."""

from __future__ import annotations

import csv
import io
import json
import shutil
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager
from itertools import chain
from typing import TYPE_CHECKING, Any

from rich.cells import cell_len

from tracekit.errors import clean
from tracekit.export.bounded import serve
from tracekit.export.query import Answer, Heading, Limits, Statement, ask, read
from tracekit.export.views import KNOWN, RUNS, cell, plain, unit
from tracekit.render.cells import escape, folded
from tracekit.render.layout import DEFAULT_LIMIT, SHOW_ALL, Laid, lay_out
from tracekit.runs.run import Run
from tracekit.runs.store import Store, locate

if TYPE_CHECKING:
    Rows = Sequence[Sequence[Any]]

_BATCH = 10_000


def answer() -> None:
    """Answer a query in the process that `tracekit.export.bounded.query` started for it."""
    serve(_texts)


def _texts(request: dict[str, Any]) -> Iterator[str]:
    statement = read(request["sql"], KNOWN)
    limit, output_format = request["limit"], request["output_format"]
    most = DEFAULT_LIMIT if limit is None and output_format == "table" else limit or 0
    with _asked(request, statement, limit=most) as answered:
        if statement.explain and output_format == "table":
            yield "\n".join(str(row[-1]) for row in answered.fetch(most or 1_000)) + "\n"
            return
        yield from pieces(answered, output_format, limit=most)


def _asked(request: dict[str, Any], statement: Statement, *, limit: int) -> AbstractContextManager[Answer]:
    store, references, every = Store(locate(request["store"])), request["references"], request["every"]
    listed = store.readable() if every or RUNS.name in statement.tables else []
    runs = listed if every else _runs(store, references) if statement.tables - {RUNS.name} else []
    limits = Limits(seconds=request["seconds"], memory_bytes=request["memory_bytes"])
    several = every or len(references) > 1
    return ask(statement, runs, store=listed, labelled=several, limit=limit, limits=limits)


def _runs(store: Store, references: Sequence[str]) -> list[Run]:
    """Resolve the references to distinct runs."""
    from tracekit.ingest.references import resolve

    found = {run.path.resolve(): run for run in (resolve(store, one) for one in references or ("latest",))}
    return list(found.values())


def pieces(answer: Answer, output_format: str, *, limit: int = 0) -> Iterator[str]:
    """Render the rows of a query in pieces, without holding all rows in memory.

    Args:
        answer: The rows, with none fetched yet.
        output_format: One of `tracekit.cli.options.FORMATS`; or `lines`, for other programs: a line of JSON
            with the columns, one with the values of each row, and one that tells whether there are more.
        limit: Maximum rows, 0 for all; the same as of the query.
    """
    if output_format == "json":
        return _json(answer, limit)
    if output_format == "csv":
        return _csv(answer, limit)
    if output_format == "markdown":
        return _markdown(answer, limit)
    if output_format == "lines":
        return _lines(answer, limit)
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


def _lines(answer: Answer, limit: int) -> Iterator[str]:
    yield json.dumps([[one.name, one.type] for one in answer.headings]) + "\n"
    for rows in _batches(answer, limit):
        yield "".join(json.dumps([plain(value) for value in row], allow_nan=False) + "\n" for row in rows)
    yield json.dumps(bool(limit and answer.fetch(1))) + "\n"


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
