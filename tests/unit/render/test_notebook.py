"""Objects in notebooks: summaries without scripts, DataFrames, figures."""

from __future__ import annotations

import re
from html.parser import HTMLParser
from typing import TYPE_CHECKING, Any

import pytest

import tracekit
from samples.simulator.planted import idle
from tests.browser import hostile
from tracekit.analysis import Finding, Result, Severity
from tracekit.errors import UnknownNameError, UnusableInputError
from tracekit.render.notebook import analysis_of

if TYPE_CHECKING:
    from tests.shared_runs import SharedRuns
    from tracekit.runs.run import Run


class Checker(HTMLParser):
    """Collects the elements of a text, and what they could execute."""

    def __init__(self) -> None:
        super().__init__()
        self.tags: set[str] = set()
        self.acting: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.add(tag)
        self.acting += [name for name, _ in attrs if name.startswith("on") or name in {"src", "href"}]


def elements(shown: Any) -> Checker:
    checker = Checker()
    checker.feed(shown._repr_html_())
    return checker


@pytest.fixture(scope="module")
def run(shared_runs: SharedRuns) -> Run:
    return shared_runs.simulated(idle.loading())


def test_everything_has_a_summary_that_cannot_act(run: Run, shared_runs: SharedRuns) -> None:
    made = shared_runs.simulated(hostile.program())
    result = tracekit.analyze(made, "kernels")
    finding = Finding("code", Severity.HIGH, hostile.NAMES[0], hostile.NAMES[1], 5, how=hostile.NAMES[4])
    for shown in (made, result, finding, tracekit.diff(made, made), Result(notes=(hostile.NAMES[0],))):
        found = elements(shown)
        assert found.tags <= {
            *("div", "style", "h2", "h3", "dl", "dt", "dd", "p", "details", "summary"),
            *("table", "caption", "thead", "tbody", "tr", "th", "td"),
        }
        assert found.acting == []


def test_a_summary_has_both_themes_and_its_numbers_with_units(run: Run) -> None:
    text = tracekit.analyze(run, "gpu_breakdown")._repr_html_()
    assert "prefers-color-scheme: dark" in text
    assert "[data-jp-theme-light=false]" in text
    assert re.search(r">\d+\.\d+ [µm]s<", text)


def test_a_result_is_recognized_by_its_tables(run: Run) -> None:
    for name in ("gpu_breakdown", "steps", "idle_gaps", "kernels"):
        definition = analysis_of(tracekit.analyze(run, name))
        assert definition is not None
        assert definition.name == name
    assert analysis_of(Result()) is None


def test_tables_are_data_frames(run: Run) -> None:
    assert run.to_pandas()["dur_ns"].dtype == "int64"
    assert len(run.to_pandas("device_intervals")) == run.rows("device_intervals")
    result = tracekit.analyze(run, "idle_gaps")
    assert result.to_pandas().equals(next(iter(result.tables.values())))
    assert result.to_pandas("gaps").equals(result.tables["gaps"])
    (row,) = tracekit.findings(run, "idle_gaps")[0].to_pandas().to_dict("records")
    assert row["code"] == "idle_dataload"
    found = tracekit.diff(run, run)
    assert found.to_pandas("metrics")["metric"].iloc[0] == "step_time"
    with pytest.raises(UnknownNameError, match="unknown table of the comparison"):
        found.to_pandas("metric")


def test_figures_are_those_of_the_dashboard(run: Run, shared_runs: SharedRuns) -> None:
    figure = tracekit.analyze(run, "idle_gaps").plot()
    assert figure.data[0].type == "bar"
    dark = tracekit.analyze(run, "idle_gaps").plot(dark=True)
    assert dark.layout.font.color != figure.layout.font.color
    assert run.plot().layout.xaxis.title.text == "step"
    mended = shared_runs.simulated(idle.loading(clean=True))
    assert len(tracekit.diff(mended, run).plot().data[0].x) > 1
    finding = tracekit.findings(run, "idle_gaps")[0]
    with pytest.raises(UnusableInputError, match="a Finding has no figure"):
        finding.plot()
    with pytest.raises(UnusableInputError, match="nothing to draw"):
        Result().plot()
