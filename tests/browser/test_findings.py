"""Findings in a browser: loading, keyboard, and links to their evidence."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import pytest
from playwright.sync_api import expect

from tests.browser.watch import NARROW, WIDE

if TYPE_CHECKING:
    from tests.browser.conftest import Opening
    from tests.browser.serving import Served


def test_findings_arrive_and_lead_to_their_evidence(site: Served, warm_tab: Opening) -> None:
    watch = warm_tab(site)
    page = watch.go(site.url("overview", "gpu"), "Overview")
    cards = page.locator("#advice .tk-finding")
    expect(cards.first).to_be_visible()
    expect(page.locator("#advice .tk-advice-summary")).to_be_visible()  # the final cards replace partial ones
    first = cards.filter(has=page.get_by_role("link", name="Show on the timeline")).first
    first.locator("summary").press("Enter")
    expect(first.locator(".tk-evidence")).to_be_visible()
    first.get_by_role("link", name="Show on the timeline").click()
    expect(page).to_have_url(re.compile(r"/timeline\?.*from=\d+&to=\d+&row=\w+:\d+"))
    # a selection that the chosen rank leaves out is told
    watch.go(site.url("timeline", "job", rank=1, row="device_intervals:1"), "Timeline")
    expect(page.get_by_text("The selection is on rank 0, device 0, which is filtered out")).to_be_visible()


SHIFT = """() => new Promise((done) => {
  const watched = (list) => done(list.getEntries().reduce((sum, one) => sum + one.value, 0));
  new PerformanceObserver(watched).observe({ type: "layout-shift", buffered: true });
  setTimeout(done, 500, 0); // without any shift, the observer is never called
})"""


@pytest.mark.parametrize("width", [WIDE, NARROW])
def test_nothing_moves_while_a_page_loads(site: Served, tab: Opening, width: int) -> None:
    watch = tab(site)
    watch.resize(width)
    watch.open(site.url("overview", "job"))
    expect(watch.page.locator("#advice .tk-advice-summary")).to_be_visible()
    assert watch.page.evaluate(SHIFT) < 0.01


@pytest.mark.slow
def test_evidence_of_another_rank_is_shown_though_one_is_chosen(site: Served, warm_tab: Opening) -> None:
    watch = warm_tab(site)
    page = watch.go(site.url("overview", "job", rank=0), "Overview")
    expect(page.locator("#advice .tk-advice-summary")).to_be_visible()  # not only the findings so far
    links = page.locator("#advice .tk-finding").get_by_role("link", name="Show on the timeline")
    addresses = links.evaluate_all("links => links.map((one) => one.getAttribute('href'))")
    assert any("rank=0" not in address for address in addresses)
    for address in addresses:
        watch.go(site.address + address, "Timeline")
        expect(page.locator(".tkl-status")).to_contain_text("from")
        expect(page.locator(".tkl-status")).not_to_contain_text("filtered out")
