"""A comparison of runs on a terminal."""

from __future__ import annotations

import shutil
import textwrap
from typing import TYPE_CHECKING

from tracekit.diff.model import Verdict
from tracekit.render import diff_tables as tables
from tracekit.render import diff_words as words
from tracekit.render.cells import clean
from tracekit.render.terminal import DEFAULT_LIMIT, table_text

if TYPE_CHECKING:
    from tracekit.diff.model import Diff
    from tracekit.render.diff_tables import Table

_FEW = 8


def as_text(diff: Diff, *, limit: int = DEFAULT_LIMIT) -> str:
    """For people: the verdict first, then ledgers and causes.

    Args:
        diff: The comparison.
        limit: Rows of a table at most, 0 for all.
    """
    head = [
        f"base  {clean(words.title(diff.base))}",
        f"head  {clean(words.title(diff.head))}",
        *_wrapped(words.headline(diff)),
        *_wrapped(words.comparable(diff)),
        *_wrapped(words.compared(diff)),
    ]
    parts = ["\n".join(head) + "\n"]
    if diff.verdict is Verdict.NOT_COMPARABLE:
        parts += [
            _table(tables.differences(diff), limit),
            "\n".join(_wrapped(words.how_to_declare(diff))) + "\n",
        ]
        return "\n".join(parts)
    parts += [_table(one, 0) for one in (*tables.metrics(diff), tables.wall(diff), tables.work(diff))]
    parts += [_causes(diff, limit)]
    parts += [
        _table(one, _few(limit))
        for one in (tables.counts(diff), tables.match(diff), tables.differences(diff))
        if one.rows
    ]
    parts += _said(diff)
    return "\n".join(parts)


def _few(limit: int) -> int:
    return min(limit, _FEW) if limit else 0


def _causes(diff: Diff, limit: int) -> str:
    if not diff.causes:
        return words.NOTHING_CHANGED + "\n"
    return _table(tables.causes(diff), limit)


def _table(table: Table, limit: int) -> str:
    return table_text(table.rows, table.columns, title=table.title, limit=limit)


def _said(diff: Diff) -> list[str]:
    """What the analyses say, and the warnings."""
    lines = []
    for analysis, result in diff.analyses:
        told = [
            f"{one.severity}: {clean(one.title)}: {clean(one.advice)} [{one.code}]" for one in result.findings
        ]
        told += [f"note: {note}" for note in result.notes]
        if told:
            wrapped = [line for text in told for line in _wrapped(text, indent="  ")]
            lines.append("\n".join([f"{clean(analysis.title)} [{analysis.name}]", *wrapped]) + "\n")
    if diff.warnings:
        warned = [line for text in diff.warnings for line in _wrapped(f"note: {text}")]
        lines.append("\n".join(warned) + "\n")
    return lines


def _wrapped(text: str, *, indent: str = "") -> list[str]:
    width = shutil.get_terminal_size((120, 40)).columns
    return textwrap.wrap(
        clean(text), width, initial_indent=indent, subsequent_indent=indent + "  ", break_on_hyphens=False
    )
