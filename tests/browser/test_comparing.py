"""Compare, Sweeps and History in a browser: choices have addresses and keep the focus."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import pytest

pytest.importorskip("playwright", reason="playwright is not installed")
from playwright.sync_api import expect

from tests.browser.serving import served
from tests.browser.watch import leave
from tests.unit.dashboards.pairs import BASE, HEAD, OTHER, pair_store
from tests.unit.dashboards.test_history_page import recorded
from tests.unit.dashboards.test_sweeps_page import swept
from tracekit.runs.store import Store

if TYPE_CHECKING:
    import socket
    from collections.abc import Iterator

    from playwright.sync_api import Page

    from tests.browser.conftest import Opening
    from tests.browser.serving import Served


@pytest.fixture(scope="module")
def compared(tmp_path_factory: pytest.TempPathFactory, port: socket.socket) -> Iterator[Served]:
    """A dashboard over a pair, a sweep and a history."""
    folder = tmp_path_factory.mktemp("compared")
    pair_store(folder)
    store = Store(folder)
    for at, size in enumerate((8, 16, 32)):
        swept(store, at, 1000 * size, batch_size=size)
    for at, day in enumerate((1, 2, 2, 1, 1, 2)):  # of one occasion, in ABBA order
        recorded(store, day, 1000 * day + at, at=at)
    with served(store, port=port) as answering:
        yield answering


@pytest.fixture
def address(compared: Served) -> str:
    return compared.address


@pytest.fixture
def tab(warm_tab: Opening, compared: Served) -> Page:
    """A tab in which nothing may go wrong, nor leave the machine."""
    return warm_tab(compared).page


def arrived(page: Page, heading: str) -> None:
    expect(page.get_by_role("heading", name=heading)).to_be_visible()


def test_a_base_is_chosen_declared_and_compared(tab: Page, address: str) -> None:
    leave(tab, f"{address}/compare?run={HEAD}")
    tab.get_by_role("link", name=OTHER).click()
    tab.get_by_role("link", name="Compare anyway").click()
    arrived(tab, "Analyses")
    expect(tab).to_have_url(re.compile(f"base={OTHER}&varying=gpu"))
    for heading in ("Metrics", "Both runs on one time axis", "Step time breakdown", "Changes in work"):
        arrived(tab, heading)
    expect(tab.locator("#compare-stage")).to_have_text("")
    tab.get_by_text("Fields that differ").click()
    tab.get_by_role("link", name="Undo").click()
    expect(tab.get_by_role("link", name="Compare anyway")).to_be_visible()


def test_an_interval_selects_its_match_and_a_comparison_is_saved_as_a_file(tab: Page, address: str) -> None:
    leave(tab, f"{address}/compare?run={HEAD}&base={BASE}&row=device_intervals:1&side=a")
    said = tab.locator("#aligned").get_by_role("status")
    expect(said).to_contain_text("gemm: 100 ns in A, 150 ns in B (+50 ns, +50.0%)")
    tab.get_by_role("button", name="by op").click()
    expect(tab).to_have_url(
        re.compile("align=op.*row=device_intervals:1&side=a|row=device_intervals:1&side=a.*align=op")
    )
    tab.get_by_role("application").press("Comma")
    expect(said).to_contain_text("call 1 of ")
    expect(tab).to_have_url(re.compile("row=device_intervals:0&side=a"))
    tab.get_by_role("link", name="module", exact=True).click()
    expect(tab.get_by_role("link", name="✓ module")).to_be_visible()
    expect(tab).to_have_url(re.compile("by=module.*row=device_intervals:0|row=device_intervals:0.*by=module"))
    with tab.expect_download() as download:
        tab.get_by_role("link", name="CSV (causes)").click()
    assert download.value.suggested_filename == f"{BASE}-to-{HEAD}.csv"


def test_two_runs_move_to_a_match_and_have_the_lanes_of_the_timeline(tab: Page, address: str) -> None:
    pair = f"{address}/compare?run={HEAD}&base={BASE}"
    leave(tab, f"{pair}&row=device_intervals:1&side=a&from=-1000&to=1000")
    shown = tab.locator("#aligned")
    canvas = shown.get_by_role("application")
    expect(shown.get_by_role("status")).to_contain_text("gemm: 100 ns in A, 150 ns in B")
    tab.get_by_role("button", name="by op").click()
    expect(tab).to_have_url(re.compile("align=op"))
    canvas.scroll_into_view_if_needed()
    box = canvas.bounding_box()
    assert box
    first, last = tab.evaluate(
        "['from', 'to'].map((name) => Number(new URLSearchParams(location.search).get(name)))"
    )
    streams = shown.locator(".tkl-line-device").all()
    for stream, text in ((streams[0], "100 ns"), (streams[len(streams) // 2], "150 ns")):
        place = stream.bounding_box()
        assert place
        at = box["x"] + box["width"] * (50 - first) / (last - first)  # 50 ns after the start of both
        tab.mouse.move(at, place["y"] + place["height"] / 2)
        expect(shown.locator(".tkl-tip-time")).to_have_text(text)
        expect(shown.locator(".tkl-tooltip")).to_contain_text("from 0.000 000 000 s")
    canvas.press("Escape")
    expect(tab).not_to_have_url(re.compile("row="))
    canvas.press("Enter")
    expect(tab).to_have_url(re.compile("row=host_intervals:0&side=a"))
    shown.get_by_role("button", name=re.compile("^Hide stream")).first.click()
    expect(tab).to_have_url(re.compile("hide=\\d+"))
    leave(tab, tab.url)
    expect(shown.get_by_role("button", name=re.compile("^Show 1 hidden of A"))).to_be_visible()


@pytest.mark.slow
def test_a_choice_keeps_the_focus_and_sides_swap(tab: Page, address: str) -> None:
    leave(tab, f"{address}/compare?run={HEAD}&base={BASE}")
    arrived(tab, "Changes in work")
    tab.get_by_role("link", name="kernel", exact=True).press("Enter")
    expect(tab.get_by_role("link", name="✓ kernel")).to_be_focused()
    tab.get_by_role("link", name="⇄ Swap").click()
    expect(tab).to_have_url(re.compile(f"run={BASE}&base={HEAD}&by=kernel"))
    expect(tab.locator(".tk-side").first).to_contain_text(HEAD)
    tab.get_by_text("Add runs, or compare").click()
    tab.get_by_role("row", name=OTHER).get_by_role("link", name="add").click()
    arrived(tab, "All 3 runs")
    arrived(tab, "Each run against A")
    expect(tab).to_have_url(re.compile(f"runs={OTHER}"))
    tab.get_by_role("link", name=re.compile("^Remove C")).click()
    expect(tab.get_by_role("heading", name="All 3 runs")).to_have_count(0)
    tab.get_by_role("tab", name="Only in A (1)").click()
    expect(tab.get_by_role("tabpanel", name="Only in A (1)")).to_be_visible()


def test_a_sweep_shows_another_metric_and_a_change_of_history_its_comparison(tab: Page, address: str) -> None:
    leave(tab, f"{address}/sweeps")
    arrived(tab, "Data")
    tab.get_by_role("link", name="throughput").click()
    expect(tab.get_by_role("link", name="✓ throughput")).to_be_visible()
    expect(tab).to_have_url(re.compile("y=throughput"))
    expect(tab.locator(".tk-plot-lines polyline")).to_have_count(1)
    tab.locator("a.tk-plot-dot").first.click()
    arrived(tab, "Overview")
    leave(tab, f"{address}/history")
    arrived(tab, "Bisect")
    expect(tab.get_by_text("▲ regression")).to_be_visible()
    tab.get_by_role("link", name="with previous commit").click()
    expect(tab).to_have_url(re.compile("/compare\\?.*repeats=all"))
    expect(tab.get_by_role("link", name="✓ all repeats (3 and 3)")).to_be_visible()
