"""Results of `tracekit check` for continuous integration: JUnit XML and GitHub annotations."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any
from xml.etree import ElementTree as ET

from tracekit.analysis import Column
from tracekit.errors import ExitCode, clean
from tracekit.experiments.check_model import CheckResult, Configuration, Outcome
from tracekit.render import check as words
from tracekit.render.cells import Record, code, details, escape, fitting, markdown_text, short
from tracekit.render.check import causes
from tracekit.render.diff_tables import Table
from tracekit.render.page import folding, page
from tracekit.runs.text import shorten
from tracekit.stats.comparison import Comparison, Verdict

_LEVELS = {Verdict.REGRESSION: "error", Verdict.CANNOT_TELL: "warning", Verdict.NONE: "warning"}


def as_junit(gate: CheckResult) -> str:
    """Render as a test suite with a case per metric of each configuration.

    A regression is a failure. A case that is not comparable or inconclusive is an error, as the gate did not
    pass. A configuration without a baseline is skipped.
    """
    cases = [case for each in gate.configurations for case in _cases(each)]
    counted = {kind: sum(case.find(kind) is not None for case in cases) for kind in _KINDS}
    suite = ET.Element("testsuite", {"name": "tracekit check", "tests": str(len(cases))})
    suite.attrib |= {name: str(counted[kind]) for kind, name in _KINDS.items()}
    suite.extend(cases)
    ET.SubElement(suite, "system-out").text = clean(f"{words.headline(gate)}. {words.command(gate)}")
    ET.indent(suite)
    return f'<?xml version="1.0" encoding="utf-8"?>\n{ET.tostring(suite, encoding="unicode")}\n'


_KINDS = {"failure": "failures", "error": "errors", "skipped": "skipped"}


def _cases(each: Configuration) -> list[ET.Element]:
    if each.outcome is Outcome.NOT_COMPARABLE:
        fields = ", ".join(f"{one.field} ({one.status})" for one in each.differences)
        return [_case(each, "comparability", "error", str(each.outcome), fields)]
    if each.outcome is Outcome.NO_BASELINE:
        return [_case(each, "baseline", "skipped", words.sides(each))]
    cases = [_of_metric(each, one) for one in each.comparisons]
    open_ones = [_case(each, name, "error", "only one side measured it") for name in each.one_sided]
    return [*cases, *open_ones]


def _of_metric(each: Configuration, one: Comparison) -> ET.Element:
    if one.verdict is Verdict.REGRESSION:
        return _case(each, one.name, "failure", str(one.verdict), one.reason)
    if one.verdict in _LEVELS:
        return _case(each, one.name, "error", str(one.verdict), one.reason)
    return _case(each, one.name)


def _case(each: Configuration, name: str, kind: str = "", message: str = "", text: str = "") -> ET.Element:
    case = ET.Element("testcase", {"classname": clean(each.name), "name": name})
    if kind:
        ET.SubElement(case, kind, {"message": clean(message)}).text = clean(text) or None
    return case


def as_github(gate: CheckResult) -> str:
    """Render as workflow commands: an error per regression, a warning per open metric, or one notice."""
    message = f"{words.headline(gate)}. Reproduce: {words.command(gate)}"
    lines = [_annotation("notice" if gate.exit_code is ExitCode.OK else "warning", "tracekit", message)]
    if gate.exit_code is ExitCode.REGRESSION:
        lines = []
    for each in gate.configurations:
        lines += [
            _annotation(_LEVELS[one.verdict], f"{each.name}: {one.name}", f"{one.verdict}: {one.reason}")
            for one in each.comparisons
            if one.verdict in _LEVELS
        ]
        if each.outcome is Outcome.NOT_COMPARABLE:
            fields = ", ".join(f"{one.field} {one.base} -> {one.head}" for one in each.differences)
            lines.append(_annotation("warning", f"{each.name}: not comparable", fields))
    return "".join(f"{line}\n" for line in lines)


def _annotation(level: str, title: str, message: str) -> str:
    """Format a workflow command, escaped as GitHub specifies.

    Example:
        >>> _annotation("error", "a: b", "10% slower")
        '::error title=a%3A b::10%25 slower'
    """
    head = _data(title).replace(":", "%3A").replace(",", "%2C")
    return f"::{level} title={head}::{_data(message)}"


def _data(text: str) -> str:
    return clean(text).replace("%", "%25").replace("\r", "%0D").replace("\n", "%0A")


_TEMPLATE = "check.html.j2"
_TONES = {
    ExitCode.OK: "good",
    ExitCode.REGRESSION: "bad",
    ExitCode.NOT_COMPARABLE: "bad",
}


def as_html(gate: CheckResult) -> str:
    """Render as an HTML page that follows the reader's light or dark theme."""
    return page(_TEMPLATE, _content(gate))


