"""`tracekit suite`: measure all workloads by the methods of published studies."""

from __future__ import annotations

from tracekit.cli import completion
from tracekit.cli import lazy_click as click
from tracekit.cli.options import format_option, open_store, store_option
from tracekit.cli.progress import note
from tracekit.errors import ExitCode
from tracekit.workloads.base import DOMAINS


@click.group("suite", context_settings={"help_option_names": ["-h", "--help"]})
def command() -> None:
    """Measure all workloads by the methods of published studies, and report next to their numbers.

    `run` measures, and resumes if it was stopped; `report` prints the results so far.

    \b
    tracekit suite run --size test
    tracekit suite report --format markdown
    tracekit suite report -o suite.html
    """  # noqa: D301 (click reads the \b)


@command.command("run")
@click.option(
    "--size", type=click.Choice(("test", "gpu")), default="test", show_default=True, help="Workload size."
)
@click.option(
    "--workload",
    "only",
    aliases=("--only",),
    multiple=True,
    metavar="NAME",
    shell_complete=completion.workload,
    help="Measure only this workload; repeatable.",
)
@click.option(
    "--domain", multiple=True, type=click.Choice(DOMAINS), help="Measure only this domain; repeatable."
)
@click.option(
    "--level", default="eager,compile", show_default=True, metavar="LIST", help="Execution modes to measure."
)
@click.option(
    "--backend",
    default="inductor",
    show_default=True,
    metavar="LIST",
    help="Backends of level compile: inductor,aot_eager.",
)
@click.option("--repeat", type=click.IntRange(min=1), default=1, show_default=True, help="Runs per cell.")
@click.option("--restart", is_flag=True, help="Discard earlier results of this suite.")
@click.option("--retry", is_flag=True, help="Measure failed cells again.")
@store_option
def run_command(
    *,
    size: str,
    only: tuple[str, ...],
    domain: tuple[str, ...],
    level: str,
    backend: str,
    repeat: int,
    restart: bool,
    retry: bool,
    store: str | None,
) -> int:
    """Measure the workloads into the store; to resume, run the same command again.

    `--size test` is for CPUs, where Inductor compiles only a few small workloads. `gpu` is large enough to
    load a GPU, and sweeps resolution and batch size from 8 to 1024 by doubling. The reason of a cell that
    fails or runs out of memory is recorded.

    Exit codes: 0 at least one cell was measured, 5 none, 130 interrupted.
    """
    from tracekit import registry
    from tracekit.cli.sweep import measure_cells
    from tracekit.cli.workloads import print_skipped
    from tracekit.experiments import sweep_grid
    from tracekit.experiments.suite import plan

    if not only:
        print_skipped(registry.load_all(registry.WORKLOADS)[1])
    suite = plan(
        size=size,
        only=only,
        domains=domain,
        repeats=repeat,
        levels=sweep_grid.names(level, "--level"),
        backends=sweep_grid.names(backend, "--backend"),
    )
    folder = measure_cells(open_store(store), suite, restart=restart, retry=retry)
    measured = sum(record.values is not None for record in folder.records().values())
    click.echo(folder.id)
    note(f"tracekit: {measured} measurements; see `tracekit suite report {folder.id}`")
    return int(ExitCode.OK if measured else ExitCode.NOTHING_MEASURED)


@command.command("report")
@click.argument("suite", default="latest", shell_complete=completion.sweep)
@click.option(
    "-o", "--output", type=click.Path(dir_okay=False), help="Write an HTML page with figures to this file."
)
@click.option(
    "--png", type=click.Path(file_okay=False), help="Write the figures as PNG to this folder; needs kaleido."
)
@format_option
@store_option
def report_command(
    *, suite: str, output: str | None, png: str | None, output_format: str, store: str | None
) -> None:
    """Print the tables of a suite, by default the latest, finished or not.

    A cell without a value shows the reason.

    JSON: {"schema": "tracekit.suite/1", "tables": {NAME: {"rows": [{..., "reasons": {COLUMN: WHY}}]}}}.
    """
    from pathlib import Path

    from tracekit.experiments.suite import report
    from tracekit.experiments.sweep_folder import find
    from tracekit.render.suite import as_html, pictures, render
    from tracekit.storage import put

    results = report(find(open_store(store), suite, kind="suite"))
    if output is None and png is None:
        click.echo(render(results, output_format), nl=False)
    if output is not None:
        with put(Path(output)) as file:
            file.write_text(as_html(results))
        click.echo(output)
    if png is not None:
        paths = pictures(results, Path(png))
        for path in paths:
            click.echo(str(path))
        if not paths:
            click.echo("tracekit: no PNG written: plotly needs kaleido; pip install kaleido", err=True)
