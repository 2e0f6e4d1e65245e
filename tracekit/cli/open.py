"""`tracekit open`: look at traces without a store."""

from __future__ import annotations

import tempfile
from pathlib import Path

from tracekit.cli import completion
from tracekit.cli import lazy_click as click
from tracekit.cli.progress import stop_on_interrupt
from tracekit.registry import import_extra


@click.command("open")
@click.argument("traces", nargs=-1, required=True, shell_complete=completion.file)
@click.option("--no-browser", is_flag=True, help="Only print the verdict and the address; open no browser.")
@click.option(
    "--port", type=click.IntRange(0, 65535), default=0, help="Port to listen on; by default a free one."
)
def command(*, traces: tuple[str, ...], no_browser: bool, port: int) -> None:
    """Import TRACES into a temporary store and open the browser at the verdict.

    The traces of one job's ranks are one run. Without the extra `dashboard` it only prints the verdict.
    Nothing is kept: Ctrl-C stops the dashboard and deletes the store. Use `tracekit import` to keep runs.

    \b
    tracekit open trace.json.gz
    uvx --from 'tracekit-torch[dashboard]' tracekit open trace.json.gz
    """  # noqa: D301 (click reads the \b)
    from tracekit.analysis.cache import ResultCache
    from tracekit.analysis.verdict import judge
    from tracekit.ingest.importer import import_traces
    from tracekit.runs.store import Store
    from tracekit.storage import expand

    with tempfile.TemporaryDirectory(prefix="tracekit-open-") as folder:
        store = Store(Path(folder))
        runs = import_traces(store, [place for trace in traces for place in expand(trace)])
        click.echo(judge(runs[-1], by=ResultCache(store).analyze).sentence)
        dashboard = import_extra("tracekit.dashboards.app", "the dashboard needs")
        with stop_on_interrupt():
            dashboard.serve(
                store,
                host="127.0.0.1",
                port=port,
                open_browser=not no_browser,
                page=f"overview?run={runs[-1].id}",
                on_ready=lambda address: click.echo(f"tracekit open: {address} (press Ctrl-C to stop)"),
            )
