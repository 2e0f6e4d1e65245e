"""Help pages, rendered by rich_click."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from copy import copy
from typing import TYPE_CHECKING, Any

from rich_click import RichCommand, RichHelpFormatter, RichOptionPanel

if TYPE_CHECKING:
    import click

_PARTS: tuple[Any, ...] = (
    RichCommand.format_usage,
    RichCommand.format_help_text,
    RichCommand.format_options,
    RichCommand.format_epilog,
)


def page(command: click.Command, panels: Mapping[str, Sequence[str]], ctx: click.Context) -> str:
    """Render the help page of a command, with colors if the environment or the terminal supports them.

    Args:
        command: The command.
        panels: Names of its options by panel title.
        ctx: Width of the page.
    """
    formatter = RichHelpFormatter(width=ctx.terminal_width, max_width=ctx.max_content_width)
    drawn: Any = copy(command)
    drawn.panels = [RichOptionPanel(title, options=[*names]) for title, names in panels.items()]
    for write in _PARTS:
        write(drawn, ctx, formatter)
    return str(formatter.getvalue()).rstrip("\n")
