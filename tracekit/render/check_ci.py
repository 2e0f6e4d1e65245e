"""Results of `tracekit check` for continuous integration: JUnit XML and GitHub annotations."""

from __future__ import annotations

from xml.etree import ElementTree as ET

from tracekit.errors import ExitCode, clean
from tracekit.experiments.check_model import CheckResult, Configuration, Outcome
from tracekit.render import check_sentences as sentences
from tracekit.stats.comparison import Comparison, Verdict

_LEVELS = {Verdict.REGRESSION: "error", Verdict.CANNOT_TELL: "warning", Verdict.NONE: "warning"}


def as_junit(result: CheckResult) -> str:
    """Render as a test suite with a case per metric of each configuration.

    A regression is a failure. A case that is not comparable or inconclusive is an error, as the check did not
    pass. A configuration without a baseline is skipped.
    """
    cases = [case for configuration in result.configurations for case in _cases(configuration)]
    counts = {kind: sum(case.find(kind) is not None for case in cases) for kind in _KINDS}
    suite = ET.Element("testsuite", {"name": "tracekit check", "tests": str(len(cases))})
    suite.attrib |= {name: str(counts[kind]) for kind, name in _KINDS.items()}
    suite.extend(cases)
    ET.SubElement(suite, "system-out").text = clean(
        f"{sentences.headline(result)}. {sentences.command(result)}"
    )
    ET.indent(suite)
    return f'<?xml version="1.0" encoding="utf-8"?>\n{ET.tostring(suite, encoding="unicode")}\n'


_KINDS = {"failure": "failures", "error": "errors", "skipped": "skipped"}


def _cases(configuration: Configuration) -> list[ET.Element]:
    if configuration.outcome is Outcome.NOT_COMPARABLE:
        fields = ", ".join(
            f"{difference.field} ({difference.status})" for difference in configuration.differences
        )
        return [_case(configuration, "comparability", "error", str(configuration.outcome), fields)]
    if configuration.outcome is Outcome.NO_BASELINE:
        return [_case(configuration, "baseline", "skipped", sentences.sides(configuration))]
    cases = [_metric_case(configuration, metric) for metric in configuration.comparisons]
    one_sided = [
        _case(configuration, name, "error", "only one side measured it") for name in configuration.one_sided
    ]
    return [*cases, *one_sided]


def _metric_case(configuration: Configuration, metric: Comparison) -> ET.Element:
    if metric.verdict is Verdict.REGRESSION:
        return _case(configuration, metric.name, "failure", str(metric.verdict), metric.reason)
    if metric.verdict in _LEVELS:
        return _case(configuration, metric.name, "error", str(metric.verdict), metric.reason)
    return _case(configuration, metric.name)


def _case(
    configuration: Configuration, name: str, kind: str = "", message: str = "", text: str = ""
) -> ET.Element:
    case = ET.Element("testcase", {"classname": clean(configuration.name), "name": name})
    if kind:
        ET.SubElement(case, kind, {"message": clean(message)}).text = clean(text) or None
    return case


def as_github(result: CheckResult) -> str:
    """Render as workflow commands: an error per regression, a warning per open metric, or one notice."""
    message = f"{sentences.headline(result)}. Reproduce: {sentences.command(result)}"
    lines = [_annotation("notice" if result.exit_code is ExitCode.OK else "warning", "tracekit", message)]
    if result.exit_code is ExitCode.REGRESSION:
        lines = []
    for configuration in result.configurations:
        lines += [
            _annotation(
                _LEVELS[metric.verdict],
                f"{configuration.name}: {metric.name}",
                f"{metric.verdict}: {metric.reason}",
            )
            for metric in configuration.comparisons
            if metric.verdict in _LEVELS
        ]
        if configuration.outcome is Outcome.NOT_COMPARABLE:
            fields = ", ".join(
                f"{difference.field} {difference.base} -> {difference.head}"
                for difference in configuration.differences
            )
            lines.append(_annotation("warning", f"{configuration.name}: not comparable", fields))
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
