"""Options that several commands share."""

from __future__ import annotations

from typing import TYPE_CHECKING

import rich_click as click

if TYPE_CHECKING:
    from tracekit.store import Store

FORMATS = ("table", "json", "csv", "markdown")

store_option = click.option(
    "--store",
    metavar="DIR",
    help="Where runs are kept; default $TRACEKIT_STORE, else .tracekit/ of the git repository or here.",
)
format_option = click.option(
    "--format",
    "output_format",
    type=click.Choice(FORMATS),
    default="table",
    show_default=True,
    help="How to print the data on stdout.",
)


def open_store(option: str | None) -> Store:
    """The store an invocation means."""
    from tracekit.store import Store, locate

    return Store(locate(option))
