"""`tracekit findings`: rank advice on a run by saving."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from tracekit.cli import lazy_click as click
from tracekit.cli.options import FORMATS, IN_CI, format_of
from tracekit.cli.selection import Selection, selection_options, split_arguments

if TYPE_CHECKING:
    from tracekit.analysis import Analyze
    from tracekit.analysis.savings import Ranked
    from tracekit.runs.run import Run

_SEVERITIES = ("info", "warn", "high")


@click.command("findings")
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
@click.option(
    "--more",
    is_flag=True,
    help="Also print formulas, confidence and evidence, and missing data with the code that records it; "
    "other formats always contain them.",
)
@selection_options
@format_of("data", (*FORMATS, *IN_CI))
def command(*, selection: Selection, severity: str, limit: int, more: bool, output_format: str) -> None:
    """Show how to make RUN faster, largest saving first.

    Each finding states the problem, the time saved per step, and what to change. With --more, it also has the
    formula of the saving, the confidence, and the rows of the run that are evidence; analyses skipped for
    missing data are listed with how to record it. For the thresholds of all rules, see `tracekit analyze
    --list --format markdown`.

    `--format sarif` and `github` are for continuous integration: findings at the lines of files below the
    current folder, for code scanning (only those with a line) or as annotations.

    RUN is a run id or its prefix, `latest` (the default), `latest~1`, a label, `git:REV`, or the path of a
    run or of a raw trace, which is imported first.
    """
    from tracekit.analysis.findings import Advice, advise
    from tracekit.analysis.savings import TRIALS
    from tracekit.analysis.verdict import INTEGRITY, integrity_line
    from tracekit.cli.options import open_store
    from tracekit.cli.progress import analysis_progress
    from tracekit.render.findings import render

    reference, names = split_arguments(selection.run, selection.names)
    opened = selection.open(reference, names)
    with_integrity = output_format != "csv"

    def compute(analyze: Analyze) -> Advice:
        with analysis_progress() as progress:
            advice = advise(opened, names, progress=progress, by=analyze)
        if not with_integrity or advice.integrity:
            return advice
        result = analyze(opened, INTEGRITY)
        complete = advice.complete and not result.incomplete
        return replace(advice, integrity=integrity_line(result), complete=complete)

    inputs = (*names, INTEGRITY) if names and with_integrity else names
    advice = selection.answer(opened, inputs, ("findings", with_integrity, *names), Advice, compute)
    place = open_store(selection.store)
    if (place.local_folder / TRIALS).is_file():  # else what reads them, and statistics, need not be loaded
        from tracekit.experiments.trial_log import add_stored_trials

        advice = add_stored_trials(advice, opened, place)
    severities = _SEVERITIES[_SEVERITIES.index(severity) :]
    findings = [ranked for ranked in advice.findings if ranked.finding.severity in severities]
    stored = ["--store", selection.store] if selection.store else []
    rerun = "" if more else shlex.join(["tracekit", "findings", reference, *names, *stored, "--more"])
    shown = findings[: limit or None]
    if output_format in IN_CI:
        text = _render_for_ci(opened, shown, output_format)
    else:
        text = render(opened.id, shown, advice, output_format, more=rerun)
    click.echo(text, nl=False)


def _render_for_ci(run: Run, findings: Sequence[Ranked], output_format: str) -> str:
    """Return SARIF, or annotations of GitHub, with the lines of files below the current folder."""
    from tracekit.analysis.source_lines import find_place
    from tracekit.registry import VERSION
    from tracekit.render.ci import annotate_findings, write_sarif

    placed = [(ranked, find_place(run, ranked.finding, Path.cwd())) for ranked in findings]
    return write_sarif(placed, VERSION) if output_format == "sarif" else annotate_findings(placed)
