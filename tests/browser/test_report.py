"""A report opened from disk: no requests, no errors, accessible."""

from __future__ import annotations

from itertools import product
from typing import TYPE_CHECKING, Any

import pytest

from samples.simulator import write
from tests.browser import axe, hostile
from tests.browser.conftest import TIMEOUT_MS
from tests.tiers import SLOW, thinned, tier_of
from tracekit import analyze, diff
from tracekit.cli.main import run as tracekit
from tracekit.ingest.importer import import_traces
from tracekit.runs.store import Store

if TYPE_CHECKING:
    from pathlib import Path

    from playwright.sync_api import Browser

_ANALYSES = "gpu_breakdown,kernels,memory,steps"
_CUT = "() => document.documentElement.scrollWidth > document.documentElement.clientWidth"
_STYLE = "(one) => [getComputedStyle(one).color, getComputedStyle(document.body).backgroundColor]"


@pytest.fixture(scope="module")
def report(tmp_path_factory: pytest.TempPathFactory, request: pytest.FixtureRequest) -> Path:
    """A report, in the slow tier on all analyses: axe takes a minute for that."""
    folder = tmp_path_factory.mktemp("report")
    write(hostile.program(), folder / "trace.json")
    file = folder / "report.html"
    command = ["report", str(folder / "trace.json"), "-o", str(file), "--title", hostile.LABEL]
    every = ["--analyses", "all"] if tier_of(request.config) == SLOW else ["--analyses", _ANALYSES]
    assert tracekit([*command, *every, "--store", str(folder / "store")]) == 0
    return file


@pytest.mark.parametrize(
    ("theme", "width"),
    thinned(product(("dark", "light"), (420, 1400)), default=[("dark", 420)]),
)
def test_it_stands_alone_and_is_dark_on_white_on_paper(
    browser: Browser, report: Path, theme: Any, width: int
) -> None:
    requests: list[str] = []
    troubles: list[str] = []
    with browser.new_context(color_scheme=theme, viewport={"width": width, "height": 900}) as context:
        context.set_default_timeout(TIMEOUT_MS)
        page = context.new_page()
        page.on("request", lambda request: requests.append(request.url))
        page.on("console", lambda message: troubles.append(message.text))
        page.on("pageerror", lambda error: troubles.append(str(error)))
        page.on("dialog", lambda dialog: troubles.append(dialog.message))
        page.goto(report.as_uri())
        assert page.evaluate(hostile.INJECTED) == []
        assert page.locator("h1").inner_text().strip()
        assert page.locator(".tk-plot").count() > 3
        assert not page.evaluate(_CUT)
        ink, paper = page.locator(".tk-plot-name").first.evaluate(_STYLE)
        assert _light(paper) == (theme == "light")
        assert _light(ink) != _light(paper)
        assert axe.serious(page) == []
        page.emulate_media(media="print")
        ink, paper = page.locator(".tk-plot-name").first.evaluate(_STYLE)
        assert _light(paper)
        assert not _light(ink)
    assert requests == [report.as_uri()]
    assert troubles == []


@pytest.fixture
def pages(report: Path) -> list[Path]:
    """Other pages of the hostile run: a comparison, and what notebooks show."""
    store = Store(report.with_name("store"))
    (run,) = import_traces(store, [report.with_name("trace.json")], label=hostile.LABEL)
    words = ["diff", run.id, run.id, "--format", "html", "-o", str(report.with_name("diff.html"))]
    assert tracekit([*words, "--store", str(store.path)]) == 0
    shown = [run, analyze(run, "kernels"), analyze(run, "ops"), diff(run, run)]
    notebook = report.with_name("notebook.html")
    notebook.write_text("<!doctype html>" + "".join(one._repr_html_() for one in shown))
    return [report.with_name("diff.html"), notebook]


@pytest.mark.slow
def test_no_name_is_executed_in_pages_of_other_commands(browser: Browser, pages: list[Path]) -> None:
    troubles: list[str] = []
    with browser.new_context() as context:
        page = context.new_page()
        page.on("request", lambda request: troubles.append(request.url))
        page.on("pageerror", lambda error: troubles.append(str(error)))
        page.on("dialog", lambda dialog: troubles.append(dialog.message))
        for file in pages:
            page.goto(file.as_uri())
            assert hostile.MARK in page.content()  # the names are there, as text
            assert page.evaluate(hostile.INJECTED) == []
    assert troubles == [file.as_uri() for file in pages]


def _light(color: str) -> bool:
    """Whether a color as the browser tells it, `rgb(r, g, b)`, is light."""
    channels = [float(one) for one in color.partition("(")[2].rstrip(")").split(",")[:3]]
    return sum(channels) > 3 * 128
