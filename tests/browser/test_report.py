"""A report opened from disk: no requests, no errors, accessible."""

from __future__ import annotations

from itertools import product
from typing import TYPE_CHECKING, Any

import pytest

from samples.simulator import write
from tests.browser import axe, hostile
from tests.browser.conftest import TIMEOUT_MS
from tests.tiers import SLOW, thinned, tier_of
from tracekit.cli.main import run as tracekit

if TYPE_CHECKING:
    from pathlib import Path

    from playwright.sync_api import Browser

_ANALYSES = "gpu_breakdown,kernels,memory,steps"
_CUT = "() => document.documentElement.scrollWidth > document.documentElement.clientWidth"
_STYLE = "(one) => [getComputedStyle(one).fill, getComputedStyle(document.body).backgroundColor]"


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
        assert page.locator("h1").inner_text().strip()
        assert page.locator("svg").count() > 3
        assert not page.evaluate(_CUT)
        ink, paper = page.locator("svg text:not(.inside)").first.evaluate(_STYLE)
        assert _light(paper) == (theme == "light")
        assert _light(ink) != _light(paper)
        assert axe.serious(page) == []
        page.emulate_media(media="print")
        ink, paper = page.locator("svg text:not(.inside)").first.evaluate(_STYLE)
        assert _light(paper)
        assert not _light(ink)
    assert requests == [report.as_uri()]
    assert troubles == []


def _light(color: str) -> bool:
    """Whether a color as the browser tells it, `rgb(r, g, b)`, is light."""
    channels = [float(one) for one in color.partition("(")[2].rstrip(")").split(",")[:3]]
    return sum(channels) > 3 * 128
