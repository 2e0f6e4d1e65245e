"""`tracekit findings`: rank advice on a run by saving."""

from __future__ import annotations

from tracekit.cli import completion
from tracekit.cli import lazy_click as click
from tracekit.cli.options import (
    capture_option,
    format_option,
    fresh_option,
    open_store,
    peaks_option,
    rank_option,
    scheduler_option,
    select_ranks,
    start_workers,
    store_option,
    with_peaks,
)

_SEVERITIES = ("info", "warn", "high")


@click.command("findings")
@click.argument("run", default="latest", required=False, shell_complete=completion.run_or_analysis)
@click.argument("names", nargs=-1, metavar="[ANALYSIS]...", shell_complete=completion.analysis)
@click.option(
    "--severity",
    type=click.Choice(_SEVERITIES),
    default="info",
    show_default=True,
    help="Lowest severity to show.",
)
@click.option(
    "--limit", type=click.IntRange(min=0), default=0, help="Maximum findings; 0 (default) shows all."
)
@rank_option
@peaks_option
@scheduler_option("Analyze ranks on the workers of this Dask cluster,")
@capture_option
@fresh_option
@format_option
@store_option
def command(
    *,
    run: str,
    names: tuple[str, ...],
    severity: str,
    limit: int,
    ranks: tuple[str, ...],
    peaks: str | None,
    scheduler: str | None,
    captures: tuple[str, ...],
    fresh: bool,
    output_format: str,
    store: str | None,
) -> None:
    """Show how to make RUN faster, largest saving first.

    Each finding states the problem, what to change, the time saved per step with its formula, the confidence,
    and the rows of the run that are evidence. Analyses skipped for missing data are listed with how to record
    it. For the thresholds of all rules, see `tracekit analyze --list --format markdown`.

    RUN is a run id or its prefix, `latest` (the default), `latest~1`, a label, `git:REV`, or the path of a
    run or of a raw trace, which is imported first.
    """
    from tracekit.analysis.cache import ResultCache
    from tracekit.analysis.findings import advise
    from tracekit.cli.analyze import open_named_run, split_arguments
    from tracekit.cli.progress import analysis_progress
    from tracekit.render.analyze import INTEGRITY, integrity_line
    from tracekit.render.findings import render

    reference, names = split_arguments(run, names)
    runs = open_store(store)
    opened = with_peaks(select_ranks(open_named_run(runs, reference, captures), ranks), peaks, names)
    with start_workers(opened, scheduler) as workers, analysis_progress() as progress:
        by = ResultCache(runs, fresh=fresh, workers=workers).analyze
        advice = advise(opened, names, progress=progress, by=by)
        integrity = ""
        if output_format != "csv":
            results = {analysis.name: (analysis, result) for analysis, result in advice.results}
            integrity = integrity_line(results.get(INTEGRITY), lambda: by(opened, INTEGRITY)).strip()
    severities = _SEVERITIES[_SEVERITIES.index(severity) :]
    findings = [ranked for ranked in advice.findings if ranked.finding.severity in severities]
    text = render(opened.id, findings[: limit or None], advice, integrity, output_format)
    click.echo(text, nl=False)
