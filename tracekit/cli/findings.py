"""`tracekit findings`: rank advice on a run by saving."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tracekit.cli import completion
from tracekit.cli import lazy_click as click
from tracekit.cli.options import (
    capture_option,
    format_option,
    fresh_option,
    narrowed,
    open_store,
    peaks_option,
    rank_option,
    reading,
    scheduler_option,
    store_option,
    with_peaks,
)

if TYPE_CHECKING:
    from tracekit.analysis import Analyze
    from tracekit.analysis.findings import Advice
    from tracekit.analysis.savings import Ranked
    from tracekit.runs.run import Run

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
    from tracekit.cli.analyze import chosen, resolved
    from tracekit.cli.progress import analysis_progress

    run, names = chosen(run, names)
    place = open_store(store)
    opened = narrowed(resolved(place, run, captures), ranks)
    opened = with_peaks(opened, peaks, names)
    with reading(opened, scheduler) as workers, analysis_progress() as progress:
        by = ResultCache(place, fresh=fresh, workers=workers).analyze
        advice = advise(opened, names, progress=progress, by=by)
        verdict = _verdict(opened, advice, by) if output_format != "csv" else ""
    shown = [one for one in advice.findings if one.finding.severity in _at_least(severity)]
    click.echo(_rendered(opened.id, shown[: limit or None], advice, output_format, verdict), nl=False)


def _at_least(severity: str) -> tuple[str, ...]:
    return _SEVERITIES[_SEVERITIES.index(severity) :]


def _verdict(run: Run, advice: Advice, by: Analyze) -> str:
    """Return the integrity verdict, also if only other analyses were asked."""
    from tracekit.render.results import INTEGRITY, verdict_line

    found = {analysis.name: result for analysis, result in advice.results}
    return verdict_line(found.get(INTEGRITY) or by(run, INTEGRITY)).strip()


def _rendered(run_id: str, findings: list[Ranked], advice: Advice, output_format: str, verdict: str) -> str:
    from tracekit.render import results as render

    if output_format == "csv":
        return render.findings_csv(findings)
    writers = {"json": render.findings_json, "markdown": render.findings_markdown, "table": render.as_text}
    return writers[output_format](run_id, findings, advice, verdict)
