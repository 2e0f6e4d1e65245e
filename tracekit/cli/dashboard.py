"""`tracekit dashboard`: the runs of a store in a browser."""

from __future__ import annotations

import sys
from importlib import import_module
from typing import TYPE_CHECKING

from tracekit.cli import lazy_click as click
from tracekit.cli.options import open_store, store_option
from tracekit.errors import ExitCode

if TYPE_CHECKING:
    from types import ModuleType


@click.command("dashboard")
@click.option("--host", default="127.0.0.1", show_default=True, help="Address to listen on.")
@click.option(
    "--port",
    type=click.IntRange(0, 65535),
    default=8050,
    show_default=True,
    help="Port to listen on; 0 takes a free one.",
)
@click.option("--open", "open_browser", is_flag=True, help="Show it in the browser.")
@click.option(
    "--upload-limit",
    type=click.FloatRange(min=0),
    default=4,
    show_default=True,
    metavar="GIB",
    help="GiB of traces that one import in the browser may send.",
)
@store_option
def command(*, host: str, port: int, open_browser: bool, upload_limit: float, store: str | None) -> None:
    """Browse runs, their timeline, every analysis, and comparisons.

    It listens on this machine only, unless --host says otherwise; then the printed address holds a token that
    the first visit must show. Runs that are collected or imported while it is open show up, and a trace that
    is dropped on a page is imported. Ctrl-C ends it.
    """
    try:
        _serving().serve(
            open_store(store),
            host=host,
            port=port,
            open_browser=open_browser,
            upload_limit=int(upload_limit * (1 << 30)),
            tell=lambda address: click.echo(f"tracekit dashboard: {address} (Ctrl-C ends it)"),
        )
    except KeyboardInterrupt:
        if sys.stderr.isatty():
            click.echo(err=True)  # the terminal has written ^C: what comes next begins a line
        raise SystemExit(ExitCode.INTERRUPTED) from None  # this is how it is meant to end: nothing to say


def _serving() -> ModuleType:
    from tracekit.errors import MissingDependencyError

    try:
        return import_module("tracekit.dashboards.serving")
    except ModuleNotFoundError as error:
        raise MissingDependencyError(
            f"the dashboard needs the package {error.name!r}, which is not installed",
            hint="pip install 'tracekit-torch[dashboard]'",
        ) from error
