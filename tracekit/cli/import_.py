"""`tracekit import`: raw traces become runs."""

from __future__ import annotations

from pathlib import Path

import rich_click as click

from tracekit.cli.options import open_store, store_option


@click.command("import")
@click.argument("paths", metavar="PATH...", nargs=-1, required=True, type=click.Path(path_type=Path))
@click.option("--label", help="Name the new runs; a label can be used wherever a run is asked for.")
@store_option
def command(paths: tuple[Path, ...], *, label: str | None, store: str | None) -> None:
    """Import Kineto traces (torch.profiler's JSON, plain or gzipped) into the store.

    A PATH is a trace, a folder of traces, or - for standard input; what a file is, is told by its content.
    The traces of one job's ranks become one run. Prints one run id a line on stdout, and nothing else.

    \b
    tracekit import trace.json.gz
    tracekit import rank0.json rank1.json --label baseline
    zcat trace.json.gz | tracekit import -
    """  # noqa: D301 (click reads the \b)
    import pyarrow as pa

    from tracekit.cli.progress import byte_progress
    from tracekit.ingest import import_job, plan

    pa.set_memory_pool(pa.system_memory_pool())  # it gives memory back between reading and writing
    target = open_store(store)
    jobs = plan(paths)
    with byte_progress("reading") as progress:
        for job in jobs:
            run = import_job(target, job, label=label, progress=progress)
            click.echo(run.id)
            _warn(run.id, [d.message for d in run.meta.diagnostics if d.level != "info"])


def _warn(run_id: str, messages: list[str]) -> None:
    for message in messages:
        click.echo(f"tracekit: {run_id}: {message}", err=True)
