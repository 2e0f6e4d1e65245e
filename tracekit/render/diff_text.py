"""Comparison of runs for a terminal."""

from __future__ import annotations

import shutil
import textwrap
from dataclasses import replace
from typing import TYPE_CHECKING

from tracekit.diff.model import Verdict
from tracekit.render import diff_tables as tables
from tracekit.render import diff_words as words
from tracekit.render.cells import PROSE, clean
from tracekit.render.terminal import DEFAULT_LIMIT, table_text

if TYPE_CHECKING:
    from tracekit.diff.model import Diff
    from tracekit.render.diff_tables import Table

_FEW = 8
_ROOMY = 110
_ALL_COLUMNS = "--format html shows all"


def as_text(diff: Diff, *, limit: int = DEFAULT_LIMIT) -> str:
    """Render the verdict, then ledgers and causes.

    Args:
        diff: The comparison.
        limit: Maximum rows per table, 0 for all.
    """
    head = [
        f"base  {clean(words.title(diff.base))}",
        f"head  {clean(words.title(diff.head))}",
        *_wrapped(words.headline(diff)),
    ]
    if diff.verdict is Verdict.NOT_COMPARABLE:
        parts = [_lines(head), _table(tables.differences(diff), limit)]
        command = f"  {clean(words.declaring(diff))}"  # in one line, to be copied
        return "\n".join([*parts, _lines([*_wrapped(words.next_step(diff)), command])])
    said = (words.comparable(diff), words.compared(diff), words.next_step(diff))
    parts = [_lines([*head, *(line for text in said for line in _wrapped(text))])]
    parts += [
        _table(tables.metrics(diff), 0),
        _wall(diff),
        _table(tables.work(diff), 0),
        _causes(diff, limit),
    ]
    parts += [
        _table(one, _few(limit))
        for one in (tables.counts(diff), tables.alone(diff), tables.match(diff), tables.differences(diff))
        if one.rows
    ]
    parts += _said(diff)
    return "\n".join(parts)


def _few(limit: int) -> int:
    return min(limit, _FEW) if limit else 0


def _lines(lines: list[str]) -> str:
    return "\n".join(lines) + "\n"


def _wall(diff: Diff) -> str:
    """Render the wall ledger; if definitions do not fit, only that of the overlap."""
    table = tables.wall(diff)
    if _width() >= _ROOMY or diff.wall is None:
        return _table(table, 0)
    columns = tuple(one for one in table.columns if one.unit != PROSE)
    joins = diff.wall.overlap
    apart = f"{joins.name}: {joins.meaning}; " if joins.a_ns or joins.b_ns else ""
    definitions = f"{apart}for definitions of the parts use --format html"
    return _table(replace(table, columns=columns), 0) + _lines(_wrapped(definitions))


def _causes(diff: Diff, limit: int) -> str:
    if not diff.causes:
        return words.NOTHING_CHANGED + "\n"
    return _table(tables.causes(diff), limit)


def _table(table: Table, limit: int) -> str:
    return table_text(table.rows, table.columns, title=table.title, limit=limit, all_columns=_ALL_COLUMNS)


def _said(diff: Diff) -> list[str]:
    """Render findings and notes of the analyses, and warnings."""
    lines = []
    for analysis, result in diff.analyses:
        texts = [
            f"{one.severity}: {clean(one.title)}: {clean(one.advice)} [{one.code}]" for one in result.findings
        ]
        texts += [f"note: {note}" for note in result.notes]
        if texts:
            wrapped = [line for text in texts for line in _wrapped(text, indent="  ")]
            lines.append("\n".join([f"{clean(analysis.title)} [{analysis.name}]", *wrapped]) + "\n")
    if diff.warnings:
        warned = [line for text in diff.warnings for line in _wrapped(f"note: {text}")]
        lines.append("\n".join(warned) + "\n")
    return lines


def _wrapped(text: str, *, indent: str = "") -> list[str]:
    return textwrap.wrap(
        clean(text), _width(), initial_indent=indent, subsequent_indent=indent + "  ", break_on_hyphens=False
    )


def _width() -> int:
    return shutil.get_terminal_size((120, 40)).columns
