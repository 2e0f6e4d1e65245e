"""The flame graph in a real browser: by mouse, by keyboard and by search."""

from __future__ import annotations

import re
import shutil
import threading
from typing import TYPE_CHECKING, Any

import pytest

playwright = pytest.importorskip("playwright.sync_api", reason="playwright is not installed")
CHROMIUM = shutil.which("chromium")
pytestmark = pytest.mark.skipif(CHROMIUM is None, reason="chromium is not installed")

from tracekit.dashboards.app import create_app  # noqa: E402
from werkzeug.serving import make_server  # noqa: E402

from tests.builders import host, kernel, make_run  # noqa: E402
from tracekit.schema import C  # noqa: E402
from tracekit.store import Store  # noqa: E402

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

expect = playwright.expect
HOSTILE = "<img src=x onerror='window.hurt=1'>" + "x" * 300
WAIT_MS = 30_000


@pytest.fixture(scope="module")
def address(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Two roots: `long` of 3 ms around a hostile name and `inner`, and `short` of 1 ms."""
    path: Path = tmp_path_factory.mktemp("flame")
    make_run(
        path / "store",
        host_intervals=[
            host("long", 0, 3_000_000),
            host(HOSTILE, 0, 2_000_000, parent_row=0, depth=1),
            host("inner", 0, 1_500_000, parent_row=1, depth=2),
            host("short", 3_000_000, 4_000_000),
        ],
        device_intervals=[kernel(10, 1_010, **{C.OP_ROW: 3})],
    )
    server = make_server("127.0.0.1", 0, create_app(Store(path / "store")).server, threaded=True)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    yield f"http://127.0.0.1:{server.server_port}"
    server.shutdown()
    thread.join()


@pytest.fixture
def page(browser: Any, address: str) -> Iterator[Any]:
    """The page of the flame graph; what the browser complains of or asks others for fails the test."""
    opened = browser.new_page(viewport={"width": 1440, "height": 900})
    complaints: list[str] = []
    opened.on("console", lambda said: complaints.append(said.text) if said.type == "error" else None)
    opened.on("pageerror", lambda error: complaints.append(str(error)))
    opened.on(
        "request",
        lambda asked: (
            None if asked.url.startswith((address, "data:", "blob:")) else complaints.append(asked.url)
        ),
    )
    opened.goto(f"{address}/flame")
    expect(opened.locator("#flame canvas")).to_be_visible(timeout=WAIT_MS)
    yield opened
    assert complaints == []
    opened.close()


def test_arrows_walk_the_tree_and_say_where_they_are(page: Any) -> None:
    said = page.locator("#flame-said")
    page.locator("#flame canvas").focus()
    page.keyboard.press("ArrowDown")
    expect(said).to_contain_text(
        "host total 3.00 ms, 75.0% of all · host self 1.00 ms · 1 calls · all › long"
    )
    page.keyboard.press("ArrowRight")
    expect(said).to_contain_text("all › short")
    page.keyboard.press("ArrowUp")
    expect(said).to_contain_text("host total 4.00 ms, 100.0% of all")


def test_a_click_zooms_and_escape_goes_back(page: Any) -> None:
    canvas = page.locator("#flame canvas")
    width = canvas.bounding_box()["width"]
    canvas.click(position={"x": width * 0.9, "y": 33})
    expect(page.locator("#flame-said")).to_contain_text("all › short")
    canvas.hover(position={"x": 20, "y": 33})
    expect(page.locator(".tk-flame-tip")).to_contain_text("short\nhost total 1.00 ms, 25.0% of all")
    page.keyboard.press("Escape")
    canvas.hover(position={"x": 21, "y": 33})
    expect(page.locator(".tk-flame-tip")).to_contain_text("long")


def test_search_says_how_many_and_how_long(page: Any) -> None:
    page.locator("#flame canvas").focus()
    page.keyboard.press("/")
    expect(page.locator("#flame-search")).to_be_focused()
    page.keyboard.type("inner")
    expect(page.locator("#flame-found")).to_have_text("1 nodes, 1.50 ms, 37.5% of all")
    page.locator("#flame-search").fill("nothing like it")
    expect(page.locator("#flame-found")).to_have_text("no name holds this")


def test_hostile_names_are_text(page: Any) -> None:
    canvas = page.locator("#flame canvas")
    canvas.hover(position={"x": 20, "y": 55})
    expect(page.locator(".tk-flame-tip")).to_contain_text("<img src=x onerror=")
    assert page.evaluate("window.hurt") is None


def test_the_width_can_be_device_time_and_the_address_says_so(page: Any) -> None:
    page.get_by_role("link", name="Device time").click()
    expect(page).to_have_url(re.compile("side=device"))
    page.locator('#flame[data-side="device"] canvas').focus()
    page.keyboard.press("ArrowDown")
    expect(page.locator("#flame-said")).to_contain_text("device total 1.00 µs, 100.0% of all")
    expect(page.locator("#flame-said")).to_contain_text("all › short")
