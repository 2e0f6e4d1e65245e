"""Report model of the commands, and its writers for terminals and Markdown.

A command builds a list of blocks and knows nothing of the formats; the writers know nothing of commands.
"""

from __future__ import annotations

import re
import shutil
import textwrap
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeAlias

from tracekit.analysis import Column
from tracekit.errors import clean
from tracekit.render.cells import code, escape, markdown_text
from tracekit.render.layout import ALL_COLUMNS, table_text
from tracekit.runs.text import shorten

Shown: TypeAlias = tuple[Column, Callable[[Any], Any]]
"""A column, and the function that returns its value for an item."""


@dataclass(frozen=True)
class Table:
    """Rows by column name, and the columns to show, most important first."""

    name: str
    title: str
    columns: tuple[Column, ...]
    rows: list[dict[str, Any]] = field(default_factory=list)

    @classmethod
    def of(cls, name: str, title: str, items: Iterable[Any], *columns: Shown) -> Table:
        """Create a table with a row per item.

        Args:
            name: Name of the table.
            title: Line above it.
            items: What the rows show.
            columns: The columns, and what each shows of an item.
        """
        rows = [{column.name: value(item) for column, value in columns} for item in items]
        return cls(name, title, tuple(column for column, _ in columns), rows)


@dataclass(frozen=True)
class Command:
    """A command to run next, as a list item: what it does, and its line."""

    label: str
    line: str


@dataclass(frozen=True)
class Raw:
    """Lines, or what makes them, that each format has in its own form; without any, it omits the block."""

    text: str | Callable[[], str] = ""
    markdown: str | Callable[[], str] = ""


@dataclass(frozen=True)
class Heading:
    """Title of a report; Markdown adds the sign, and a terminal wraps it to the width, if any."""

    title: str
    sign: str = ""
    lines: Sequence[str] = ()
    width: int = 0


@dataclass(frozen=True)
class Items:
    """Statements and commands, one per line: a list in Markdown."""

    lines: Sequence[str | Command]  # the statements and commands
    title: str = ""  # line above them on a terminal
    prefix: str = ""  # start of each statement in Markdown
    indent: str = "  "  # start of each line on a terminal
    width: int = 0  # width to which lines wrap on a terminal, in cells; 0 for no wrapping
    max_items: int = 0  # maximum items in Markdown, 0 for all
    max_chars: int = 0  # maximum characters of a statement in Markdown, 0 for all


@dataclass(frozen=True)
class TableBlock:
    """A table."""

    table: Table
    limit: int = 0  # maximum rows, 0 for all
    all_columns: str = ALL_COLUMNS  # how to see all columns, printed on a terminal if columns do not fit
    max_chars: int = 0  # maximum characters of a cell in Markdown, 0 for all


@dataclass(frozen=True)
class Commands:
    """Commands to run next; Markdown repeats the title before each, and has a maximum of them (0 for all)."""

    title: str
    lines: Sequence[str]
    max_items: int = 0


@dataclass(frozen=True)
class Fold:
    """Blocks that Markdown folds under a title."""

    title: str
    blocks: Sequence[Block]


Block = Raw | Heading | Items | TableBlock | Commands | Fold


def write(output_format: str, blocks: Sequence[Block]) -> str:
    """Render as `markdown`, else for a terminal, with an empty line between blocks."""
    return (write_markdown if output_format == "markdown" else write_text)(*blocks)


def write_text(*blocks: Block) -> str:
    """Render for a terminal, with an empty line between blocks."""
    return _join(blocks, _text)


def write_markdown(*blocks: Block) -> str:
    """Render as Markdown, with an empty line between blocks."""
    return _join(blocks, _markdown)


def _join(blocks: Sequence[Block], write: Callable[[Block], str]) -> str:
    return "\n".join(filter(None, map(write, blocks)))


