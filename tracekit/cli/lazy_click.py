"""click as the commands use it; their help is drawn by rich_click, which is imported when somebody reads it.

rich_click takes longer to import than many a command takes.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeVar

import click
from click import (
    UNPROCESSED,
    Abort,
    Choice,
    ClickException,
    Context,
    FloatRange,
    IntRange,
    Parameter,
    ParamType,
    Path,
    UsageError,
    argument,
    confirm,
    echo,
    launch,
    pass_context,
    version_option,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    Function = TypeVar("Function", bound=Callable[..., Any])

__all__ = [
    "UNPROCESSED",
    "Abort",
    "Choice",
    "ClickException",
    "Command",
    "Context",
    "FloatRange",
    "Group",
    "IntRange",
    "Option",
    "ParamType",
    "Parameter",
    "Path",
    "UsageError",
    "argument",
    "command",
    "confirm",
    "echo",
    "group",
    "launch",
    "option",
    "pass_context",
    "version_option",
]


class Option(click.Option):
    """An option of a command.

    Attributes:
        panel: What rich_click asks an option for; a command's panels name their options instead.
    """

    panel: None = None


class Command(click.Command):
    """A command.

    Attributes:
        panels: Names of options by the title of the panel that shows them; all are in one where it is empty.
    """

    def __init__(self, *args: Any, panels: Mapping[str, Sequence[str]] | None = None, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.panels = panels or {}

    def get_help(self, ctx: Context) -> str:
        """The help page, with colors where they are wanted."""
        from tracekit.cli.help_pages import page

        return page(self, ctx)

    def get_help_option(self, ctx: Context) -> click.Option | None:
        """The option that prints the help page."""
        found = super().get_help_option(ctx)
        if found is not None:
            found.callback = _print_help
        return found


class Group(Command, click.Group):
    """A command of commands; its help, too, when none is named."""

    command_class = Command

    def parse_args(self, ctx: Context, args: list[str]) -> list[str]:
        """The words for the command that they name."""
        if not args and self.no_args_is_help and not ctx.resilient_parsing:
            _print_page(ctx)
            ctx.exit(2)
        return super().parse_args(ctx, args)


def _print_help(ctx: Context, _option: Parameter, asked: bool) -> None:  # noqa: FBT001 (click calls it so)
    if asked and not ctx.resilient_parsing:
        _print_page(ctx)
        ctx.exit()


def _print_page(ctx: Context) -> None:
    echo(ctx.get_help(), color=True)  # rich has seen whether colors are wanted; click must not take them away


def command(name: str | None = None, **settings: Any) -> Callable[[Function], Command]:
    """Make a command of a function."""
    return click.command(name, cls=Command, **settings)


def group(
    name: str | None = None, *, cls: type[Group] = Group, **settings: Any
) -> Callable[[Function], Group]:
    """Make a group of a function."""
    return click.group(name, cls=cls, **settings)


def option(*names: str, **settings: Any) -> Callable[[Function], Function]:
    """Add an option to a command."""
    return click.option(*names, cls=Option, **settings)
