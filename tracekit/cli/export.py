"""`tracekit export`: export a run for other tools."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING

from tracekit.cli import completion
from tracekit.cli import lazy_click as click
from tracekit.cli.options import open_store, store_option
from tracekit.errors import UnusableInputError, did_you_mean

if TYPE_CHECKING:
    from tracekit.runs.run import Run
    from tracekit.runs.selection import Window
    from tracekit.runs.store import Store

TRACKERS = ("tensorboard", "mlflow", "wandb")
_ENDINGS = {"perfetto": ".json.gz", "csv": "-csv", "parquet": "-parquet"}


@click.command("export")
@click.argument("run", default="latest", shell_complete=completion.run)
@click.option(
    "--to",
    "target",
    type=click.Choice((*_ENDINGS, *TRACKERS)),
    default="perfetto",
    show_default=True,
    help="Output format.",
)
@click.option(
    "-o",
    "--output",
    metavar="PATH",
    shell_complete=completion.file,
    help="Output path; default: the run id with a suffix, in the current folder, or the tracker's own place. "
    "`-` is stdout.",
)
@click.option("--steps", metavar="FIRST[:LAST]", help="Export only these profiled steps, by number.")
@click.option(
    "--safe",
    is_flag=True,
    help="In CSV, quote text that a spreadsheet would evaluate as a formula, and escape control characters.",
)
@click.option("--force", is_flag=True, help="Overwrite existing files.")
@store_option
def command(
    *,
    run: str,
    target: str,
    output: str | None,
    steps: str | None,
    safe: bool,
    force: bool,
    store: str | None,
) -> None:
    """Export RUN (default `latest`, or any run reference) for other tools.

    perfetto: a trace in Chrome's format for ui.perfetto.dev and chrome://tracing, with launch arrows, steps,
    idle intervals and counters; gzipped if the name ends in .gz. Categories and arguments are named as by
    torch.profiler. csv: a folder with a file per table, or one file if the name ends in .zip; exact integers,
    empty where a value is missing. parquet: a folder with a file per table, of types and encodings that any
    tool reads, and run.json.

    tensorboard, mlflow, wandb: step times, parts of the verdict, savings and peak memory as scalars, the
    verdict as text, and the findings as a table, where the tracker's own variables say (MLFLOW_TRACKING_URI,
    WANDB_PROJECT, ...), or offline in the folder of -o. Each needs the extra of its name, such as
    `pip install 'tracekit-torch[mlflow]'`.

    Prints the path or address that it wrote. Memory use does not grow with the size of the run.

    \b
    tracekit export latest -o trace.json.gz
    tracekit export latest --steps 3:5 -o steps.json
    tracekit export latest --to csv --safe -o tables.zip
    tracekit export latest --to tensorboard -o runs/profile
    """  # noqa: D301 (click reads the \b)
    from tracekit.export.chrome import chrome_trace
    from tracekit.ingest.references import resolve

    if safe and target != "csv":
        raise UnusableInputError(f"--safe has no effect on {target}", hint="use it with --to csv")
    opened_store = open_store(store)
    exported = resolve(opened_store, run)
    if output == "-" and target != "perfetto":
        message = f"{target} writes several files and cannot go to stdout"
        raise UnusableInputError(message, hint="give a path with -o")
    if target in TRACKERS:
        folder = Path(output).expanduser() if output else None
        click.echo(log_export(exported, folder, opened_store, to=target, steps=steps, overwrite=force))
        return
    if output == "-":
        window = select_steps(exported, steps) if steps else None
        sys.stdout.buffer.writelines(chrome_trace(exported, window=window))
        sys.stdout.buffer.flush()
        return
    path = Path(output or f"{exported.id}{_ENDINGS[target]}").expanduser()
    write_export(exported, path, to=target, steps=steps, overwrite=force, safe=safe)
    click.echo(str(path))


def write_export(
    run: Run,
    path: Path,
    *,
    to: str = "perfetto",
    steps: str | None = None,
    overwrite: bool = False,
    safe: bool = False,
) -> None:
    """Write a run to a file or folder.

    Args:
        run: The run.
        path: What to write; gzipped or zipped as its name says.
        to: `perfetto`, `csv` or `parquet`.
        steps: Steps, such as `3` or `3:5`; all by default.
        overwrite: Whether to replace what exists.
        safe: Whether CSV has no text that a spreadsheet would evaluate.

    Raises:
        UnusableInputError: The path exists or cannot be written, or there is no such target or step.
    """
    from tracekit.export import tables
    from tracekit.export.chrome import chrome_trace, compress

    if to not in _ENDINGS:
        known = (*_ENDINGS, *TRACKERS)
        hint = did_you_mean(to, known) or f"use {', '.join(known)}"
        raise UnusableInputError(f"unknown target {to!r}", hint=hint)
    source = tables.Source(run, select_steps(run, steps) if steps else None)
    with tables.open_output(path, overwrite=overwrite) as temporary:
        if to == "perfetto":
            chunks = chrome_trace(source.run, window=source.window)
            with temporary.open("wb") as file:
                file.writelines(compress(chunks) if path.suffix == ".gz" else chunks)
        elif to == "csv":
            tables.as_csv(source, temporary, safe=safe)
        else:
            tables.as_parquet(source, temporary)


def log_export(
    run: Run, folder: Path | None, store: Store, *, to: str, steps: str | None = None, overwrite: bool = False
) -> str:
    """Log a run to a tracker; returns the folder or the address where it is.

    Args:
        run: The run.
        folder: Folder to write to; None for the place of the tracker's own variables.
        store: Store whose cache has the results of analyses.
        to: One of `TRACKERS`.
        steps: Refused: a summary is of the whole run.
        overwrite: Whether to replace what was logged of this run.
    """
    if steps:
        raise UnusableInputError(f"{to} gets a summary of the whole run", hint="leave --steps out")
    from tracekit.analysis.cache import ResultCache
    from tracekit.analysis.findings import Advice, advise, find_advice
    from tracekit.cli.progress import analysis_progress
    from tracekit.export.trackers import log_run, summarize

    cache = ResultCache(store)

    def compute() -> Advice:
        with analysis_progress() as progress:
            return advise(run, progress=progress, by=cache.analyze)

    advice = find_advice(cache, run, compute)
    return log_run(summarize(run, advice, by=cache.analyze), to=to, folder=folder, overwrite=overwrite)


def select_steps(run: Run, steps: str) -> Window:
    """Return the time window from the start of the first step to the end of the last, on host and device."""
    from tracekit.runs.step_windows import END_NS, step_windows
    from tracekit.schema import C

    first, colon, last = steps.partition(":")
    last = last if colon else first
    if not first.isdecimal() or not last.isdecimal():
        raise UnusableInputError(f"--steps {steps!r} is not a step range", hint="use 3 or 3:5")
    table = step_windows(run)
    chosen = table[table[C.STEP].between(int(first), int(last))]
    if chosen.empty:
        numbers = f"{table[C.STEP].min()} to {table[C.STEP].max()}" if len(table) else "none"
        raise UnusableInputError(f"run {run.id} has no step {steps}", hint=f"its steps: {numbers}")
    return int(chosen[C.START_NS].min()), int(chosen[END_NS].max())
