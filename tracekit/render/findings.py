"""Report of `tracekit findings`: advice on a run by saving, and what was not recorded."""

from __future__ import annotations

import json
import re
import textwrap
from collections.abc import Sequence
from dataclasses import asdict, replace
from typing import Any

from tracekit.analysis import Column, Finding
from tracekit.analysis.findings import CAPTURE_TITLE, Advice, Capture
from tracekit.analysis.savings import MIN_ASIDE_SHARE, Ranked, Verdict
from tracekit.errors import clean
from tracekit.render.cells import csv_text, escape, escape_prose, json_text
from tracekit.render.document import Block, Raw, terminal_width, write
from tracekit.runs.text import human

_INDENT = "    "
_MAX_WIDTH = 110
_MAX_EVIDENCE_ROWS = 5
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
            "measured": [asdict(trial) for trial in ranked.measured],
            **asdict(ranked.finding),
        }
        for place, ranked in enumerate(findings, 1)
    ]


def render(
    run_id: str, findings: Sequence[Ranked], advice: Advice, output_format: str, *, more: str = ""
) -> str:
    """Render advice as text, Markdown, JSON or CSV.

    As text: the run, its integrity and verdict, a summary, each finding (`finding_text`), the analyses that
    lack data, and what to record.

    Args:
        run_id: The run.
        findings: The findings to show.
        advice: All of the advice, with what could not be checked.
        output_format: `table`, `json`, `csv` or `markdown`.
        more: Command that prints all of it. A table then omits the proof of findings, and has a line each on
            missing data and what to record; where an analysis failed, it lists all that was skipped.
    """
    match output_format:
        case "json":
            return _json(run_id, findings, advice)
        case "csv":
            return csv_text(
                [_csv_row(row, ranked) for row, ranked in zip(rows(findings), findings, strict=True)], COLUMNS
            )
    command = more if output_format == "table" else ""
    return write(output_format, _blocks(run_id, findings, advice, command))


def _csv_row(row: dict[str, Any], ranked: Ranked) -> dict[str, Any]:
    advice = " ".join([row["advice"], *describe_remedies(ranked.finding)])
    return {**row, "advice": advice, "evidence": json.dumps(row["evidence"])}


def _blocks(run_id: str, findings: Sequence[Ranked], advice: Advice, more: str) -> list[Block]:
    """Return the parts of the text, each also in Markdown."""
    width, integrity = terminal_width(_MAX_WIDTH), advice.integrity.strip()
    verdict = advice.verdict.sentence if advice.verdict else ""
    summary = _summarize(findings, advice)
    head = [f"run {clean(run_id)}", *([integrity] if integrity else [])]
    head += [line for text in (verdict, summary) for line in _wrap(text, width)]
    blocks: list[Block] = [
        Raw(_lines(head), f"# Findings of {escape(run_id)}\n"),
        Raw(markdown=_lines([escape(integrity)] if integrity else [])),
        Raw(markdown=_lines([f"**{escape(verdict)}**"] if verdict else [])),
        Raw(markdown=_lines([escape(summary)])),
        *(_finding_block(place, ranked, width, proof=not more) for place, ranked in enumerate(findings, 1)),
    ]
    if not more or not advice.complete:
        blocks += _skipped_blocks(advice, width)  # names what failed, too
    if more:
        return [*blocks, Raw(_summarize_missing(advice, more, width))]
    return [*blocks, _capture_block(advice.capture, width)] if advice.capture else blocks


def _summarize_missing(advice: Advice, more: str, width: int) -> str:
    """Return a line on the analyses that lack data, and one on what to record."""
    count = len({name for name, _ in advice.unseen})
    lack = "analysis lacks" if count == 1 else "analyses lack"
    lines = [f"{count} {lack} data: `{clean(more)}`"] if count and advice.complete else []
    if advice.capture:
        names = ", ".join(clean(item.missing) for item in advice.capture.missing)
        lines += _wrap(f"What to record: {names} (code: `--more`)", width)
    return _lines(lines)


