"""Names in a trace are shown as text everywhere."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.browser.hostile import ATTACK, INJECTED, WORDS
from tests.browser.test_every_page import MADE_BY_HAND
from tests.browser.watch import NARROW

if TYPE_CHECKING:
    from tests.browser.conftest import Opening
    from tests.browser.serving import Served


@pytest.mark.slow  # test_every_page looks at pages of the hostile run itself
def test_hostile_names_of_the_base_stay_text_on_every_page(site: Served, tab: Opening) -> None:
    watch = tab(site)
    page = watch.open(site.url("runs", "gpu", base=site.runs["hostile"]))
    troubles = {title: watch.unsound() + page.evaluate(INJECTED) for title in watch.through_the_menu()}
    assert {title: found for title, found in troubles.items() if found} == {}


@pytest.mark.slow  # test_shell opens such an address of the timeline
@pytest.mark.parametrize("name", MADE_BY_HAND)
def test_hostile_addresses_are_nothing(site: Served, tab: Opening, name: str) -> None:
    watch = tab(site, width=NARROW)
    page = watch.open(site.url(name, "gpu", **dict.fromkeys(WORDS, ATTACK)))
    assert watch.unsound() + page.evaluate(INJECTED) == []