def _content(gate: CheckResult) -> dict[str, Any]:
    metrics = Table("metrics", "Metrics", words.COLUMNS, words.metric_rows(gate))
    fields = Table("fields", "Differences of the runs", words.FIELDS, words.metric_fields(gate))
    return {
        "headline": clean(words.headline(gate)),
        "tone": _TONES.get(gate.exit_code, ""),
        "sides": [clean(words.sides(each)) for each in gate.configurations],
        "metrics": [folding(metrics, limit=0, unfolded=True)] if metrics.rows else [],
        "reasons": [clean(line) for line in words.reasons(gate)],
        "causes": [(clean(text), folding(one, limit=0, unfolded=True)) for text, one in causes(gate)],
        "fields": [folding(fields, limit=0, unfolded=True)] if fields.rows else [],
        "notes": [clean(note) for note in words.notes(gate)],
        "commands": [
            ("Break down the difference", [clean(line) for line in words.differences(gate)]),
            ("Find the commit", [clean(line) for line in words.searches(gate)]),
            ("Reproduce", [clean(words.command(gate))]),
        ],
    }


MOST_BYTES = 60_000
_MOST_ROWS = 50
_WIDEST = 160
_LONGEST = 4_000
_SIGNS = {ExitCode.OK: "✅", ExitCode.REGRESSION: "❌"}


def as_markdown(gate: CheckResult) -> str:
    """Render verdict, metrics, causes, differences and next commands; notes are folded."""
    parts = [
        f"## {_SIGNS.get(gate.exit_code, '⚠️')} {escape(words.headline(gate))}\n",
        _items([words.sides(each) for each in gate.configurations]),
        _table(words.metric_rows(gate), words.COLUMNS),
        _items(words.reasons(gate)),
        *(
            f"{escape(text)}\n\n{_table(one.rows, one.columns, title=one.title)}"
            for text, one in causes(gate)
        ),
        _table(words.metric_fields(gate), words.FIELDS, title="Differences of the runs"),
        details("Notes", _items(words.notes(gate))),
        *(f"Break down the difference: {code(line)}\n" for line in words.differences(gate)[:_MOST_ROWS]),
        *(f"Find the commit: {code(line)}\n" for line in words.searches(gate)[:_MOST_ROWS]),
    ]
    again = words.command(gate)
    known = len(again.encode()) <= _LONGEST
    end = f"Reproduce: {code(again)}\n" if known else "Reproduce: in `--format json`\n"
    room = MOST_BYTES - len(end.encode())
    return "\n".join(one for one in (*fitting(parts, room, elsewhere="`--format json`"), end) if one)


def _items(lines: Sequence[str]) -> str:
    shown = [f"- {escape(shorten(line, 400))}\n" for line in lines[:_MOST_ROWS]]
    more = len(lines) - len(shown)
    return "".join(shown) + (f"- {more} more in `--format json`\n" if more else "")


def _table(rows: Sequence[Record], columns: Sequence[Column], *, title: str = "") -> str:
    shown = [short(row, _WIDEST) for row in rows]
    return markdown_text(shown, columns, title=title, limit=_MOST_ROWS) if shown else ""