def _capture_block(missing: Capture, width: int) -> Raw:
    title = f"{CAPTURE_TITLE} ({missing.framework}):"
    items = [line for item in missing.missing for line in _wrap(clean(item.text), width, f"{_INDENT}- ")]
    code = [clean(line) for line in missing.lines]
    indented = [f"{_INDENT}{line}".rstrip() for line in code]
    bullets = [f"- {escape_prose(item.text)}" for item in missing.missing]
    return Raw(
        _lines([clean(title), *items, "", *indented]),
        _lines([escape(title), "", *bullets, "", "```", *code, "```"]),
    )


def _lines(lines: Sequence[str]) -> str:
    return "".join(f"{line}\n" for line in lines)


def _finding_block(place: int, ranked: Ranked, width: int, *, proof: bool) -> Raw:
    """Return a numbered finding."""
    finding, share = ranked.finding, ranked.share_of_step
    trials = describe_trials(ranked)
    text = finding_text(ranked.analysis, finding, share=share, width=width, proof=proof, trials=trials)
    lines = [
        f"{place}. **{escape(finding.title)}** ({escape(_describe_saving(finding, share))})\n",
        *(f"   {escape_prose(line)}\n" for line in trials),
        f"   {escape(finding.advice)}\n",
        *(f"   {escape(line)}\n" for line in describe_remedies(finding)),
        f"   {escape(_describe_proof(ranked.analysis, finding))}\n",
    ]
    return Raw(f"{place:2}. {text}\n", "\n".join(lines))


def describe_trials(ranked: Ranked) -> list[str]:
    """Return what `tracekit try` measured of a finding, a line each."""
    lines = [trial.text for trial in ranked.measured]
    refuted = "changes that this rule advises saved nothing on other programs of this store"
    return [*lines, refuted] if ranked.is_refuted else lines


def describe_remedies(finding: Finding) -> list[str]:
    """Return the findings of the same time with their advice, a line each."""
    return [
        f"Also: {remedy.title}"
        f"{'' if remedy.saving_ns_per_step is None else f' ({_describe_amount(remedy)})'}. {remedy.advice}"
        for remedy in finding.remedies
    ]


def _skipped_blocks(advice: Advice, width: int) -> list[Block]:
    if not advice.lacking:
        return []
    names = [(", ".join(analyses), note) for note, analyses in advice.lacking]
    items = [
        line for name, note in names for line in _wrap(f"{clean(name)}: {clean(note)}", width, f"{_INDENT}- ")
    ]
    return [
        Raw(_lines([_SKIPPED, *items]), f"{_SKIPPED}\n"),
        Raw(markdown=_lines([f"- {escape(note)} ({escape(name)})" for name, note in names])),
    ]


def _json(run_id: str, findings: Sequence[Ranked], advice: Advice) -> str:
    """One object: `{"schema": "tracekit.findings/1", "run": ..., "findings": [...], "notes": [...], ...}`."""
    budget, verdict = advice.budget, advice.verdict
    return json_text(
        "findings",
        run=run_id,
        integrity=advice.integrity.strip(),
        verdict=None if verdict is None else _verdict(verdict),
        steps=budget.steps,
        step_ns=budget.step_ns,
        steps_marked=budget.marked,
        rules=advice.rules,
        findings=rows(findings),
        notes=[{"analysis": name, "note": note} for name, note in advice.unseen],
        capture=asdict(advice.capture) if advice.capture else None,
    )


def _verdict(verdict: Verdict) -> dict[str, Any]:
    codes = [ranked.finding.code for ranked in verdict.findings]
    return asdict(replace(verdict, findings=())) | {"findings": codes}


