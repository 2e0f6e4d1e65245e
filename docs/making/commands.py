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

PATH = "commands.md"
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
    """Return the page of the reference: Markdown by path."""
    contexts = list(_commands(_program()))
    sections = (line for context in contexts for line in _section(context))
    return {PATH: "\n".join([_index(contexts), *sections])}


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

This page has the same content as `--help`. Data goes to standard output, progress and messages to standard
error; `--quiet` turns progress and hints off. `tracekit --debug COMMAND` adds the traceback to an error.

For completion of commands, options, run ids and labels in bash, add
`eval "$(_TRACEKIT_COMPLETE=bash_source tracekit)"` to `~/.bashrc` (zsh: `zsh_source`, fish: `fish_source`).

{commands}
## Exit codes

{codes}"""


def _index(contexts: list[click.Context]) -> str:
    rows = [
        (
            f"[`{one.command_path}`](#{one.command_path.replace(' ', '-')})",
            escape_prose(one.command.get_short_help_str(200)),
        )
        for one in contexts
    ]
    codes = [(f"{int(code)}", _MEANINGS[code]) for code in ExitCode]
    return _INDEX.format(
        commands=grid(("command", "description"), rows), codes=grid(("code", "meaning"), codes)
    )


def _section(context: click.Context, level: int = 2) -> Iterator[str]:
    command = context.command
    yield f"{'#' * level} {context.command_path}\n"
    yield f"```text\n{context.command_path} {' '.join(command.collect_usage_pieces(context))}\n```\n"
    yield from map(_paragraph, _paragraphs(command.help or ""))
    options = [record for one in command.get_params(context) if (record := _option(one, context))]
    if options:
        yield grid(("option", "meaning"), options)
    for each in _commands(context):
        yield from _section(each, level + 1)


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