def _text(block: Block) -> str:
    match block:
        case Raw(text=text):
            return text if isinstance(text, str) else text()
        case Heading():
            return _lines([block.title], "", block.width) + _lines(block.lines)
        case Items():
            title = f"{block.title}\n" if block.title and block.lines else ""
            lines = [
                f"{line.label}: {line.line}" if isinstance(line, Command) else line for line in block.lines
            ]
            return title + _lines(lines, block.indent, block.width)
        case TableBlock(table=table):
            layout = {"limit": block.limit, "all_columns": block.all_columns}
            return table_text(table.rows, table.columns, title=table.title, **layout)  # type: ignore[arg-type]
        case Commands():
            return _text(Items(block.lines, title=f"{block.title}:"))
        case Fold():
            return write_text(*block.blocks)


def _lines(lines: Sequence[str], indent: str = "  ", width: int = 0) -> str:
    if width:
        lines = [part for line in lines for part in _wrap(line, width, indent)]
        return "".join(f"{line}\n" for line in lines)
    return "".join(f"{indent}{clean(line)}\n" for line in lines)


def _markdown(block: Block) -> str:
    match block:
        case Raw(markdown=markdown):
            return markdown if isinstance(markdown, str) else markdown()
        case Heading():
            items = _markdown(Items(block.lines))
            return f"## {block.sign}{escape(block.title)}\n" + (f"\n{items}" if items else "")
        case Items():
            shown = block.lines[: block.max_items or None]
            more = len(block.lines) - len(shown)
            omitted = f"- {more} more in `--format json`\n" if more else ""
            return "".join(f"- {_item(line, block)}\n" for line in shown) + omitted
        case TableBlock(table=table):
            rows = [_shorten_row(row, block.max_chars) for row in table.rows]
            return markdown_text(rows, table.columns, title=table.title, limit=block.limit)
        case Commands():
            lines = block.lines[: block.max_items or None]
            return "\n".join(f"{block.title}: {code(line)}\n" for line in lines)
        case Fold():
            content = write_markdown(*block.blocks)
            title = f"<details><summary>{escape(block.title)}</summary>"
            return f"{title}\n\n{content}\n</details>\n" if content else ""


def _item(line: str | Command, items: Items) -> str:
    if isinstance(line, Command):
        return f"{line.label}: {code(line.line)}"
    return items.prefix + escape(shorten(line, items.max_chars) if items.max_chars else line)


def _shorten_row(row: dict[str, Any], width: int) -> dict[str, Any]:
    if not width:
        return row
    return {key: shorten(value, width) if isinstance(value, str) else value for key, value in row.items()}


def fence_commands(*commands: str) -> str:
    """Fence commands in Markdown so that their content cannot close the block."""
    longest = max(map(len, re.findall("`+", "\n".join(commands))), default=0)
    fence = "`" * max(3, longest + 1)
    return "\n".join([f"{fence}sh", *map(clean, commands), f"{fence}\n"])


def terminal_width(maximum: int = 0, *, default: int = 100) -> int:
    """Return the width of the terminal in cells, at most a maximum if given."""
    width = shutil.get_terminal_size((default, 40)).columns
    return min(width, maximum) if maximum else width


def _wrap(text: str, width: int, indent: str) -> list[str]:
    """Wrap text between words; further lines are indented by two more."""
    return textwrap.wrap(
        clean(text), width, initial_indent=indent, subsequent_indent=f"{indent}  ", break_on_hyphens=False
    )


MAX_BYTES = 60_000
"""Maximum size of Markdown, in bytes: GitHub refuses comments of more than 65,536 characters."""
_COUNT_BYTES = 200  # bytes reserved for the line that counts omitted blocks


def limit_bytes(required: Sequence[Block], optional: Sequence[Block], end: Block, *, elsewhere: str) -> str:
    """Render as Markdown of at most `MAX_BYTES`.

    Args:
        required: First blocks.
        optional: Blocks after them, omitted and counted if they do not fit.
        end: Last block.
        elsewhere: Where omitted blocks are.
    """
    room = MAX_BYTES - len(write_markdown(*required, end).encode()) - _COUNT_BYTES
    chosen, omitted = [], 0
    for text in filter(None, map(_markdown, optional)):
        if (needed := len(text.encode()) + 1) <= room:
            room -= needed
            chosen.append(Raw(markdown=text))
        else:
            omitted += 1
    count = f"{omitted} more section{'s' * (omitted != 1)} omitted; see {elsewhere}\n" if omitted else ""
    return write_markdown(*required, *chosen, Raw(markdown=count), end)
