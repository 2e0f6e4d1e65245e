"""Report of `tracekit try`: which changes help a program, by how much, and the code that makes them."""

from __future__ import annotations

from tracekit.analysis import Column
from tracekit.experiments.trial import TryReport
from tracekit.experiments.trial_model import Outcome, Status
from tracekit.render import document as doc
from tracekit.render.cells import json_text
from tracekit.runs.text import duration, human

_MAX_WIDTH = 110


def _format_prediction(outcome: Outcome) -> str | None:
    share = outcome.candidate.predicted
    return None if share is None else human(-share, "share")


_COLUMNS: tuple[doc.Shown, ...] = (
    (Column("change", "", "changes, by name"), lambda outcome: outcome.candidate.key),
    (Column("result", "", "what is known of it"), lambda outcome: str(outcome.status)),
    (Column("step time", "", "measured, with the 95% interval"), lambda outcome: outcome.effect or None),
    (Column("predicted", "", "what findings say that it saves"), _format_prediction),
    (Column("numbers", "", "numbers that the program prints"), lambda outcome: outcome.numbers or None),
    (
        Column("ops", "", "ops of a profiled step, before and after"),
        lambda outcome: " -> ".join(f"{count:,}" for count in outcome.ops) if outcome.ops else None,
    ),
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
        doc.TableBlock(doc.Table.of("changes", "", report.outcomes, *_COLUMNS)),
        *_code_blocks(report),
        *([doc.Raw(f"{report.diff}\n", f"```diff\n{report.diff}```\n")] if report.request.apply else []),
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
    request = report.request
    design = (
        f"{report.blocks} runs of the unchanged program and of each change until it was decided, each a new "
        f"process, in alternating order; changes below {100 * request.threshold:g}% count as none; "
        f"{duration(report.seconds)}"
    )
    return [design, *(f"warning: {text}" for text in report.disturbed)]
