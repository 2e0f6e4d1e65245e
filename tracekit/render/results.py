"""Output formats of `tracekit findings`, and of results and findings of analyses."""

from __future__ import annotations

import json
import re
import shutil
import textwrap
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, replace
from typing import TYPE_CHECKING, Any, TypeAlias

from tracekit.analysis import Analysis, Column, Finding, Result, TableSpec
from tracekit.errors import UnusableInputError, clean, did_you_mean
from tracekit.render import capture
from tracekit.render.cells import Record, csv_text, envelope, escape, first, header, markdown_text
from tracekit.render.layout import DEFAULT_LIMIT, SHOW_ALL, table_text
from tracekit.runs.text import human
from tracekit.schema import C

if TYPE_CHECKING:
    import pandas as pd

    from tracekit.analysis.findings import Advice
    from tracekit.analysis.savings import Ranked
    from tracekit.analysis.verdict import Verdict


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


def findings_json(run_id: str, findings: Sequence[Ranked], advice: Advice, verdict: str) -> str:
    """One object: `{"schema": "tracekit.findings/1", "run": ..., "findings": [...], "notes": [...], ...}`."""
    against, verdict_of_run = advice.budget, advice.verdict
    unseen = [{"analysis": name, "note": note} for name, note in advice.unseen]
    return (
        envelope(
            "findings",
            run=run_id,
            integrity=verdict,
            verdict=None if verdict_of_run is None else _verdict(verdict_of_run),
            steps=against.steps,
            step_ns=against.step_ns,
            steps_marked=against.marked,
            rules=advice.rules,
            findings=rows(findings),
            notes=unseen,
            capture=capture.as_json(capture.of_results(advice.results)),
        )
        + "\n"
    )


def _verdict(found: Verdict) -> dict[str, Any]:
    return asdict(replace(found, findings=())) | {"findings": [one.finding.code for one in found.findings]}


def findings_csv(findings: Sequence[Ranked]) -> str:
    """Render a line per finding."""
    return csv_text([{**row, "evidence": json.dumps(row["evidence"])} for row in rows(findings)], COLUMNS)


def as_text(run_id: str, findings: Sequence[Ranked], advice: Advice, verdict: str) -> str:
    """Render for a terminal."""
    width = min(shutil.get_terminal_size((100, 40)).columns, _WIDEST)
    head = [f"run {clean(run_id)}", *([verdict] if verdict else [])]
    head += _wrapped(advice.verdict.sentence, width, "") if advice.verdict else []
    head += _wrapped(_summary(findings, advice), width, "")
    blocks = [_block(place, ranked, width) for place, ranked in enumerate(findings, 1)]
    blocks += [_unseen(advice, width)] if advice.unseen else []
    if lacks := capture.of_results(advice.results):
        blocks.append(capture.as_text(lacks, lambda text: _wrapped(text, width, f"{_INDENT}- ")))
    return "\n\n".join(["\n".join(head), *blocks]) + "\n"


