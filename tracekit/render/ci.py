"""Results for continuous integration: test suites of JUnit, annotations of GitHub, and a page to attach."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from urllib.parse import quote
from xml.etree import ElementTree as ET

from tracekit.analysis.savings import Ranked
from tracekit.errors import clean
from tracekit.registry import VERSION
from tracekit.render.document import Table
from tracekit.render.page import fold_table, page
from tracekit.stats.comparison import Comparison, Verdict

LEVELS = {Verdict.REGRESSION: "error", Verdict.CANNOT_TELL: "warning", Verdict.NONE: "warning"}
"""Level of the annotation of a metric by its verdict; others have none."""
_ONE_SIDED = "only one side measured it"
_KINDS = {"failure": "failures", "error": "errors", "skipped": "skipped"}


@dataclass(frozen=True)
class Case:
    """A test case."""

    group: str  # what the case belongs to
    name: str  # name of the case
    kind: str = ""  # `failure`, `error` or `skipped`; empty if it passed
    message: str = ""  # why it did not pass
    text: str = ""  # the details

    @classmethod
    def of_metric(cls, group: str, metric: Comparison) -> Case:
        """Return the case of a metric: a regression is a failure, an inconclusive one an error."""
        if metric.verdict not in LEVELS:
            return cls(group, metric.name)
        kind = "failure" if metric.verdict is Verdict.REGRESSION else "error"
        return cls(group, metric.name, kind, str(metric.verdict), metric.reason)


def make_cases(group: str, metrics: Iterable[Comparison], one_sided: Iterable[str]) -> list[Case]:
    """Return a case per metric; one that only one side measured is an error."""
    cases = [Case.of_metric(group, metric) for metric in metrics]
    return [*cases, *(Case(group, name, "error", _ONE_SIDED) for name in one_sided)]


def explain_one_sided(names: Iterable[str]) -> list[str]:
    """Return a sentence for each metric that only one side measured."""
    return [f"{name}: {_ONE_SIDED}" for name in names]


def write_junit(title: str, cases: Sequence[Case], output: str) -> str:
    """Return a test suite.

    Args:
        title: Name of the suite.
        cases: Its cases.
        output: Text for its standard output.
    """
    suite = ET.Element("testsuite", {"name": title, "tests": str(len(cases))})
    counts = {name: sum(case.kind == kind for case in cases) for kind, name in _KINDS.items()}
    suite.attrib |= {name: str(count) for name, count in counts.items()}
    for case in cases:
        element = ET.SubElement(suite, "testcase", {"classname": clean(case.group), "name": clean(case.name)})
        if case.kind:
            problem = ET.SubElement(element, case.kind, {"message": clean(case.message)})
            problem.text = clean(case.text) or None
    ET.SubElement(suite, "system-out").text = clean(output)
    ET.indent(suite)
    return f'<?xml version="1.0" encoding="utf-8"?>\n{ET.tostring(suite, encoding="unicode")}\n'


Sample = tuple[str, Mapping[str, str], float]
"""A sample of a metric: its name, labels and value."""


def write_prometheus(samples: Iterable[Sample], helps: Mapping[str, str]) -> str:
    r"""Return gauges in the text format of Prometheus.

    Args:
        samples: The samples.
        helps: Meaning of each metric, in the order of the output.

    Example:
        >>> print(write_prometheus([("s", {"name": 'a"b'}, 0.5)], {"s": "Seconds"}), end="")
        # HELP s Seconds
        # TYPE s gauge
        s{name="a\"b"} 0.5
    """
    by_name: dict[str, list[str]] = {}
    for name, labels, value in samples:
        words = ",".join(f'{key}="{_escape_label(clean(text))}"' for key, text in labels.items())
        by_name.setdefault(name, []).append(
            f"{name}{{{words}}} {value:.12g}" if words else f"{name} {value:.12g}"
        )
    heads = {name: [f"# HELP {name} {text}", f"# TYPE {name} gauge"] for name, text in helps.items()}
    lines = [line for name, head in heads.items() if name in by_name for line in [*head, *by_name[name]]]
    return "".join(f"{line}\n" for line in lines)


def write_otlp(samples: Iterable[Sample], helps: Mapping[str, str], time_ns: int) -> str:
    """Return gauges as a line of OTLP in JSON: the body of a request, or a line of a file.

    Args:
        samples: The samples.
        helps: Meaning of each metric, in the order of the output.
        time_ns: When they were measured, ns since the epoch.
    """
    points: dict[str, list[dict[str, object]]] = {}
    for name, labels, value in samples:
        point = {"attributes": _attributes(labels), "timeUnixNano": str(time_ns), "asDouble": float(value)}
        points.setdefault(name, []).append(point)
    gauges = [
        {"name": name, "description": text, "unit": _UNITS.get(name.rpartition("_")[2], "1")}
        | {"gauge": {"dataPoints": points[name]}}
        for name, text in helps.items()
        if name in points
    ]
    resource = {"attributes": _attributes({"service.name": "tracekit"})}
    scope = {"name": "tracekit", "version": VERSION}
    content = [{"resource": resource, "scopeMetrics": [{"scope": scope, "metrics": gauges}]}]
    return json.dumps({"resourceMetrics": content}) + "\n"


_UNITS = {"seconds": "s", "bytes": "By"}
"""Units of the OpenTelemetry protocol, by the last word of a metric's name."""


