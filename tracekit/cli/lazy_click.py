"""The parts of click that commands use, with help pages rendered by rich_click.

rich_click is imported only to render help, as importing it takes longer than many commands.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from copy import copy
from inspect import cleandoc
from typing import TYPE_CHECKING, Any, TypeVar

import click
from click import UNPROCESSED as UNPROCESSED
from click import Abort as Abort
from click import ClickException as ClickException
from click import Context as Context
from click import FloatRange as FloatRange
from click import NoSuchOption as NoSuchOption
from click import Parameter as Parameter
from click import ParamType as ParamType
from click import Path as Path
from click import UsageError as UsageError
from click import argument as argument
from click import confirm as confirm
from click import echo as echo
from click import launch as launch
from click import pass_context as pass_context
from click import version_option as version_option

from tracekit.errors import did_you_mean

if TYPE_CHECKING:
    Function = TypeVar("Function", bound=Callable[..., Any])


class IntRange(click.IntRange):
    """An integer within bounds, with a plain message for what is not an integer."""

    def convert(self, value: Any, param: Parameter | None, ctx: Context | None) -> int:
        """Convert to an integer within bounds."""
        try:
            int(str(value))
        except ValueError:
            self.fail(f"{value!r} is not a whole number", param, ctx)
        return super().convert(value, param, ctx)


class Choice(click.Choice):  # type: ignore[type-arg]
    """One of a few words; the error for another one names the nearest."""

    def convert(self, value: Any, param: Parameter | None, ctx: Context | None) -> Any:
        """Convert to one of the words."""
        try:
            return super().convert(value, param, ctx)
        except click.BadParameter:
            choices = [*map(str, self.choices)]
            hint = did_you_mean(str(value), choices) or f"use {', '.join(choices)}"
            self.fail(f"unknown value {value!r}; {hint}", param, ctx)


class Option(click.Option):
    """An option of a command.

    Attributes:
        aliases: Other spellings, which help does not list.
        panel: Attribute that rich_click expects; panels of a command list their options instead.
    """

    panel: None = None

    def __init__(self, *args: Any, aliases: Sequence[str] = (), **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.aliases = aliases

    def add_to_parser(self, parser: Any, ctx: Context) -> None:
        """Make the parser accept the option and its aliases."""
        listed, self.opts = self.opts, [*self.opts, *self.aliases]
        super().add_to_parser(parser, ctx)
        self.opts = listed


_QUIET = "tracekit.quiet"


def is_quiet() -> bool:
    """Tell whether the running command was given `--quiet`."""
    context = click.get_current_context(silent=True)
    return bool(context and context.meta.get(_QUIET))


def _keep_quiet(ctx: Context, _option: Parameter, asked: bool) -> None:  # noqa: FBT001 (click calls it so)
    if asked:
        ctx.meta[_QUIET] = True  # shared with the contexts of subcommands


_EXAMPLES = re.compile(r"^\b\n((?:(?:tracekit|  ).*\n?)+)".replace(r"\b", "\b"), re.MULTILINE)
"""A block of examples, whose lines click keeps."""


def _head_examples(block: re.Match[str]) -> str:
    """Put a heading over a block of examples, and indent it."""
    lines = block[1].rstrip("\n").split("\n")
    return "\n".join(["\b", "Examples:", *(f"  {line}" for line in lines), ""])


class Command(click.Command):
    """A command; `panels` has names of options by title of their panel, if there is more than one."""

    def __init__(self, *args: Any, panels: Mapping[str, Sequence[str]] | None = None, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.panels = panels or {}
        self._quiet = Option(
            ["-q", "--quiet"],
            is_flag=True,
            expose_value=False,
            callback=_keep_quiet,
            help="No progress and hints; results, warnings and errors remain.",
        )

    def get_params(self, ctx: Context) -> list[Parameter]:
        """Return the parameters, with `--quiet` before `--help`."""
        *params, help_option = super().get_params(ctx)
        return [*params, self._quiet, help_option]

    def invoke(self, ctx: Context) -> Any:
        """Run the command; its usage errors point to its own help."""
        try:
            return super().invoke(ctx)
        except UsageError as error:
            error.ctx = error.ctx or ctx
            raise

    def get_help(self, ctx: Context) -> str:
        """Return the help page, with colors if enabled."""
        from rich_click import RichCommand, RichHelpFormatter, RichOptionPanel

        formatter = RichHelpFormatter(width=ctx.terminal_width, max_width=ctx.max_content_width)
        page: Any = copy(self)
        page.help = _EXAMPLES.sub(_head_examples, cleandoc(self.help or ""))
        page.panels = [RichOptionPanel(title, options=[*names]) for title, names in self.panels.items()]
        rich: Any = RichCommand
        for part in (rich.format_usage, rich.format_help_text, rich.format_options, rich.format_epilog):
            part(page, ctx, formatter)
        return str(formatter.getvalue()).rstrip("\n")

    def get_help_option(self, ctx: Context) -> click.Option | None:
        """Return the option that prints the help page."""
        option = super().get_help_option(ctx)
        if option is not None:
            option.callback = _print_help
        return option


class Group(Command, click.Group):
    """A group of commands; prints help if no command is given."""

    command_class = Command

    def parse_args(self, ctx: Context, args: list[str]) -> list[str]:
        """Parse the arguments; without any, print help and exit with 2."""
        if not args and self.no_args_is_help and not ctx.resilient_parsing:
            _print_page(ctx)
            ctx.exit(2)
        return super().parse_args(ctx, args)

    def resolve_command(
        self, ctx: Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Return the command that the first argument names."""
        if not args[0].startswith("-") and not ctx.resilient_parsing and not self.get_command(ctx, args[0]):
            raise UsageError(
                f"unknown command {args[0]!r}; {did_you_mean(args[0], self.list_commands(ctx))}", ctx
            )
        return super().resolve_command(ctx, args)


def _print_help(ctx: Context, _option: Parameter, asked: bool) -> None:  # noqa: FBT001 (click calls it so)
    if asked and not ctx.resilient_parsing:
        _print_page(ctx)
        ctx.exit()


def _print_page(ctx: Context) -> None:
    echo(ctx.get_help(), color=True)  # rich has decided on colors; click must not strip them


def command(
    name: str | None = None, *, cls: type[Command] = Command, **settings: Any
) -> Callable[[Function], Command]:
    """Turn a function into a command."""
    return click.command(name, cls=cls, **settings)


def group(
    name: str | None = None, *, cls: type[Group] = Group, **settings: Any
) -> Callable[[Function], Group]:
    """Turn a function into a group of commands."""
    return click.group(name, cls=cls, **settings)


def option(*names: str, **settings: Any) -> Callable[[Function], Function]:
    """Add an option to a command."""
    return click.option(*names, cls=Option, **settings)