def _summarize(findings: Sequence[Ranked], advice: Advice) -> str:
    """Return the line with the time per step and the counts of findings and rules."""
    budget = advice.budget
    unit = "profiled step" if budget.marked else "capture"
    length = human(budget.step_ns, "ns")
    length += f" of {human(budget.step_ns + budget.aside_ns, 'ns')}" if budget.aside_ns else ""
    if budget.earlier_ns >= MIN_ASIDE_SHARE * (budget.step_ns + budget.earlier_ns) > 0:
        length += f" after {human(budget.earlier_ns, 'ns')} of work from before the capture"
    with_warmup = ", warm-up included" if budget.marked else ""
    mean = f"Mean {unit} {length} ({budget.steps:,} {unit.split()[-1]}s{with_warmup})"
    single = f"{unit.capitalize()} {length}"
    takes = mean if budget.steps > 1 else single
    rules = f"{advice.rules} rule{'s' * (advice.rules != 1)} checked"
    count = f"{len(findings):,} finding{'s' * (len(findings) != 1)}, {rules}"
    caution = ". Savings overlap; don't sum them" if len(findings) > 1 else ""
    if not budget.step_ns:
        return f"No intervals recorded. {count}."
    unmarked = "" if budget.marked else " No steps are marked: savings are per capture."
    return f"{takes}. {count}{caution}.{unmarked}"


def finding_text(
    analysis: str,
    finding: Finding,
    *,
    share: float | None = None,
    width: int | None = None,
    proof: bool = True,
    trials: Sequence[str] = (),
) -> str:
    """Render a finding for a terminal: saving, problem, advice, and proof.

    Args:
        analysis: Name of the analysis.
        finding: The finding.
        share: Saving as a share of the mean step, if known.
        width: Characters per line; by default the terminal's.
        proof: Whether to add the formula, confidence, evidence, analysis and rule.
        trials: What was measured of its advice, a line each.
    """
    width = width or terminal_width(_MAX_WIDTH)
    lines = [f"{finding.severity.upper()}: {_describe_saving(finding, share)}"]
    lines += _wrap(clean(finding.title), width, _INDENT)
    lines += [line for trial in trials for line in _wrap(clean(trial), width, f"{_INDENT}→ ")]
    for advice in (finding.advice, *describe_remedies(finding)):
        lines += _wrap(clean(advice), width, f"{_INDENT}→ ")
    if proof:
        lines += _wrap(clean(_describe_proof(analysis, finding)), width, _INDENT)
    return "\n".join(lines)


def _describe_saving(finding: Finding, share: float | None) -> str:
    """Describe the saving, and whether it was measured."""
    if finding.saving_ns_per_step is None:
        return "savings not estimated"
    part = "" if share is None else f" ({human(share, 'share')})"
    return f"{_describe_amount(finding)}{part}, {finding.basis or 'estimated'}"


def _describe_amount(finding: Finding) -> str:
    return f"{finding.saves} {human(finding.saving_ns_per_step, 'ns')}"


def _describe_proof(analysis: str, finding: Finding) -> str:
    parts = [finding.how] if finding.how else []
    parts += [f"confidence {100 * finding.confidence:.0f}%", *evidence(finding)]
    return "; ".join(parts) + f" [{analysis}: {finding.code}]"


def evidence(finding: Finding) -> list[str]:
    """List the first rows of evidence, and count the others."""
    return [
        f"{table} {', '.join(map(str, ids[:_MAX_EVIDENCE_ROWS]))}"
        + (f" and {len(ids) - _MAX_EVIDENCE_ROWS} more" if len(ids) > _MAX_EVIDENCE_ROWS else "")
        for table, ids in finding.evidence.items()
        if ids
    ]


def _wrap(text: str, width: int, first: str = "") -> list[str]:
    lines = textwrap.wrap(
        _AMOUNT.sub(_NO_BREAK, text),
        width,
        initial_indent=first,
        subsequent_indent=" " * len(first),
        break_on_hyphens=False,
    )
    return [line.replace(_NO_BREAK, " ") for line in lines]