def _attributes(labels: Mapping[str, str]) -> list[dict[str, object]]:
    return [{"key": key, "value": {"stringValue": clean(text)}} for key, text in labels.items()]


def _escape_label(text: str) -> str:
    return text.replace("\\", r"\\").replace('"', r"\"")


Place = tuple[str, int]
"""A file, relative to the checkout, and a line."""
SARIF_LEVELS = {"high": "error", "warn": "warning", "info": "note"}
_SARIF = "https://json.schemastore.org/sarif-2.1.0.json"


def write_sarif(findings: Sequence[tuple[Ranked, Place | None]], version: str) -> str:
    """Return findings with a source line in SARIF 2.1.0, for code scanning, which takes no others.

    Args:
        findings: Findings, each with its place if it is known.
        version: Version of tracekit.
    """
    placed = [(ranked, place) for ranked, place in findings if place]
    codes = sorted({ranked.finding.code for ranked, _ in placed})
    results = [
        {
            "ruleId": ranked.finding.code,
            "level": SARIF_LEVELS[ranked.finding.severity],
            "message": {"text": _without_links(f"{ranked.finding.title}. {ranked.finding.advice}")},
            "locations": [
                {
                    "physicalLocation": {
                        "artifactLocation": {"uri": quote(file)},
                        "region": {"startLine": line},
                    }
                }
            ],
        }
        for ranked, (file, line) in placed
    ]
    driver = {"name": "tracekit", "version": version, "rules": [{"id": code} for code in codes]}
    runs = [{"tool": {"driver": driver}, "results": results}]
    return json.dumps({"$schema": _SARIF, "version": "2.1.0", "runs": runs}) + "\n"


def _without_links(text: str) -> str:
    """Return plain text for SARIF, in which `[text](address)` would be a link."""
    return clean(text).replace("](", "] (")


def annotate_findings(findings: Sequence[tuple[Ranked, Place | None]]) -> str:
    """Return a workflow command of GitHub per finding, at its source line if that is known."""
    levels = {"high": "warning", "warn": "warning", "info": "notice"}  # an error would read as a failed check
    return "".join(
        annotate(levels[ranked.finding.severity], ranked.finding.code, text, place) + "\n"
        for ranked, place in findings
        for text in [f"{ranked.finding.title}. {ranked.finding.advice}"]
    )


def annotate(level: str, title: str, message: str, place: Place | None = None) -> str:
    """Return a workflow command of GitHub that annotates a commit or a line, escaped as GitHub specifies.

    Example:
        >>> annotate("error", "mlp: step_time", "slower by 10%")
        '::error title=mlp%3A step_time::slower by 10%25'
        >>> annotate("notice", "idle", "slow", ("train.py", 12))
        '::notice title=idle,file=train.py,line=12::slow'
    """
    words = {"title": title} | ({"file": place[0], "line": str(place[1])} if place else {})
    head = ",".join(
        f"{key}={_escape(word).replace(':', '%3A').replace(',', '%2C')}" for key, word in words.items()
    )
    return f"::{level} {head}::{_escape(message)}"


def annotate_metrics(group: str, metrics: Iterable[Comparison], one_sided: Iterable[str] = ()) -> list[str]:
    """Return the annotations of the metrics at which one may have to look.

    Args:
        group: What the metrics belong to.
        metrics: The compared metrics.
        one_sided: Names of metrics that only one side measured.
    """
    lines = [
        annotate(LEVELS[metric.verdict], f"{group}: {metric.name}", f"{metric.verdict}: {metric.reason}")
        for metric in metrics
        if metric.verdict in LEVELS
    ]
    return [*lines, *(annotate("warning", f"{group}: {name}", _ONE_SIDED) for name in one_sided)]


def _escape(text: str) -> str:
    return clean(text).replace("%", "%25").replace("\r", "%0D").replace("\n", "%0A")


@dataclass(frozen=True, kw_only=True)
class Report:
    """What continuous integration shows of a verdict: an HTML page, a test suite, or annotations."""

    command: str  # the command that gave the verdict
    headline: str  # the verdict in one line
    tone: str = ""  # `good`, `bad` or empty
    sides: Sequence[str] = ()  # what was compared
    metrics: Table | None = None
    reasons: Sequence[str] = ()  # reasons for their verdicts
    causes: Sequence[tuple[str, Table]] = ()  # sentences on what changed, each with a table
    fields: Table | None = None  # fields in which the sides differ
    notes: Sequence[str] = ()  # further notes
    further: Sequence[tuple[str, Sequence[str]]] = ()  # headings, each with commands to run next
    reproduce: str  # the command that gives the verdict again
    cases: Sequence[Case]  # cases of the test suite
    annotations: Sequence[str]  # workflow commands of GitHub

    def write(self, output_format: str) -> str:
        """Render as `html`, in the reader's light or dark theme, as `junit` or as `github`."""
        match output_format:
            case "junit":
                return write_junit(self.command, self.cases, f"{self.headline}. {self.reproduce}")
            case "github":
                return "".join(f"{line}\n" for line in self.annotations)
        tables = {"metrics": _fold(self.metrics), "fields": _fold(self.fields)}
        causes = [(text, fold_table(table)) for text, table in self.causes]
        commands = [*self.further, ("Reproduce", [self.reproduce])]
        return page("check.html.j2", {**vars(self), **tables, "causes": causes, "commands": commands})


def _fold(table: Table | None) -> list[dict[str, object]]:
    return [fold_table(table)] if table and table.rows else []
