"""`tracekit dashboard`: browse the runs of a store."""

from __future__ import annotations

from tracekit.cli import lazy_click as click
from tracekit.cli.options import open_store, store_option
from tracekit.cli.progress import stop_on_interrupt
from tracekit.registry import import_extra


@click.command("dashboard")
@click.option("--host", default="127.0.0.1", show_default=True, help="Address to listen on.")
@click.option(
    "--port",
    type=click.IntRange(0, 65535),
    default=8050,
    show_default=True,
    help="Port to listen on; 0 picks a free one.",
)
@click.option("--open", "open_browser", is_flag=True, help="Open it in the browser.")
@click.option(
    "--upload-limit",
    type=click.FloatRange(min=0),
    default=4,
    show_default=True,
    metavar="GIB",
    help="Maximum size of all uploads from browsers that are not imported yet, in GiB.",
)
@store_option
def command(*, host: str, port: int, open_browser: bool, upload_limit: float, store: str | None) -> None:
    """Browse runs, timelines, analyses and comparisons in a browser.

    By default only this machine can connect. With another --host, open the printed address: it includes an
    access token. New runs appear as they are collected or imported; drop a trace on a page to import it.
    Press Ctrl-C to stop.
    """
    with stop_on_interrupt():
        import_extra("tracekit.dashboards.app", "the dashboard needs").serve(
            open_store(store),
            host=host,
            port=port,
            open_browser=open_browser,
            upload_limit=int(upload_limit * (1 << 30)),
            on_ready=lambda address: click.echo(f"tracekit dashboard: {address} (press Ctrl-C to stop)"),
        )
