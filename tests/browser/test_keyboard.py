"""Every control can be used with the keyboard, with a visible focus."""

from __future__ import annotations

import re
from itertools import product
from typing import TYPE_CHECKING, Any

import pytest
from playwright.sync_api import expect

if TYPE_CHECKING:
    from playwright.sync_api import Page

    from tests.browser.conftest import Opening
    from tests.browser.serving import Served

STOPS = 120
SCHEME = "data-mantine-color-scheme"
_AT = """() => {
  const one = document.activeElement;
  if (!one || one === document.body) return null;
  const look = () => {
    const marks = [];
    for (let each = one, up = 0; each && up < 3; each = each.parentElement, up += 1) {
      for (const pseudo of [null, "::before", "::after"]) {
        const { outline, boxShadow, border, backgroundColor, left } = getComputedStyle(each, pseudo);
        marks.push(outline, boxShadow, border, backgroundColor, up ? "" : left);
      }
    }
    return marks.join(";");
  };
  const focused = look();
  one.blur();
  const rest = look();
  one.focus({ preventScroll: true });
  const label = one.getAttribute("aria-label") || one.innerText || one.title || one.placeholder
    || (one.labels && one.labels[0] && one.labels[0].innerText)
    || (one.getAttribute("aria-labelledby") || "").split(" ")
      .map((id) => (document.getElementById(id) || {}).innerText || "").join(" ");
  return { what: one.outerHTML.slice(0, 160), label: (label || "").trim(), seen: focused !== rest };
}"""
_IN_FRAME = """() => [
  ...document.querySelectorAll("header a[href], header button, header input, nav a[href]"),
]
  .filter((one) => one.checkVisibility() && one.tabIndex >= 0 && !one.closest("#page"))
  .map((one) => one.outerHTML.slice(0, 160))"""


def walk(page: Page) -> list[dict[str, Any]]:
    """Where Tab leads from the start of the page, until it leaves the document or goes on for long."""
    page.add_style_tag(content="* { transition: none !important; }")
    stops: list[dict[str, Any]] = []
    for _ in range(STOPS):
        page.keyboard.press("Tab")
        at = page.evaluate(_AT)
        if at is None:
            break
        stops.append(at)
    return stops


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "theme"), list(product(("runs", "overview", "kernels", "integrity"), ("light", "dark")))
)
def test_a_walk_reaches_the_frame_and_every_stop_is_named_and_seen(
    site: Served, tab: Opening, name: str, theme: str
) -> None:
    page = tab(site, theme=theme).open(site.url(name, "job"))
    stops = walk(page)
    assert [stop["what"] for stop in stops if not stop["label"] and "ag-" not in stop["what"]] == []
    assert [stop["what"] for stop in stops if not stop["seen"]] == []
    reached = {stop["what"].split(">")[0] for stop in stops}
    assert [one for one in page.evaluate(_IN_FRAME) if one.split(">")[0] not in reached] == []


def test_a_page_a_run_and_a_theme_are_chosen_with_the_keyboard_and_the_theme_is_remembered(
    site: Served, tab: Opening
) -> None:
    watch = tab(site)
    page = watch.open(site.url("integrity", "gpu"))
    expect(page).to_have_title(re.compile("tracekit$"))
    expect(page.get_by_role("navigation", name="Pages").get_by_role("link").first).to_be_visible()
    # the first stop skips the menu
    page.keyboard.press("Tab")
    expect(page.locator(":focus")).to_have_text("Skip to content")
    page.keyboard.press("Enter")
    expect(page.locator("#page:focus, #page :focus")).to_have_count(1)
    # a page
    page.get_by_role("navigation", name="Pages").get_by_role("link", name="Steps").focus()
    page.keyboard.press("Enter")
    expect(page.locator("#page h1")).to_have_text("Steps")
    watch.settled()
    # a run
    page.locator("#run").focus()
    page.keyboard.press("ControlOrMeta+a")
    page.keyboard.type("two ranks")
    expect(page.get_by_role("option").filter(visible=True)).to_have_count(1)
    page.keyboard.press("ArrowDown")
    page.keyboard.press("Enter")
    expect(page).to_have_url(re.compile("run=" + site.runs["job"]))
    watch.settled()
    # the theme, which is remembered over a reload
    root = page.locator("html")
    expect(root).to_have_attribute(SCHEME, "light")
    page.locator("#theme-toggle").focus()
    page.keyboard.press("Enter")
    expect(root).to_have_attribute(SCHEME, "dark")
    page.reload()
    watch.settled()
    expect(root).to_have_attribute(SCHEME, "dark")
    page.locator("#theme-toggle").click()
    expect(root).to_have_attribute(SCHEME, "light")
