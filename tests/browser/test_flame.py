"""Flame graph in a browser: mouse, keyboard and search."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import pytest
from playwright.sync_api import expect

from tests.browser.serving import served
from tests.browser.watch import leave
from tests.builders import host, kernel, make_run
from tracekit.runs.store import Store
from tracekit.schema import C, HostKind

if TYPE_CHECKING:
    import socket
    from collections.abc import Iterator

    from playwright.sync_api import Page

    from tests.browser.conftest import Opening
    from tests.browser.serving import Served

HOSTILE = "<img src=x onerror='window.hurt=1'>" + "x" * 300


@pytest.fixture(scope="module")
def flames(tmp_path_factory: pytest.TempPathFactory, port: socket.socket) -> Iterator[Served]:
    """Two roots: `long` of 3 ms around a hostile name and `inner`, and `short` of 1 ms."""
    path = tmp_path_factory.mktemp("flame")
    make_run(
        path / "store",
        host_intervals=[
            host("long", 0, 3_000_000, parent_row=4),
            host(HOSTILE, 0, 2_000_000, parent_row=0, depth=1),
            host("inner", 0, 1_500_000, parent_row=1, depth=2),
            host("short", 3_000_000, 4_000_000),
            host("nn.Module: Net_0", 0, 3_000_000, kind=HostKind.PYTHON),
        ],
        device_intervals=[kernel(10, 1_010, **{C.OP_ROW: 3})],
    )
    with served(Store(path / "store"), port=port) as answering:
        yield answering


@pytest.fixture
def page(warm_tab: Opening, flames: Served) -> Page:
    """The page of the flame graph; what the browser complains of or asks others for fails the test."""
    opened = warm_tab(flames).page
    leave(opened, flames.url("flame"))
    expect(opened.locator("#flame canvas")).to_be_visible()
    return opened


def test_nodes_are_told_of_searched_and_chosen_and_hostile_names_are_text(page: Page, flames: Served) -> None:
    said, tip = page.locator("#flame-status"), page.locator(".tk-flame-tip")
    canvas = page.locator("#flame canvas")
    # arrows walk the tree and say where they are
    canvas.focus()
    page.keyboard.press("ArrowDown")
    expect(said).to_contain_text(
        "host total 3.00 ms, 75.0% of total · host self 1.00 ms · 1 call · all › long"
    )
    page.keyboard.press("ArrowRight")
    expect(said).to_contain_text("all › short")
    page.keyboard.press("ArrowUp")
    expect(said).to_contain_text("host total 4.00 ms, 100.0% of total")
    # a click zooms and Escape goes back
    box = canvas.bounding_box()
    assert box
    canvas.click(position={"x": box["width"] * 0.9, "y": 33})
    expect(said).to_contain_text("all › short")
    canvas.hover(position={"x": 20, "y": 33})
    expect(tip).to_contain_text("short\nhost total 1.00 ms, 25.0% of total")
    page.keyboard.press("Escape")
    canvas.hover(position={"x": 21, "y": 33})
    expect(tip).to_contain_text("long")
    # hostile names are text
    canvas.hover(position={"x": 20, "y": 55})
    expect(tip).to_contain_text("<img src=x onerror=")
    assert page.evaluate("window.hurt") is None
    # search says how many and how long
    canvas.focus()
    page.keyboard.press("/")
    expect(page.locator("#flame-search")).to_be_focused()
    page.keyboard.type("inner")
    expect(page.locator("#flame-matches")).to_have_text("1 node, 1.50 ms, 37.5% of total")
    page.locator("#flame-search").fill("nothing like it")
    expect(page.locator("#flame-matches")).to_have_text("no matches")
    # device time and modules are chosen, and the address says so
    leave(page, flames.url("flame"))
    page.get_by_role("link", name="Device time").click()
    expect(page).to_have_url(re.compile("side=device"))
    page.locator('#flame[data-side="device"] canvas').focus()
    page.keyboard.press("ArrowDown")
    expect(said).to_contain_text("device total 1.00 µs, 100.0% of total")
    expect(said).to_contain_text("all › short")
    leave(page, flames.url("flame"))
    expect(page.locator('#flame[data-side="host"]')).to_be_visible()
    page.get_by_role("link", name="By module").click()
    expect(page).to_have_url(re.compile("by=modules"))
    page.locator('#flame[data-by="modules"] canvas').focus()
    page.keyboard.press("ArrowDown")
    expect(said).to_contain_text("3.00 ms, 75.0% of total · 1 call · all › Net_0")
    page.keyboard.press("ArrowDown")
    expect(said).to_contain_text("host self 1.50 ms · 1 call · all › Net_0 › inner")