def findings_markdown(run_id: str, findings: Sequence[Ranked], advice: Advice, verdict: str) -> str:
    """Render for a pull request."""
    lines = [
        f"# Findings of {escape(run_id)}",
        "",
        *([escape(verdict), ""] if verdict else []),
        *([f"**{escape(advice.verdict.sentence)}**", ""] if advice.verdict else []),
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
    lines += [_SKIPPED, "", *lacking, ""] if lacking else []
    if lacks := capture.of_results(advice.results):
        lines += capture.as_markdown(lacks)
    return "\n".join(lines).rstrip("\n") + "\n"


def _summary(findings: Sequence[Ranked], advice: Advice) -> str:
    against = advice.budget
    unit = "profiled step" if against.marked else "capture"
    length = human(against.step_ns, "ns")
    with_warmup = ", warm-up included" if against.marked else ""
    many = f"Mean {unit} {length} ({against.steps:,} {unit.split()[-1]}s{with_warmup})"
    one = f"{unit.capitalize()} {length}"
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


MOST_GROUPS = 6
_PLACES = (C.RANK, C.DEVICE)
_SHOWN = (
    Column("of", "", "column of the table"),
    Column("min", "", "minimum over all ranks", unit_in=C.UNIT),
    Column("min_rank", "", "rank with the minimum, the lowest of several"),
    Column("median", "", "lower median", unit_in=C.UNIT),
    Column("max", "", "maximum over all ranks", unit_in=C.UNIT),
    Column("max_rank", "", "rank with the maximum, the lowest of several"),
    Column(C.UNIT, "", "unit of the values"),
)


def summary(
    frame: pd.DataFrame, columns: Sequence[Column], limit: int
) -> tuple[list[Record], list[Column]] | None:
    """Summarize a table with a row per rank, or per rank and a few labels; None for other tables.

    Args:
        frame: The table.
        columns: Its columns.
        limit: Maximum rows.

    Returns:
        Rows and columns to show instead; a row per column with a unit, up to the limit.
    """
    candidates = [one for one in columns if one.name not in _PLACES]
    candidates = [one for one in candidates if not one.name.endswith("_row")]  # rows differ between ranks
    measures = [column for column in candidates if _measures(frame, column)]
    labels = [column.name for column in candidates if not column.unit and column not in measures]
    places = [name for name in _PLACES if name in frame]
    if C.ROW_ID in frame:  # each row is an event, even if it is its rank's only one
        return None
    if C.RANK not in places or not measures or frame.duplicated([*places, *labels]).any():
        return None
    groups = list(frame.groupby(labels, sort=True, observed=True, dropna=False)) if labels else [((), frame)]
    if len(groups) > MOST_GROUPS:
        return None
    each = max(1, limit // len(groups))
    rows = [
        {**dict(zip(labels, key, strict=True)), **row}
        for key, own in groups
        for row in _measured(own, measures[:each])
    ]
    return rows, [*(column for column in columns if column.name in labels), *_SHOWN]


def _measures(frame: pd.DataFrame, column: Column) -> bool:
    """Tell whether a column has values to compare: any with a unit, or floats without one."""
    from pandas.api.types import is_float_dtype

    if column.unit:
        return column.unit not in {"prose", "id"}
    return is_float_dtype(frame[column.name].dtype) and bool(frame[column.name].notna().any())


def _measured(own: pd.DataFrame, measures: Sequence[Column]) -> Iterator[Record]:
    for column in measures:
        known = own[own[column.name].notna()].sort_values([column.name, C.RANK], kind="stable")
        if known.empty:
            continue
        values, ranks = known[column.name], known[C.RANK]
        max_rank = ranks[values == values.iloc[-1]].min()
        yield {
            "of": header(column),
            "min": values.iloc[0],
            "min_rank": ranks.iloc[0],
            "median": values.iloc[(len(known) - 1) // 2],
            "max": values.iloc[-1],
            "max_rank": max_rank,
            C.UNIT: column.unit,
        }


def left_out(frame: pd.DataFrame, show_all: str) -> str:
    """Return the line below the summary: the number of rows, and how to see them."""
    return f"min, median and max of {len(frame):,} rows of {frame[C.RANK].nunique():,} ranks; {show_all}\n"


if TYPE_CHECKING:
    Results: TypeAlias = Mapping[str, tuple[Analysis, Result]]

INTEGRITY = "integrity"


def as_json(run_id: str, results: Results, *, limit: int = 0, against: str = "") -> str:
    """One object: `{"schema": "tracekit.analyze/1", "run": ..., "results": {analysis: ...}}`.

    `against` is the id of the run the results compare with; a comparison names it after the run.
    """
    content = {name: _content(analysis, result, limit) for name, (analysis, result) in results.items()}
    base = {"against": against} if against else {}
    return envelope("analyze", run=run_id, **base, results=content) + "\n"


def _content(analysis: Analysis, result: Result, limit: int) -> dict[str, Any]:
    return {
        "tables": {
            spec.name: first(result.tables[spec.name], spec.columns, limit)[0]
            for spec in analysis.tables
            if spec.name in result.tables
        },
        "findings": [asdict(finding) for finding in result.findings],
        "notes": list(result.notes),
    }


def as_csv(results: Results, *, limit: int = 0) -> str:
    """Render each table after a line `# analysis.table`; a single table without it."""
    tables = [
        (
            f"{name}.{spec.name}",
            csv_text(first(result.tables[spec.name], spec.columns, limit)[0], spec.columns),
        )
        for name, (analysis, result) in results.items()
        for spec in analysis.tables
        if spec.name in result.tables
    ]
    if len(tables) == 1:
        return tables[0][1]
    return "\n".join(f"# {title}\n{text}" for title, text in tables)


def as_table(
    run_id: str, results: Results, *, limit: int = DEFAULT_LIMIT, verdict: str = "", against: str = ""
) -> str:
    """Render for a terminal: the verdict, then tables, findings and notes of each analysis."""
    base = f" against {clean(against)}" if against else ""
    parts = [f"run {clean(run_id)}{base}\n{verdict}"]
    for analysis, result in results.values():
        parts.append(f"── {clean(analysis.title)}: {clean(analysis.question)}\n")
        parts += [
            _table(result.tables[spec.name], spec, analysis.name, limit)
            for spec in analysis.tables
            if spec.name in result.tables
        ]
        parts += [finding_text(analysis.name, finding) + "\n" for finding in result.findings]
        parts += [f"note: {clean(note)}\n" for note in result.notes]
    return "\n".join(parts)


def _table(frame: pd.DataFrame, spec: TableSpec, analysis: str, limit: int) -> str:
    """Render a table; one with a row per rank as min, median and max if it exceeds the limit."""
    title = f"{spec.title} [{analysis}.{spec.name}]"
    show_all = f"{SHOW_ALL}, --table {spec.name} only this table"
    brief = summary(frame, spec.columns, limit) if limit and len(frame) > limit else None
    if brief is None:
        return table_text(frame, spec.columns, title=title, limit=limit, show_all=show_all)
    rows, columns = brief
    return table_text(rows, columns, title=title, limit=0) + left_out(frame, show_all)


def as_markdown(
    run_id: str, results: Results, *, limit: int = 0, verdict: str = "", against: str = ""
) -> str:
    """Render for a document: headings, tables, findings and notes."""
    base = f" against {escape(against)}" if against else ""
    parts = [f"# {escape(run_id)}{base}\n", *([escape(verdict.strip()) + "\n"] if verdict else [])]
    for analysis, result in results.values():
        parts.append(f"## {escape(analysis.title)}\n")
        parts += [
            markdown_text(result.tables[spec.name], spec.columns, title=spec.title, limit=limit)
            for spec in analysis.tables
            if spec.name in result.tables
        ]
        said = [f"{one.severity}: {one.title}: {one.advice} [{one.code}]" for one in result.findings]
        parts += [f"- {escape(text)}\n" for text in said]
        parts += [f"> {escape(note)}\n" for note in result.notes]
    return "\n".join(parts)


def verdict_line(result: Result) -> str:
    """Return the integrity verdict in one line, or why there is none."""
    if "verdict" not in result.tables:
        return f"{INTEGRITY}: unknown: {clean('; '.join(result.notes))}\n"
    row = result.tables["verdict"].iloc[0]
    return f"{INTEGRITY}: {clean(str(row['verdict']))}: {clean(str(row['reason']))}\n"


def notes(results: Results) -> list[str]:
    """Return the notes of the analyses, one line each."""
    return [f"{clean(name)}: {clean(note)}" for name, (_, result) in results.items() for note in result.notes]


def only_table(results: Results, table: str) -> Results:
    """Keep only the tables of a name.

    Raises:
        UnusableInputError: No result has such a table.
    """
    chosen = {
        name: (analysis, replace(result, tables={table: result.tables[table]}))
        for name, (analysis, result) in results.items()
        if table in result.tables
    }
    if not chosen:
        known = sorted({name for _, result in results.values() for name in result.tables})
        raise UnusableInputError(
            f"no table {clean(table)!r}{_why_without(results, table)}",
            hint=did_you_mean(table, known) or f"available: {', '.join(known) or 'none'}",
        )
    return chosen


def _why_without(results: Results, table: str) -> str:
    """Return why the analyses with such a table did not produce it, as the end of an error message."""
    declaring = {
        name: (analysis, result)
        for name, (analysis, result) in results.items()
        if any(spec.name == table for spec in analysis.tables)
    }
    reasons = "; ".join(notes(declaring))
    if reasons:
        return f" for this run: {reasons}"
    return f" for this run, though {', '.join(declaring)} can produce it" if declaring else ""
