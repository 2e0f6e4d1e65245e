"""Gate results for continuous integration: JUnit XML and GitHub annotations."""

from __future__ import annotations

from typing import TYPE_CHECKING
from xml.etree import ElementTree as ET

from tracekit.checking.model import Outcome
from tracekit.errors import ExitCode
from tracekit.render import check_words as words
from tracekit.render.cells import clean
from tracekit.stats.comparison import Verdict

if TYPE_CHECKING:
    from tracekit.checking.model import Configuration, Gate
    from tracekit.stats.comparison import Comparison

_LEVELS = {Verdict.REGRESSION: "error", Verdict.CANNOT_TELL: "warning", Verdict.NONE: "warning"}


def as_junit(gate: Gate) -> str:
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


def as_github(gate: Gate) -> str:
    """Render as workflow commands: an error per regression, a warning per open metric, or one notice."""
    lines = [
        _annotation("notice" if gate.exit_code is ExitCode.OK else "warning", "tracekit", _message(gate))
    ]
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


def _message(gate: Gate) -> str:
    return f"{words.headline(gate)}. Reproduce: {words.command(gate)}"


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
