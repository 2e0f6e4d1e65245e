"""Ranked advice in the formats of `tracekit findings`."""

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
_NOT_JUDGED = "Not judged, for what the run does not hold:"
_AMOUNT = re.compile(r"(?<=\d) (?=(?:%|ns|µs|ms|s|B|[KMGT]iB|[kMGT]B/s|[kMGTP]?FLOP(?:/s)?)(?!\w))")
"""The space between a number and its unit, at which no line is broken."""
_HELD = "\N{NO-BREAK SPACE}"

COLUMNS = (
    Column("place", "", "place in the list"),
    Column("severity", "", "info, warn or high"),
    Column("saving_ns_per_step", "ns", "time a step would save"),
    Column("share_of_step", "share", "saving over the mean step"),
    Column("code", "", "rule that gave it"),
    Column("analysis", "", "analysis the rule belongs to"),
    Column("title", "prose", "what is the case"),
    Column("advice", "prose", "what to change"),
    Column("basis", "", "measured or estimated"),
    Column("how", "prose", "how the saving was worked out"),
    Column("confidence", "share", "how sure the cause is"),
    Column("evidence", "id", "rows of the run that show it, as JSON"),
)
"""What is known of each finding, in order."""


def rows(findings: Sequence[Ranked]) -> list[dict[str, Any]]:
    """The findings as mappings by column name; the evidence as a mapping of table to row ids."""
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
    """One line a finding."""
    return csv_text([{**row, "evidence": json.dumps(row["evidence"])} for row in rows(findings)], COLUMNS)


def as_text(run_id: str, findings: Sequence[Ranked], advice: Advice, verdict: str) -> str:
    """For people on a terminal."""
    width = min(shutil.get_terminal_size((100, 40)).columns, _WIDEST)
    head = [f"run {clean(run_id)}", *([verdict] if verdict else [])]
    head += _wrapped(_summary(findings, advice), width, "")
    blocks = [_block(place, ranked, width) for place, ranked in enumerate(findings, 1)]
    blocks += [_unseen(advice, width)] if advice.unseen else []
    return "\n\n".join(["\n".join(head), *blocks]) + "\n"


def as_markdown(run_id: str, findings: Sequence[Ranked], advice: Advice, verdict: str) -> str:
    """For pasting into a pull request."""
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
    lines += [_NOT_JUDGED, "", *lacking] if lacking else []
    return "\n".join(lines).rstrip("\n") + "\n"


def _summary(findings: Sequence[Ranked], advice: Advice) -> str:
    against = advice.budget
    unit = "step" if against.marked else "capture"
    many = f"A {unit} takes {human(against.step_ns, 'ns')} (mean of {against.steps:,})"
    one = f"The {unit} takes {human(against.step_ns, 'ns')}"
    takes = many if against.steps > 1 else one
    count = f"{len(findings):,} finding{'s' * (len(findings) != 1)} of {advice.rules} rules"
    caution = "; savings may be of the same time, so they do not add up" if len(findings) > 1 else ""
    if not against.step_ns:
        return f"No interval was recorded. {count}."
    unmarked = "" if against.marked else " No steps are marked, so savings are per capture."
    return f"{takes}. {count}{caution}.{unmarked}"


def _block(place: int, ranked: Ranked, width: int) -> str:
    text = finding_text(ranked.analysis, ranked.finding, share=ranked.share_of_step, width=width)
    return f"{place:2}. {text}"


def finding_text(
    analysis: str, finding: Finding, *, share: float | None = None, width: int | None = None
) -> str:
    """A finding for people on a terminal: what it saves, what is the case, what to do, and how sure that is.

    Args:
        analysis: Name of the analysis.
        finding: What it found.
        share: Its saving over the mean step, if that is known.
        width: Characters of a line; the terminal's by default.
    """
    wide = width or min(shutil.get_terminal_size((100, 40)).columns, _WIDEST)
    lines = [f"{finding.severity.upper()}: {_worth(finding, share)}"]
    lines += _wrapped(clean(finding.title), wide, _INDENT)
    lines += _wrapped(clean(finding.advice), wide, f"{_INDENT}→ ")
    lines += _wrapped(clean(_proof(analysis, finding)), wide, _INDENT)
    return "\n".join(lines)


def _worth(finding: Finding, share: float | None) -> str:
    """What a finding saves, and whether that was measured."""
    if finding.saving_ns_per_step is None:
        return "no saving can be given"
    part = "" if share is None else f" ({human(share, 'share')})"
    return f"saves {human(finding.saving_ns_per_step, 'ns')}{part}, {finding.basis or 'estimated'}"


def _proof(analysis: str, finding: Finding) -> str:
    parts = [finding.how] if finding.how else []
    parts += [f"confidence {100 * finding.confidence:.0f}%", *evidence(finding)]
    return "; ".join(parts) + f" [{analysis}: {finding.code}]"


def evidence(finding: Finding) -> list[str]:
    """The weightiest rows by name, the others counted."""
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
    return "\n".join([_NOT_JUDGED, *lines])


def _wrapped(text: str, width: int, first: str) -> list[str]:
    lines = textwrap.wrap(
        _AMOUNT.sub(_HELD, text),
        width,
        initial_indent=first,
        subsequent_indent=" " * len(first),
        break_on_hyphens=False,
    )
    return [line.replace(_HELD, " ") for line in lines]
