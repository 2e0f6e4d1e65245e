"""Every page, in both themes and at two widths: complete, sound, accessible, and silent to the outside."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from playwright.sync_api import expect
from tracekit.dashboards.answers.analysis_page import FIRST
from tracekit.dashboards.site import registered

from tests.browser.axe import serious
from tests.browser.watch import NARROW

if TYPE_CHECKING:
    from tests.browser.conftest import Opening
    from tests.browser.serving import Served

PAGES = list(registered())
MADE_BY_HAND = [name for name, page in registered().items() if page.order < FIRST]


@pytest.mark.parametrize("name", PAGES)
@pytest.mark.parametrize("theme", ["light", "dark"])
def test_a_page_is_sound_and_accessible(site: Served, tab: Opening, name: str, theme: str) -> None:
    watch = tab(site, theme=theme)
    page = watch.open(site.url(name, "gpu"))
    assert watch.unsound() == []
    assert page.locator("html").get_attribute("data-mantine-color-scheme") == theme
    assert not "\n".join(serious(page))
    page.set_viewport_size({"width": NARROW, "height": 900})
    page.reload()
    watch.settled()
    assert watch.unsound() == []


@pytest.mark.parametrize(("run", "base"), [("cpu", ""), ("job", ""), ("gpu", "base"), ("base", "job")])
def test_the_menu_leads_to_sound_pages(site: Served, tab: Opening, run: str, base: str) -> None:
    watch = tab(site)
    watch.open(site.url("runs", run, **({"base": site.runs[base]} if base else {})))
    troubles = {}
    for title in watch.through_the_menu():
        expect(watch.page).to_have_title(f"{title} · tracekit")
        assert site.runs[run] in watch.page.url
        troubles[title] = watch.unsound()
    assert {title: found for title, found in troubles.items() if found} == {}


def test_every_page_of_an_empty_store_says_so(empty_site: Served, tab: Opening) -> None:
    watch = tab(empty_site)
    watch.open(empty_site.url("runs"))
    troubles = {title: watch.unsound() for title in watch.through_the_menu()}
    assert {title: found for title, found in troubles.items() if found} == {}
    assert len(troubles) > len(MADE_BY_HAND) / 2
