"""Help pages, rendered by rich_click."""

from __future__ import annotations

from copy import copy
from typing import TYPE_CHECKING, Any

from rich_click import RichCommand, RichHelpFormatter, RichOptionPanel

if TYPE_CHECKING:
    import click

    from tracekit.cli.lazy_click import Command

_PARTS: tuple[Any, ...] = (
    RichCommand.format_usage,
    RichCommand.format_help_text,
    RichCommand.format_options,
    RichCommand.format_epilog,
)


def page(command: Command, ctx: click.Context) -> str:
    """Render the help page of a command, with colors if the environment or the terminal supports them."""
    formatter = RichHelpFormatter(width=ctx.terminal_width, max_width=ctx.max_content_width)
    drawn: Any = copy(command)
    drawn.panels = [RichOptionPanel(title, options=[*names]) for title, names in command.panels.items()]
    for write in _PARTS:
        write(drawn, ctx, formatter)
    return str(formatter.getvalue()).rstrip("\n")
