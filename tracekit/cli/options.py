"""Options that several commands share."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tracekit.cli import lazy_click as click
from tracekit.cli.percent import Percent

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from tracekit.store import Store

    Decorator = Callable[[Callable[..., object]], Callable[..., object]]

FORMATS = ("table", "json", "csv", "markdown")
REPORTS = ("table", "json", "markdown")
"""Formats of what is told in sentences rather than rows."""
METRICS = ("step_time", "wall", "host_peak", "device_peak", "value")
"""What a measured program can have."""
UNITS = ("ns", "us", "ms", "s", "bytes", "KiB", "MiB", "GiB", "count")
"""What a program may print a value in."""

store_option = click.option(
    "--store",
    metavar="PLACE",
    help="Where runs are kept: a folder, s3://bucket/prefix or gs://bucket/prefix; default $TRACEKIT_STORE, "
    "else .tracekit/ of the git repository or here.",
)

fresh_option = click.option(
    "--no-cache", "fresh", is_flag=True, help="Compute every analysis anew, whatever was kept of earlier."
)


def scheduler_option(text: str) -> Decorator:
    """The cluster that works, instead of this machine."""
    return click.option("--scheduler", metavar="ADDRESS", help=f"{text} Such as tcp://host:8786.")


def format_of(what: str, names: Sequence[str]) -> Decorator:
    """The option for the format of what a command prints."""
    return click.option(
        "--format",
        "output_format",
        type=click.Choice(names),
        default="table",
        show_default=True,
        help=f"How to print the {what} on stdout.",
    )


format_option = format_of("data", FORMATS)
report_option = format_of("result", REPORTS)


def threshold_option(text: str) -> Decorator:
    """The smallest change that matters, 7% by default."""
    return click.option("--threshold", type=Percent(), default="7%", show_default=True, help=text)


def warmup_option(text: str) -> Decorator:
    """Measurements before those that count."""
    return click.option("--warmup", type=click.IntRange(min=0), default=1, show_default=True, help=text)


def value_option(text: str) -> Decorator:
    """Where the number is in what a program prints."""
    return click.option("--value", metavar="REGEX", help=text)


def unit_option(text: str) -> Decorator:
    """What that number is in."""
    return click.option("--unit", type=click.Choice(UNITS), default="ms", show_default=True, help=text)


def setup_option(text: str) -> Decorator:
    """What builds a worktree before anything is measured there."""
    return click.option("--setup", metavar="CMD", default="", help=text)


def varying_option(text: str) -> Decorator:
    """Fields of the fingerprint that differ on purpose."""
    return click.option("--varying", multiple=True, metavar="FIELD", help=text)


def open_store(option: str | None) -> Store:
    """The store an invocation means."""
    from tracekit.store import Store, locate

    return Store(locate(option))
