"""Options that several commands share."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tracekit.cli import lazy_click as click
from tracekit.cli.percent import Percent

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from tracekit.store import Store
    from tracekit.workloads.options import Option

    Decorator = Callable[[Callable[..., object]], Callable[..., object]]

FORMATS = ("table", "json", "csv", "markdown")
REPORTS = ("table", "json", "markdown")
"""Formats of reports, which are text rather than rows."""
METRICS = ("step_time", "wall", "host_peak", "device_peak", "value")
"""Metrics of a measured program."""
UNITS = ("ns", "us", "ms", "s", "bytes", "KiB", "MiB", "GiB", "count")
"""Units of a value that a program prints."""

store_option = click.option(
    "--store",
    metavar="PLACE",
    help="Store of runs: a folder, s3://bucket/prefix or gs://bucket/prefix; default $TRACEKIT_STORE, "
    "else .tracekit/ in the git repository or the current folder.",
)

fresh_option = click.option("--no-cache", "fresh", is_flag=True, help="Ignore cached results.")


def declared_options(*options: Option) -> Decorator:
    """Return the decorator that adds declared options of `tracekit collect` to a command."""

    def add(function: Callable[..., object]) -> Callable[..., object]:
        for one in reversed(options):
            flags = f"{one.flag}/--no-{one.flag[2:]}" if one.negatable else one.flag
            function = click.option(
                flags,
                type=one.kind,
                is_flag=one.kind is bool or None,
                default=one.default,
                show_default=True,
                metavar=one.metavar,
                help=one.help,
            )(function)
        return function

    return add


def scheduler_option(text: str) -> Decorator:
    """Return the option for a Dask cluster; the text ends in a comma, before an example."""
    return click.option("--scheduler", metavar="ADDRESS", help=f"{text} such as tcp://host:8786.")


def format_of(what: str, names: Sequence[str]) -> Decorator:
    """Return the option for the output format."""
    return click.option(
        "--format",
        "output_format",
        type=click.Choice(names),
        default="table",
        show_default=True,
        help=f"Output format of the {what}.",
    )


format_option = format_of("data", FORMATS)
report_option = format_of("result", REPORTS)


def threshold_option(text: str) -> Decorator:
    """Return the option for the smallest change that matters, 7% by default."""
    return click.option("--threshold", type=Percent(), default="7%", show_default=True, help=text)


def warmup_option(text: str) -> Decorator:
    """Return the option for warm-up measurements."""
    return click.option("--warmup", type=click.IntRange(min=0), default=1, show_default=True, help=text)


def value_option(text: str) -> Decorator:
    """Return the option for the pattern of a value in a program's output."""
    return click.option("--value", metavar="REGEX", help=text)


def unit_option(text: str) -> Decorator:
    """Return the option for the unit of that value."""
    return click.option("--unit", type=click.Choice(UNITS), default="ms", show_default=True, help=text)


def setup_option(text: str) -> Decorator:
    """Return the option for the command that builds a worktree."""
    return click.option("--setup", metavar="CMD", default="", help=text)


def varying_option(text: str) -> Decorator:
    """Return the option for fingerprint fields whose difference is ignored."""
    return click.option("--varying", multiple=True, metavar="FIELD", help=text)


def open_store(option: str | None) -> Store:
    """Open the store given by the option or the environment."""
    from tracekit.store import Store, locate

    return Store(locate(option))
