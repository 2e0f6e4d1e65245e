"""Output formats of `tracekit findings`."""

from __future__ import annotations

import json
import re
import shutil
import textwrap
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from tracekit.analysis import Column
from tracekit.render.cells import clean, human
from tracekit.render.plain import csv_text, envelope, escape

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tracekit.analysis import Finding
    from tracekit.findings import Advice, Ranked

_INDENT = "    "
_WIDEST = 110
_NAMED_ROWS = 5
_SKIPPED = "Skipped, missing data:"
_AMOUNT = re.compile(r"(?<=\d) (?=(?:%|ns|µs|ms|s|B|[KMGT]iB|[kMGT]B/s|[kMGTP]?FLOP(?:/s)?)(?!\w))")
"""Space between a number and its unit, where lines must not break."""
_NO_BREAK = "\N{NO-BREAK SPACE}"

COLUMNS = (
    Column("place", "", "rank"),
    Column("severity", "", "info, warn or high"),
    Column("saving_ns_per_step", "ns", "time saved per step"),
    Column("share_of_step", "share", "saving over the mean step"),
    Column("code", "", "code of the rule"),
    Column("analysis", "", "analysis of the rule"),
    Column("title", "prose", "problem"),
    Column("advice", "prose", "what to change"),
    Column("basis", "", "measured or estimated"),
    Column("how", "prose", "how the saving was computed"),
    Column("confidence", "share", "confidence in the cause"),
    Column("evidence", "id", "rows of the run that are evidence, as JSON"),
)
"""Columns of findings."""


def rows(findings: Sequence[Ranked]) -> list[dict[str, Any]]:
    """Return the findings by column name; the evidence maps tables to row ids."""
    return [
        {
            "place": place,
            "analysis": ranked.analysis,
            "share_of_step": ranked.share_of_step,
            **asdict(ranked.finding),
        }
        for place, ranked in enumerate(findings, 1)
    ]


def as_json(run_id: str, findings: Sequence[Ranked], advice: Advice, verdict: str) -> str:
    """One object: `{"schema": "tracekit.findings/1", "run": ..., "findings": [...], "notes": [...]}`."""
    against = advice.budget
    unseen = [{"analysis": name, "note": note} for name, note in advice.unseen]
    return (
        envelope(
            "findings",
            run=run_id,
            integrity=verdict,
            steps=against.steps,
            step_ns=against.step_ns,
            steps_marked=against.marked,
            rules=advice.rules,
            findings=rows(findings),
            notes=unseen,
        )
        + "\n"
    )


def as_csv(findings: Sequence[Ranked]) -> str:
    """Render a line per finding."""
    return csv_text([{**row, "evidence": json.dumps(row["evidence"])} for row in rows(findings)], COLUMNS)


def as_text(run_id: str, findings: Sequence[Ranked], advice: Advice, verdict: str) -> str:
    """Render for a terminal."""
    width = min(shutil.get_terminal_size((100, 40)).columns, _WIDEST)
    head = [f"run {clean(run_id)}", *([verdict] if verdict else [])]
    head += _wrapped(_summary(findings, advice), width, "")
    blocks = [_block(place, ranked, width) for place, ranked in enumerate(findings, 1)]
    blocks += [_unseen(advice, width)] if advice.unseen else []
    return "\n\n".join(["\n".join(head), *blocks]) + "\n"


def as_markdown(run_id: str, findings: Sequence[Ranked], advice: Advice, verdict: str) -> str:
    """Render for a pull request."""
    lines = [
        f"# Findings of {escape(run_id)}",
        "",
        *([escape(verdict), ""] if verdict else []),
        escape(_summary(findings, advice)),
        "",
    ]
    for place, ranked in enumerate(findings, 1):
        finding = ranked.finding
        lines += [
            f"{place}. **{escape(finding.title)}** ({escape(_worth(finding, ranked.share_of_step))})",
            "",
        ]
        lines += [f"   {escape(finding.advice)}", "", f"   {escape(_proof(ranked.analysis, finding))}", ""]
    lacking = [f"- {escape(note)} ({escape(', '.join(names))})" for note, names in advice.lacking]
    lines += [_SKIPPED, "", *lacking] if lacking else []
    return "\n".join(lines).rstrip("\n") + "\n"


def _summary(findings: Sequence[Ranked], advice: Advice) -> str:
    against = advice.budget
    unit = "step" if against.marked else "capture"
    many = f"Mean {unit} time {human(against.step_ns, 'ns')} ({against.steps:,} {unit}s)"
    one = f"{unit.capitalize()} time {human(against.step_ns, 'ns')}"
    takes = many if against.steps > 1 else one
    count = f"{len(findings):,} finding{'s' * (len(findings) != 1)}, {advice.rules} rules checked"
    caution = ". Savings overlap; don't sum them" if len(findings) > 1 else ""
    if not against.step_ns:
        return f"No intervals recorded. {count}."
    unmarked = "" if against.marked else " No steps are marked: savings are per capture."
    return f"{takes}. {count}{caution}.{unmarked}"


def _block(place: int, ranked: Ranked, width: int) -> str:
    text = finding_text(ranked.analysis, ranked.finding, share=ranked.share_of_step, width=width)
    return f"{place:2}. {text}"


def finding_text(
    analysis: str, finding: Finding, *, share: float | None = None, width: int | None = None
) -> str:
    """Render a finding for a terminal: saving, problem, advice, and evidence.

    Args:
        analysis: Name of the analysis.
        finding: The finding.
        share: Saving as a share of the mean step, if known.
        width: Characters per line; by default the terminal's.
    """
    wide = width or min(shutil.get_terminal_size((100, 40)).columns, _WIDEST)
    lines = [f"{finding.severity.upper()}: {_worth(finding, share)}"]
    lines += _wrapped(clean(finding.title), wide, _INDENT)
    lines += _wrapped(clean(finding.advice), wide, f"{_INDENT}→ ")
    lines += _wrapped(clean(_proof(analysis, finding)), wide, _INDENT)
    return "\n".join(lines)


def _worth(finding: Finding, share: float | None) -> str:
    """Describe the saving, and whether it was measured."""
    if finding.saving_ns_per_step is None:
        return "savings not estimated"
    part = "" if share is None else f" ({human(share, 'share')})"
    return f"saves {human(finding.saving_ns_per_step, 'ns')}{part}, {finding.basis or 'estimated'}"


def _proof(analysis: str, finding: Finding) -> str:
    parts = [finding.how] if finding.how else []
    parts += [f"confidence {100 * finding.confidence:.0f}%", *evidence(finding)]
    return "; ".join(parts) + f" [{analysis}: {finding.code}]"


def evidence(finding: Finding) -> list[str]:
    """List the first rows of evidence, and count the others."""
    return [
        f"{table} {', '.join(map(str, ids[:_NAMED_ROWS]))}"
        + (f" and {len(ids) - _NAMED_ROWS} more" if len(ids) > _NAMED_ROWS else "")
        for table, ids in finding.evidence.items()
        if ids
    ]


def _unseen(advice: Advice, width: int) -> str:
    lines = [
        line
        for note, names in advice.lacking
        for line in _wrapped(f"{clean(', '.join(names))}: {clean(note)}", width, f"{_INDENT}- ")
    ]
    return "\n".join([_SKIPPED, *lines])


def _wrapped(text: str, width: int, first: str) -> list[str]:
    lines = textwrap.wrap(
        _AMOUNT.sub(_NO_BREAK, text),
        width,
        initial_indent=first,
        subsequent_indent=" " * len(first),
        break_on_hyphens=False,
    )
    return [line.replace(_NO_BREAK, " ") for line in lines]
