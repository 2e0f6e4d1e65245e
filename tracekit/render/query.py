"""Answers of `tracekit query`: the work of its process, and its output formats."""

from __future__ import annotations

import csv
import io
import json
import shutil
from collections.abc import Iterator, Sequence
from itertools import chain
from typing import Any, TypeAlias

from rich.cells import cell_len

from tracekit.errors import clean
from tracekit.export.query import Answer, Heading, ask, read
from tracekit.export.query_process import Query, serve
from tracekit.export.views import KNOWN, RUNS, cell, unit
from tracekit.render.cells import escape, grid, wrap_heading
from tracekit.render.layout import DEFAULT_LIMIT, SHOW_ALL, MeasuredColumn, layout_columns
from tracekit.runs.store import Store, locate
from tracekit.runs.text import plain

Rows: TypeAlias = Sequence[Sequence[Any]]
_BATCH = 10_000


def answer() -> None:
    """Answer a query in the process that `tracekit.export.query_process.run_query` started for it."""
    serve(read_texts)


def read_texts(query: Query) -> Iterator[str]:
    """Yield the answer to a query in pieces, in this process."""
    from tracekit.ingest.references import resolve

    statement = read(query.sql, KNOWN)
    table = query.output_format == "table"
    limit = DEFAULT_LIMIT if query.limit is None and table else query.limit or 0
    store = Store(locate(query.store))
    stored = store.readable() if query.all_runs or RUNS.name in statement.tables else []
    runs = stored if query.all_runs else []
    if not query.all_runs and statement.tables - {RUNS.name}:
        resolved = (resolve(store, reference) for reference in query.references or ("latest",))
        runs = list({run.path.resolve(): run for run in resolved}.values())
    with ask(
        statement,
        runs,
        store=stored,
        labelled=query.all_runs or len(query.references) > 1,
        limit=limit,
        seconds=query.seconds,
        memory_bytes=query.memory_bytes,
    ) as answer:
        if statement.explain and table:
            yield "\n".join(str(row[-1]) for row in answer.fetch(limit or 1_000)) + "\n"
        else:
            yield from pieces(answer, query.output_format, limit=limit)


def pieces(answer: Answer, output_format: str, *, limit: int = 0) -> Iterator[str]:
    """Render the rows of a query in pieces, without holding all rows in memory.

    Args:
        answer: The rows, with none fetched yet.
        output_format: One of `tracekit.cli.options.FORMATS`; or `lines`, for other programs: a line of JSON
            with the columns, one with the values of each row, and one that tells whether there are more.
        limit: Maximum rows, 0 for all; the same as of the query.
    """
    writers = {"json": _json, "csv": _csv, "markdown": _markdown, "lines": _lines, "table": _table}
    return writers[output_format](answer, limit)


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
    yield json.dumps([[heading.name, heading.type] for heading in answer.headings]) + "\n"
    for rows in _batches(answer, limit):
        yield "".join(json.dumps([plain(value) for value in row], allow_nan=False) + "\n" for row in rows)
    yield json.dumps(bool(limit and answer.fetch(1))) + "\n"


def _json(answer: Answer, limit: int) -> Iterator[str]:
    names = [heading.name for heading in answer.headings]
    columns = [
        {"name": heading.name, "type": heading.type, "unit": unit(heading.name)}
        for heading in answer.headings
    ]
    yield f'{{"schema": "tracekit.query/1", "columns": {json.dumps(columns)}, "rows": ['
    separator = ""
    for rows in _batches(answer, limit):
        yield separator + ", ".join(
            json.dumps(dict(zip(names, map(plain, row), strict=True)), allow_nan=False) for row in rows
        )
        separator = ", "
    yield f'], "more": {_more(answer, limit, limit)}}}\n'


def _csv(answer: Answer, limit: int) -> Iterator[str]:
    names = [[heading.name for heading in answer.headings]]
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
    rows = list(chain.from_iterable(_batches(answer, limit)))
    heads = tuple(escape(heading.name) for heading in answer.headings)
    sides = tuple("---" if text else "---:" for text in _text_columns(answer.headings, rows))
    yield grid(heads, [tuple(escape(cell(value)) for value in row) for row in rows], sides)
    if more := _more(answer, len(rows), limit):
        yield f"\n{more} more rows\n"


def _text_columns(headings: Sequence[Heading], rows: Rows) -> list[bool]:
    """Tell for each column whether it holds text, which is left-aligned."""
    return [any(isinstance(plain(row[place]), str) for row in rows) for place in range(len(headings))]


def _table(answer: Answer, limit: int) -> Iterator[str]:
    rows = list(chain.from_iterable(_batches(answer, limit)))
    if not rows:
        yield f"{', '.join(clean(heading.name) for heading in answer.headings)}\n(no rows)\n"
        return
    columns = []
    for place, (heading, words) in enumerate(
        zip(answer.headings, _text_columns(answer.headings, rows), strict=True)
    ):
        cells = [cell(row[place]) for row in rows]
        head = wrap_heading(clean(heading.name), max(map(cell_len, cells)))
        columns.append(MeasuredColumn(head, cells, words, prose=False, identifies=False))
    yield layout_columns(columns, shutil.get_terminal_size((120, 40)).columns)
    if more := _more(answer, len(rows), limit):
        yield f"{more:,} more row{'s' * (more != 1)}; {SHOW_ALL}\n"
