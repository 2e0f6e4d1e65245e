"""Names from a trace in every output: markup, formulas, links and control characters act nowhere."""

from __future__ import annotations

import csv
import io
import json
import re
import zipfile
from html.parser import HTMLParser
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.browser import hostile
from tracekit.analysis import Finding, Severity
from tracekit.analysis.savings import Ranked
from tracekit.cli.main import run as tracekit
from tracekit.export.tables import FORMULAS
from tracekit.render.ci import annotate_findings, write_prometheus, write_sarif

if TYPE_CHECKING:
    from tests.shared_runs import SharedRuns

CONTROL = re.compile("[\x00-\x09\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]")
LINK = "[press](javascript:alert(1)) ![x](https://example.org/x.png)"
ACTIVE = re.compile(r"(?<!\\)<(?:script|img|iframe|svg|b|a)\b|(?<!\\)\]\(|(?<!\\)!\[")
"""Markup and links of Markdown that are not escaped."""
COMMANDS = {
    "kernels": ("analyze", "RUN", "kernels"),
    "ops": ("analyze", "RUN", "ops", "--limit", "0"),
    "findings": ("findings", "RUN"),
    "diff": ("diff", "RUN", "RUN"),
    "show": ("show", "RUN"),
    "query": ("query", "--run", "RUN", "SELECT name, stack, input_dtypes FROM host_intervals"),
}
FORMATS = ("table", "json", "csv", "markdown")


class Acting(HTMLParser):
    """Collects the elements and attributes of a page that a name could have become."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.found: list[str] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        if tag in {"script", "iframe", "object", "embed", "img", "form", "base", "link"}:
            self.found.append(tag)
        for name, value in attrs:
            if name.startswith("on") or (name in {"href", "src"} and not str(value).startswith("#")):
                self.found.append(f"{tag} {name}={value}")

    def handle_data(self, data: str) -> None:
        if self.get_starttag_text() == "<b>" and data == "bold":
            self.found.append("b")


@pytest.fixture(scope="module")
def path(shared_runs: SharedRuns) -> str:
    return str(shared_runs.simulated(hostile.program()).path)


@pytest.fixture
def output(path: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> object:
    def call(*words: str) -> str:
        arguments = [path if word == "RUN" else word for word in words]
        assert tracekit([*arguments, "--store", str(tmp_path / "store")]) in {0, 1, 3}
        return capsys.readouterr().out

    return call


@pytest.mark.slow_except("kernels-markdown", "findings-table", "query-csv")
@pytest.mark.parametrize("output_format", FORMATS)
@pytest.mark.parametrize("command", COMMANDS)
def test_names_act_in_no_text(command: str, output_format: str, output: object) -> None:
    text = output(*COMMANDS[command], "--format", output_format)  # type: ignore[operator]
    assert text.strip()
    assert CONTROL.findall(text) == []
    if output_format == "markdown":
        assert ACTIVE.findall(re.sub(r"(`+)[^`].*?\1", "", text)) == []
    if output_format == "json":
        assert json.loads(text)
        assert text.isascii()
    if output_format == "csv":
        assert list(csv.reader(io.StringIO(text), strict=True))


@pytest.mark.parametrize("words", [("diff", "RUN", "RUN", "--format", "html")], ids=["diff"])
def test_names_act_in_no_page(words: tuple[str, ...], output: object) -> None:
    text = output(*words)  # type: ignore[operator]
    assert Acting(text).found == []
    assert CONTROL.findall(text) == []


@pytest.mark.slow
def test_names_act_in_no_report(output: object, tmp_path: Path) -> None:
    file = tmp_path / "report.html"
    output("report", "RUN", "--analyses", "all", "-o", str(file), "--title", hostile.LABEL)  # type: ignore[operator]
    text = file.read_text()
    assert Acting(text).found == []
    assert hostile.MARK in text  # the names are there, as text


@pytest.mark.parametrize("name", ["tables", "tables.zip"])
def test_names_are_no_formulas_in_safe_tables(name: str, output: object, tmp_path: Path) -> None:
    place = tmp_path / name
    output("export", "RUN", "--to", "csv", "--safe", "-o", str(place))  # type: ignore[operator]
    files = (
        [zipfile.ZipFile(place).read(one).decode() for one in zipfile.ZipFile(place).namelist()]
        if place.is_file()
        else [one.read_text() for one in place.iterdir()]
    )
    cells = [cell for text in files for row in csv.reader(io.StringIO(text)) for cell in row]
    assert [cell for cell in cells if cell.lstrip().startswith(FORMULAS) and not _is_number(cell)] == []
    assert [cell for cell in cells if CONTROL.search(cell)] == []
    quoted = {cell for cell in cells if cell.startswith("'")}
    assert quoted >= {f"'{name}" for name in hostile.NAMES if name.startswith(FORMULAS)}


def _is_number(cell: str) -> bool:
    return bool(re.fullmatch(r"-?\d+(?:\.\d+)?(?:e[+-]?\d+)?", cell))


def test_names_are_as_recorded_in_other_tables(output: object, tmp_path: Path) -> None:
    output("export", "RUN", "--to", "csv", "-o", str(tmp_path / "tables"))  # type: ignore[operator]
    with (tmp_path / "tables" / "device_intervals.csv").open(newline="") as file:
        names = {row["name"] for row in csv.DictReader(file)}
    assert names >= {name for name in hostile.NAMES if name.startswith(FORMULAS)}
    assert tracekit(["export", "latest", "--safe", "--store", str(tmp_path / "store")]) == 2


def test_names_are_data_in_a_trace_for_perfetto(output: object) -> None:
    text = output("export", "RUN", "-o", "-")  # type: ignore[operator]
    names = {event.get("name") for event in json.loads(text)["traceEvents"]}
    assert {name for name in hostile.NAMES if name.isprintable() and len(name) < 200} <= names
    assert CONTROL.findall(text) == []


def test_names_act_in_no_annotation() -> None:
    names = [*hostile.NAMES, LINK, "x\n::error::y", "%0A::error::y"]
    findings = [
        (
            Ranked("kernels", Finding(f"code{number}", Severity.HIGH, name, name), None),
            (f"a {name[:9]}.py", 3),
        )
        for number, name in enumerate(names)
    ]
    content = json.loads(write_sarif(findings, "1"))
    results = content["runs"][0]["results"]
    assert len(results) == len(names)
    for result in results:
        assert not CONTROL.search(result["message"]["text"])
        assert "](" not in result["message"]["text"]
        uri = result["locations"][0]["physicalLocation"]["artifactLocation"]["uri"]
        assert re.fullmatch(r"[\w.%/~-]+", uri, re.ASCII)
    lines = annotate_findings(findings).splitlines()
    assert len(lines) == len(names)
    assert all(re.match(r"::warning title=code\d+,file=[^,:]*,line=3::", line) for line in lines)
    assert not CONTROL.search("".join(lines))


def test_names_are_data_in_labels_of_metrics() -> None:
    samples = [("seconds", {"workload": name, "label": name}, 0.5) for name in (*hostile.NAMES, 'a"} 9\nb 1')]
    lines = write_prometheus(samples, {"seconds": "Seconds"}).splitlines()
    label = r'"(?:[^"\\\n]|\\["\\n])*"'
    assert all(re.fullmatch(rf"seconds{{workload={label},label={label}}} 0\.5", line) for line in lines[2:])
    assert len(lines) == 2 + len(samples)
