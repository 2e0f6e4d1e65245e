"""Output of `tracekit collect` about its new runs."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tracekit.cli import lazy_click as click

if TYPE_CHECKING:
    from tracekit.run import Run

SUMMARY = "gpu_breakdown"
SUMMARY_TABLES = ("whole", "host")
SUMMARY_ROWS = 8


def show(runs: list[Run], output_format: str, *, err: bool = False) -> None:
    """Print new runs in a format; with `err`, on stderr, as stdout is the program's."""
    ids = [run.id for run in runs]
    if output_format == "json":
        from tracekit import render

        click.echo(render.envelope("collect", runs=ids), err=err)
    elif output_format == "csv":
        click.echo("\n".join(["run", *ids]), err=err)
    elif output_format == "markdown":
        click.echo("\n".join(["| run |", "| --- |", *(f"| {name} |" for name in ids)]), err=err)
    else:
        summary(runs[-1], err=err)


def summary(run: Run, *, err: bool = False) -> None:
    """Print the step time of a run and a summary of where the time went."""
    import statistics

    from tracekit import analysis, render

    if run.meta.timings:
        steps = run.meta.timings.step_ns
        median = render.human(statistics.median_low(steps), "ns")
        click.echo(f"\nStep time without the profiler: {median} (median of {len(steps)} steps)", err=err)

    result = analysis.analyze(run, SUMMARY)
    more = f"`tracekit analyze {run.id} {SUMMARY} --limit 0` shows all"
    for spec in analysis.get(SUMMARY).tables:
        if spec.name in SUMMARY_TABLES and spec.name in result.tables:
            table = result.tables[spec.name]
            text = render.table_text(table, spec.columns, title=spec.title, limit=SUMMARY_ROWS, show_all=more)
            click.echo("\n" + text, nl=False, err=err)
