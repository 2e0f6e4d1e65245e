"""Report of `tracekit try`: which changes help a program, by how much, and the code that makes them."""

from __future__ import annotations

from tracekit.analysis import Column
from tracekit.experiments.bisect_model import count_metric, format_value
from tracekit.experiments.trial import TryReport
from tracekit.experiments.trial_model import Outcome, Status
from tracekit.render import document as doc
from tracekit.render.cells import json_text
from tracekit.runs.text import ID, PROSE, duration, human

_MAX_WIDTH = 110


def _format_prediction(outcome: Outcome) -> str | None:
    share = outcome.candidate.predicted
    return None if share is None else human(-share, "share")


def _format_work(outcome: Outcome) -> str | None:
    if outcome.work is None:
        return None
    changed = (
        f"{name} {format_value(old, count_metric(name).unit)} -> {format_value(new, count_metric(name).unit)}"
        for name, (old, new) in outcome.work.items()
    )
    return ", ".join(changed) or "equal"


COLUMNS: tuple[doc.Shown, ...] = (
    (Column("change", "", "changes, by name"), lambda outcome: outcome.candidate.key),
    (Column("result", "", "what is known of it"), lambda outcome: str(outcome.status)),
    (Column("step time", ID, "measured, with the 95% interval"), lambda outcome: outcome.effect or None),
    (Column("predicted", "", "what findings say that it saves"), _format_prediction),
    (Column("numbers", "", "numbers that the program prints"), lambda outcome: outcome.numbers or None),
    (Column("work", PROSE, "what a profiled step does otherwise, before and after"), _format_work),
)


def render(report: TryReport, output_format: str) -> str:
    """Render as a table, Markdown or JSON, `{"schema": "tracekit.try/1", "outcomes": ..., ...}`."""
    if output_format == "json":
        return json_text("try", **report.content())
    return doc.write(output_format, _blocks(report))


def _blocks(report: TryReport) -> list[doc.Block]:
    width = doc.terminal_width(_MAX_WIDTH)
    return [
        doc.Heading(headline(report), width=width),
        doc.TableBlock(doc.Table.of("changes", "", report.outcomes, *COLUMNS)),
        *_code_blocks(report),
        *_diff_blocks(report),
        doc.Items([*_reasons(report), *_notes(report)], indent="", width=width),
    ]


def headline(report: TryReport) -> str:
    """Return the conclusion in one line.

    A set of changes is named only where it is faster than each change alone.
    """
    helpful = [outcome for outcome in report.outcomes if outcome.status is Status.HELPS]
    if helpful:
        best = helpful[0]
        verb = "helps" if len(best.candidate.names) == 1 else "help"
        return f"{' and '.join(best.candidate.names)} {verb}: step time {best.effect}"
    return f"No change is seen to help, of {len(report.outcomes)} tried"


def _code_blocks(report: TryReport) -> list[doc.Block]:
    """Return the code of the best outcome, each with the line at which it took effect."""
    best = report.best
    if best is None:
        return []
    places = (best.places.get(name, "") for name in best.candidate.names)
    lines = [
        f"{change.code}  ({place})" if place else change.code
        for change, place in zip(best.candidate.changes, places, strict=True)
    ]
    return [doc.Items(lines, title="In your program:")]


def _diff_blocks(report: TryReport) -> list[doc.Block]:
    """Return the diff that was asked for, or why there is none."""
    if not report.request.apply:
        return []
    if report.diff:
        return [doc.Raw(f"{report.diff}\n", f"```diff\n{report.diff}```\n")]
    if report.best is None:
        reason = "no change is seen to help without altering numbers"
    else:
        reason = "no line of a file below this folder is known that one argument or statement would change"
    return [doc.Items([f"No diff: {reason}."], indent="")]


def _reasons(report: TryReport) -> list[str]:
    told = {Status.FAILED, Status.NOT_APPLIED, Status.CANNOT_TELL, Status.NOT_TRIED}
    lines = [
        f"{outcome.candidate.key}: {outcome.status}: {outcome.reason}"
        for outcome in report.outcomes
        if outcome.status in told
    ]
    altering = [outcome.candidate.key for outcome in report.outcomes if outcome.alters]
    if altering:
        lines.append(f"numbers that the program prints change more than expected with {', '.join(altering)}")
    return lines


def _notes(report: TryReport) -> list[str]:
    best = report.best
    compare = f"see `tracekit diff {report.run} {best.run}` for what it changes" if best and best.run else ""
    return [_design(report), *filter(None, [compare]), *(f"warning: {text}" for text in report.disturbed)]


def _design(report: TryReport) -> str:
    """Return how the changes were measured, in how many runs."""
    parts = [
        f"changes below {100 * report.request.threshold:g}% count as none",
        f"{duration(report.seconds)} in all",
    ]
    if report.blocks:
        runs = f"{report.blocks} run{'s' * (report.blocks != 1)} of the unchanged program"
        parts.insert(0, f"{runs} beside those with one change, in alternating order")
    if report.turns:
        processes = f"{report.turns} process{'es' * (report.turns != 1)}"
        parts.insert(0, f"{processes} in which changes were turned on and off, for a few steps each")
    return "; ".join(parts)
