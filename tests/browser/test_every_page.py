"""Every page in both themes and at two widths: complete, accessible, without external requests."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from playwright.sync_api import expect
from tracekit.dashboards.analysis_pages.pages import FIRST_GENERATED, load_pages

from tests.browser.axe import serious
from tests.browser.hostile import INJECTED
from tests.browser.watch import NARROW, WIDE

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.browser.conftest import Opening
    from tests.browser.serving import Served
    from tests.browser.watch import Watch

PAGES = load_pages()
MADE_BY_HAND = [name for name, page in PAGES.items() if page.order < FIRST_GENERATED]
THEMES = ("light", "dark")
PHONE = 390
SHOWN = {"overview", "timeline", "gpu_breakdown"}
"""Pages of the default tier: where a reader starts, and one of those generated from an analysis."""
VISITS = [
    pytest.param(
        name,
        theme,
        run,
        base,
        id=f"{name}-{theme}-{run}",
        marks=[pytest.mark.slow] if run == "gpu" or name not in SHOWN else [],
    )
    for number, name in enumerate(PAGES)
    for run, base, theme in (
        ("hostile", "gpu", THEMES[number % 2]),
        ("gpu", "base", THEMES[1 - number % 2]),
    )
]
"""Every page in both themes: in one with the names that are hardest to show, which is the default tier's."""


@pytest.fixture(scope="module")
def tabs(opening: Opening, site: Served) -> Iterator[dict[str, Watch]]:
    """A tab in each theme, for page after page: to load a document costs more than to draw it."""
    opened = {theme: opening(site, theme=theme) for theme in THEMES}
    for watch in opened.values():
        watch.open(site.url("runs", "gpu"))
    yield opened
    for watch in opened.values():
        watch.page.close()


@pytest.mark.parametrize(("name", "theme", "run", "base"), VISITS)
def test_a_page_is_sound_and_accessible(
    site: Served, tabs: dict[str, Watch], name: str, theme: str, run: str, base: str
) -> None:
    watch = tabs[theme]
    watch.troubles.clear()  # those of a page before this one
    watch.resize(WIDE)
    watch.go(site.url(name, run, base=site.runs[base]), PAGES[name].title)
    assert watch.unsound() + watch.page.evaluate(INJECTED) == []
    assert watch.page.locator("html").get_attribute("data-mantine-color-scheme") == theme
    assert not "\n".join(serious(watch.page))
    watch.resize(NARROW)
    assert watch.unsound() == []
    watch.quiet()


@pytest.mark.parametrize(
    ("run", "base"),
    [
        pytest.param("cpu", "", marks=pytest.mark.slow),
        pytest.param("job", "", marks=pytest.mark.slow),
        pytest.param("base", "job", marks=pytest.mark.slow),
    ],
)
def test_the_menu_leads_to_sound_pages(site: Served, tab: Opening, run: str, base: str) -> None:
    watch = tab(site)
    watch.open(site.url("runs", run, **({"base": site.runs[base]} if base else {})))
    troubles = {}
    for title in watch.through_the_menu():
        expect(watch.page).to_have_title(f"{title} · tracekit")
        assert site.runs[run] in watch.page.url
        troubles[title] = watch.unsound()
    assert {title: found for title, found in troubles.items() if found} == {}


@pytest.mark.slow
def test_the_text_of_checks_fits_a_phone(site: Served, tab: Opening) -> None:
    watch = tab(site, width=PHONE)
    watch.open(site.url("integrity", "gpu"))
    frame = watch.page.locator(".tk-checks .tk-rows-frame")
    assert frame.evaluate("frame => frame.scrollWidth <= frame.clientWidth")
    assert watch.unsound() == []


@pytest.mark.slow
def test_every_page_of_an_empty_store_says_so(empty_site: Served, tab: Opening) -> None:
    watch = tab(empty_site)
    watch.open(empty_site.url("runs"))
    troubles = {title: watch.unsound() for title in watch.through_the_menu()}
    assert {title: found for title, found in troubles.items() if found} == {}
    assert len(troubles) > len(MADE_BY_HAND) / 2
