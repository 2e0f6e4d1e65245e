"""`tracekit report`: write a run as one HTML file."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tracekit.cli import completion
from tracekit.cli import lazy_click as click
from tracekit.cli.options import (
    fresh_option,
    open_store,
    peaks_option,
    store_option,
    with_peaks,
)
from tracekit.cli.selection import split_arguments

if TYPE_CHECKING:
    from tracekit.analysis import Analysis, Progress, Result
    from tracekit.analysis.cache import ResultCache
    from tracekit.analysis.findings import Advice
    from tracekit.runs.run import Run

SHOWN = (
    "gpu_breakdown", "host_breakdown", "idle_gaps", "steps", "kernels", "ops", "h2d_copies", "d2h_copies",
    "memory",
)  # fmt: skip
"""Analyses that are shown by default."""
MAX_ROWS = 20
_ALL = "all"


@click.command("report")
@click.argument("run", default="latest", required=False, shell_complete=completion.run_or_analysis)
@click.argument("names", nargs=-1, metavar="[ANALYSIS]...", shell_complete=completion.analysis)
@click.option(
    "-o",
    "--output",
    metavar="PATH",
    shell_complete=completion.file,
    help="Output file or folder; default: the run id with .html, in the current folder.",
)
@click.option(
    "--analyses",
    metavar="NAMES",
    shell_complete=completion.analysis,
    help=f"The analyses, comma-separated, or `{_ALL}`; default {', '.join(SHOWN)}.",
)
@click.option("--title", help="Page title; default: the run's label or workload.")
@click.option(
    "--limit",
    type=click.IntRange(min=0),
    default=20,
    show_default=True,
    help="Maximum rows per table; 0 shows all.",
)
@click.option("--open", "open_browser", is_flag=True, help="Open it in the browser.")
@peaks_option
@fresh_option
@store_option
def command(
    *,
    run: str,
    names: tuple[str, ...],
    output: str | None,
    analyses: str | None,
    title: str | None,
    limit: int,
    open_browser: bool,
    peaks: str | None,
    fresh: bool,
    store: str | None,
) -> None:
    """Write RUN as one HTML file: findings, figures, tables, definitions and metadata of the run.

    The file is self-contained and has no scripts: it opens from disk, an e-mail or a CI artifact, follows the
    reader's light or dark theme, and prints well. It starts with the findings of all analyses, largest
    saving first, and shows the names in the trace unchanged.

    RUN is any run reference, default `latest`. Prints the path it wrote.

    \b
    tracekit report latest -o report.html
    tracekit report before kernels idle_gaps --title "Before the fix"
    """  # noqa: D301 (click reads the \b)
    from tracekit.analysis.cache import ResultCache
    from tracekit.cli.progress import analysis_progress
    from tracekit.ingest.references import resolve

    reference, named = split_arguments(run, names)
    if named and analyses:
        raise click.UsageError("Name the analyses after RUN, or with --analyses, not both.")
    chosen = named or _names(analyses)
    runs = open_store(store)
    reported = with_peaks(resolve(runs, reference), peaks)
    with analysis_progress() as progress:
        path = write_report(
            reported,
            Path(output or ".").expanduser(),
            chosen,
            title=title or "",
            limit=limit,
            cache=ResultCache(runs, fresh=fresh),
            progress=progress,
        )
    click.echo(str(path))
    if open_browser:
        click.launch(path.resolve().as_uri())


def _names(analyses: str | None) -> tuple[str, ...]:
    """Parse the names of the analyses to show."""
    from tracekit import analysis

    if analyses is None:
        return SHOWN
    if analyses == _ALL:
        return tuple(available.name for available in analysis.available())
    return split_arguments("latest", tuple(filter(None, map(str.strip, analyses.split(",")))))[1]


def write_report(
    run: Run,
    path: Path,
    names: Sequence[str],
    *,
    cache: ResultCache,
    title: str = "",
    limit: int = MAX_ROWS,
    progress: Progress | None = None,
) -> Path:
    """Write the page; returns its path.

    Args:
        run: The run.
        path: File to write, or a folder, in which the file is named for the run.
        names: Analyses to show.
        cache: What gives the results.
        title: Title of the page; the label or workload by default.
        limit: Maximum rows per table; 0 for all.
        progress: Called with each analysis.

    Raises:
        MissingDependencyError: A package of the dashboard is not installed.
        PluginError: An analysis is unknown, or none can be loaded.
    """
    from tracekit import analysis
    from tracekit.analysis.verdict import INTEGRITY
    from tracekit.export.tables import open_output
    from tracekit.registry import import_extra

    for name in names:
        analysis.get(name)
    path = path / f"{run.id}.html" if path.is_dir() else path
    shown, advice = _analyze(run, {*names, INTEGRITY}, cache, progress)
    text: str = import_extra("tracekit.dashboards.exports.report", "reports need").render_report(
        run,
        title=title or _title(run),
        question="",
        results=[shown[name] for name in names if name in shown],
        integrity=shown[INTEGRITY][1],
        bound=advice.verdict.sentence if advice.verdict else "",
        advice=advice.findings,
        facts=True,
        lacking=advice.lacking,
        capture=advice.capture,
        limit=limit,
    )
    with open_output(path, overwrite=True) as temporary:
        temporary.write_text(text, encoding="utf-8")
    return path


def _title(run: Run) -> str:
    """Return the label of a run, else its workload, else the name in its id."""
    workload = run.meta.workload or {}
    what = " ".join(str(workload[key]) for key in ("name", "mode", "device") if workload.get(key))
    return run.meta.label or what or run.id.partition("-")[2].rpartition("-")[0] or run.id


def _analyze(
    run: Run, names: set[str], result_cache: ResultCache, progress: Progress | None
) -> tuple[dict[str, tuple[Analysis, Result]], Advice]:
    """Return the results to show, and the advice of all analyses."""
    from tracekit import analysis
    from tracekit.analysis.by_rank import keep_facts
    from tracekit.analysis.findings import gather
    from tracekit.experiments.trial_log import add_stored_trials

    shown: dict[str, tuple[Analysis, Result]] = {}

    def results() -> Any:
        for analyzed, result in analysis.analyze_each(run, (), progress=progress, by=result_cache.analyze):
            if analyzed.name in names:
                shown[analyzed.name] = analyzed, result
            yield analyzed, result

    keep_facts(run)
    with result_cache.compute_ahead(run):
        advice = gather(run, results())
    return shown, add_stored_trials(advice, run, result_cache.store)
