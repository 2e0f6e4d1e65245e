"""Generated command reference, from the metadata of click."""

from __future__ import annotations

import re
from html import escape as html
from inspect import cleandoc
from typing import TYPE_CHECKING

import click

from tracekit.cli.main import cli
from tracekit.errors import ExitCode
from tracekit.render.cells import escape_prose, grid

if TYPE_CHECKING:
    from collections.abc import Iterator

FOLDER = "commands"
_RAW = "\b"
_MEANINGS = {
    ExitCode.OK: "success",
    ExitCode.REGRESSION: "regression",
    ExitCode.UNUSABLE: "wrong usage or unusable input",
    ExitCode.CANNOT_TELL: "inconclusive",
    ExitCode.NOT_COMPARABLE: "not comparable",
    ExitCode.NOTHING_MEASURED: "nothing was measured",
    ExitCode.INTERRUPTED: "interrupted",
}


def pages() -> dict[str, str]:
    """Return the pages of the reference: Markdown by path."""
    found = {one.info_name or "": one for one in _commands(_program())}
    return {f"{FOLDER}.md": _index(found)} | {
        f"{FOLDER}/{name}.md": "\n".join(_page(context)) for name, context in found.items()
    }


def walk() -> Iterator[click.Context]:
    """Every command, and every command of a group, in a context that knows its whole name."""
    for context in _commands(_program()):
        yield context
        yield from _commands(context)


def _program() -> click.Context:
    return click.Context(cli, info_name="tracekit")


def _commands(above: click.Context) -> Iterator[click.Context]:
    """The commands of a group; none of what is no group."""
    group = above.command
    if not isinstance(group, click.Group):
        return
    for name in group.list_commands(above):
        command = group.get_command(above, name)
        if command is not None and not command.hidden:
            yield click.Context(command, info_name=name, parent=above)


_INDEX = """\
# Commands

These pages have the same content as `--help`. Data goes to standard output, progress and messages to standard
error. `tracekit --debug COMMAND` adds the traceback to an error.

{commands}
## Exit codes

{codes}"""


def _index(found: dict[str, click.Context]) -> str:
    rows = [
        (f"[`tracekit {name}`]({FOLDER}/{name}.md)", escape_prose(one.command.get_short_help_str(200)))
        for name, one in found.items()
    ]
    codes = [(f"{int(code)}", _MEANINGS[code]) for code in ExitCode]
    return _INDEX.format(
        commands=grid(("command", "description"), rows), codes=grid(("code", "meaning"), codes)
    )


def _page(context: click.Context, level: int = 1) -> Iterator[str]:
    command = context.command
    yield f"{'#' * level} {context.command_path}\n"
    yield f"```text\n{context.command_path} {' '.join(command.collect_usage_pieces(context))}\n```\n"
    yield from map(_paragraph, _paragraphs(command.help or ""))
    options = [record for one in command.get_params(context) if (record := _option(one, context))]
    if options:
        yield f"{'#' * (level + 1)} Options\n"
        yield grid(("option", "meaning"), options)
    for each in _commands(context):
        yield from _page(each, level + 1)


def _option(one: click.Parameter, context: click.Context) -> tuple[str, str] | None:
    record = one.get_help_record(context)
    if record is None:
        return None
    names, meaning = record
    return f"<code>{html(names).replace('|', '&#124;')}</code>", escape_prose(meaning)


def _paragraphs(text: str) -> list[str]:
    return [part for part in re.split(r"\n\s*\n", cleandoc(text)) if part.strip()]


def _paragraph(text: str) -> str:
    """One paragraph of help; what click must not wrap are commands to type, or lines as they are."""
    if not text.startswith(_RAW):
        return escape_prose(" ".join(text.split())) + "\n"
    lines = cleandoc(text.removeprefix(_RAW)).strip("\n")
    language = "sh" if "tracekit " in lines else "text"
    return f"```{language}\n{lines}\n```\n"
