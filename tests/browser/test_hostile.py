"""Names in a trace are text on every page, whatever they hold."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.browser.hostile import MARK
from tests.browser.test_every_page import MADE_BY_HAND

if TYPE_CHECKING:
    from tests.browser.conftest import Opening
    from tests.browser.serving import Served

_INJECTED = f"""() => [
  ...document.querySelectorAll([
    '#page img[src="x"]', '[onerror]', '[onload]', 'iframe', 'a[href^="javascript" i]',
    'object', 'embed', '#page script', 'svg[onload]',
  ].join(",")),
  ...[...document.querySelectorAll("#page b")].filter((one) => one.textContent === "bold"),
].map((one) => one.outerHTML.slice(0, 200)).concat(window.{MARK} ? [`executed ${{window.{MARK}}}`] : [])"""


@pytest.mark.parametrize(("run", "base"), [("hostile", "gpu"), ("gpu", "hostile")])
def test_hostile_names_stay_text_on_every_page(site: Served, tab: Opening, run: str, base: str) -> None:
    watch = tab(site)
    page = watch.open(site.url("runs", run, base=site.runs[base]))
    troubles = {title: watch.unsound() + page.evaluate(_INJECTED) for title in watch.through_the_menu()}
    assert {title: found for title, found in troubles.items() if found} == {}
    page.locator("#run").click()
    page.get_by_role("option").filter(has_text="<img").first.hover()
    assert page.evaluate(_INJECTED) == []


@pytest.mark.parametrize("name", [*MADE_BY_HAND, "kernels"])
def test_hostile_addresses_are_nothing(site: Served, tab: Opening, name: str) -> None:
    watch = tab(site)
    attack = f"<img src=x onerror=window.{MARK}=1>"
    page = watch.open(site.url(name, "gpu", lanes=attack, sort=attack, rank=attack, row=attack, q=attack))
    assert watch.unsound() + page.evaluate(_INJECTED) == []
