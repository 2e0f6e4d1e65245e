"""Frame in a browser: choices are in the address and restored from it; the theme is remembered."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import pytest
from playwright.sync_api import expect

from tests.browser.hostile import ATTACK, INJECTED, WORDS
from tests.browser.watch import NARROW, leave

if TYPE_CHECKING:
    from playwright.sync_api import Page, Request, Route

    from tests.browser.conftest import Opening
    from tests.browser.serving import Served


def choose(page: Page, picker: str, text: str) -> None:
    """Choose an option of one of the pickers by the end of what it shows."""
    page.locator(f"#{picker}").click()
    options = page.get_by_role("option").filter(has_text=re.compile(re.escape(text) + "$"))
    options.filter(visible=True).first.click()


def test_run_rank_and_peaks_are_chosen_and_another_run_forgets_the_rank(
    site: Served, warm_tab: Opening
) -> None:
    watch = warm_tab(site)
    page = watch.go(site.url("integrity", "gpu"), "Integrity")
    assert page.locator(".tk-navbar").evaluate("menu => menu.scrollHeight <= menu.clientHeight")
    # the run picker changes the run and the address
    expect(page.locator("#run")).to_have_value(re.compile("after"))
    page.locator("#run").click()
    page.get_by_role("option").filter(has_text="<img").first.hover()
    assert page.evaluate(INJECTED) == []  # the label of a run is text
    page.get_by_role("option").filter(has_text="two ranks").first.click()
    expect(page).to_have_url(re.compile("run=" + site.runs["job"]))
    watch.settled()
    expect(page.locator("#run")).to_have_value(re.compile("two ranks"))
    assert watch.unsound() == []
    # the rank picker offers the ranks of the run
    choose(page, "rank", "1")
    expect(page).to_have_url(re.compile("rank=1"))
    watch.settled()
    choose(page, "rank", "all")
    expect(page).not_to_have_url(re.compile("rank="))
    watch.settled()
    assert watch.unsound() == []
    # another run forgets the rank of the one before
    choose(page, "rank", "1")
    expect(page).to_have_url(re.compile("rank=1"))
    watch.settled()
    page.locator("#run").click()
    page.get_by_role("option").filter(has_text="after").first.click()
    expect(page).to_have_url(re.compile("run=" + site.runs["gpu"]))
    expect(page).not_to_have_url(re.compile("rank="))
    watch.settled()
    # back and forward follow the pages
    title = page.locator("#page h1").inner_text()
    page.get_by_role("navigation", name="Pages").get_by_role("link", name="Steps").click()
    expect(page.locator("#page h1")).to_have_text("Steps")
    expect(page).to_have_title("Steps · tracekit")
    expect(page).to_have_url(re.compile("run=" + site.runs["gpu"]))
    watch.settled()
    page.go_back()
    expect(page.locator("#page h1")).to_have_text(title)
    watch.settled()
    page.go_forward()
    expect(page.locator("#page h1")).to_have_text("Steps")
    watch.settled()
    # chosen peaks are in the address and named by the result
    watch.go(site.url("device_compare", "gpu"), "Comparison of devices")
    choose(page, "peaks", "MI300X")
    expect(page).to_have_url(re.compile("peaks=MI300X"))
    expect(page.get_by_text("Peaks are those of MI300X")).to_be_visible()
    expect(page.get_by_role("link", name="CSV", exact=True)).to_have_attribute(
        "href", re.compile(r"peaks=MI300X$")
    )
    page.reload()
    watch.settled()
    expect(page.locator("#peaks")).to_have_value("MI300X")
    assert watch.unsound() == []


@pytest.mark.slow
def test_a_tick_while_the_pickers_are_filled_leaves_none_empty(site: Served, warm_tab: Opening) -> None:
    page = warm_tab(site).page
    callbacks = re.compile("_dash-update-component")
    held: list[Route] = []

    def hold(route: Route) -> None:
        if not held and _asks_for("rank-box", route.request):
            held.append(route)
        else:
            route.continue_()

    page.route(callbacks, hold)
    try:
        with page.expect_request(lambda request: _asks_for("rank-box", request)):
            leave(page, site.url("integrity", "job"))
        expect(page.locator("#page h1")).to_have_text("Integrity")
        with page.expect_request(lambda request: _asks_for("tick.n_intervals", request)):
            page.evaluate("dash_clientside.set_props('tick', { n_intervals: 1000 })")
        held[0].continue_()
        expect(page.locator("#rank")).to_be_visible()
    finally:
        page.unroute(callbacks)


def _asks_for(name: str, request: Request) -> bool:
    """Say whether the request calls the callback that names this output or input."""
    return name in (request.post_data or "")


def test_a_deep_link_gives_the_same_page_after_a_reload(site: Served, tab: Opening) -> None:
    watch = tab(site)
    address = site.url("kernels", "job", base=site.runs["gpu"], rank=1, **{"from": 100, "to": 90_000})
    page = watch.open(address)
    expect(page).to_have_url(address)
    chosen = _read_pickers(page)
    assert [bool(value) for value in chosen] == [True, True, True]
    shown = page.locator("#page").inner_text()
    page.reload()
    watch.settled()
    expect(page).to_have_url(address)
    expect(page.locator("#page")).to_have_text(page.locator("#page").text_content() or "")
    assert page.locator("#page").inner_text() == shown
    assert _read_pickers(page) == chosen


def _read_pickers(page: Page) -> list[str]:
    """What run, baseline and rank show, without ages, which grow."""
    values = (page.locator(f"#{name}").input_value() for name in ("run", "base", "rank"))
    return [re.sub(r" · (now|\d+ \w+ ago)", "", value) for value in values]


def test_an_address_of_nothing_is_answered_with_a_way_back_and_a_hostile_one_is_nothing(
    site: Served, tab: Opening
) -> None:
    watch = tab(site)
    page = watch.open(f"{site.address}/..%2f..%2fetc")
    expect(page.locator("#page").get_by_role("link").first).to_be_visible()
    for path in (
        "no_such_page",
        "kernels?run=no-such-run",
        "kernels?run=..%2F..%2Fetc&rank=x&from=1e9&row=passwd:1",
    ):
        leave(page, f"{site.address}/{path}")
        watch.settled()
        expect(page.locator("#page").get_by_role("link").first).to_be_visible()
    watch.resize(NARROW)
    page = watch.open(site.url("timeline", "gpu", **dict.fromkeys(WORDS, ATTACK)))
    assert watch.unsound() + page.evaluate(INJECTED) == []


def test_what_follows_a_block_that_cannot_be_loaded_is_shown(site: Served, tab: Opening) -> None:
    watch = tab(site)
    page = watch.page

    def fail(route: Route) -> None:
        if '"figures"' in (route.request.post_data or ""):
            route.abort()
        else:
            route.continue_()

    page.route("**/_dash-update-component*", fail)
    page.emulate_media(
        color_scheme="dark"
    )  # the first response is in the other theme, so that blocks are asked for
    page.goto(site.url("kernels", "gpu"))
    expect(page.locator(".tk-block[data-failed]")).to_have_count(1, timeout=10_000)
    expect(page.locator(".tk-grid").first).to_be_visible()
    watch.forget()
