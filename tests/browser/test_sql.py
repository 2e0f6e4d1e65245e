"""SQL page in a browser: from a typed query to its table, chart and CSV."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

pytest.importorskip("playwright")
pytest.importorskip("tests.browser.serving")

from playwright.sync_api import expect

if TYPE_CHECKING:
    from tests.browser.conftest import Opening
    from tests.browser.serving import Served

SLOW = "SELECT count(*) FROM range(1000000) a, range(1000000) b WHERE hash(a.range + b.range) = 7"


def test_a_query_is_written_and_shown_as_a_table_a_chart_and_csv(site: Served, tab: Opening) -> None:
    page = tab(site).open(site.url("sql", "gpu"))
    page.locator("summary", has_text="device_intervals").click()
    text = page.get_by_role("textbox", name="Query")
    text.fill("SELECT kind, count(*) AS n FROM")
    page.get_by_title("Insert device_intervals").click()
    page.keyboard.type(" GROUP BY knd ORDER BY n DESC")
    page.keyboard.press("Control+Enter")
    expect(page.locator(".tk-error")).to_contain_text("not found in FROM clause (line 1, column 59)")
    expect(page.locator(".tk-error")).to_contain_text("did you mean kind, copy_kind?")
    text.fill(text.input_value().replace("knd", "kind"))
    page.keyboard.press("Control+Enter")
    rows = page.locator(".tk-grid .ag-center-cols-container .ag-row")
    expect(rows.first).to_contain_text(re.compile("kernel.*12", re.DOTALL))
    expect(page.get_by_title("Insert idle_cause")).to_be_visible()  # what was opened stays open
    page.get_by_role("link", name="bar", exact=True).click()
    expect(page.locator(".tk-plot .tk-plot-bar")).to_have_count(4)
    with page.expect_download() as download:
        page.get_by_role("link", name="CSV of Result of the query").click()
    assert Path(download.value.path()).read_text().startswith("kind,n\nkernel,12\n")
    shared = page.url
    text.fill(SLOW)
    page.keyboard.press("Control+Enter")
    page.get_by_role("button", name="Cancel").click()
    expect(page.locator(".tk-error")).to_contain_text("cancelled")
    page.goto(shared)
    expect(page.locator(".tk-plot .tk-plot-bar")).to_have_count(4)
    page.locator("#sql-history-fold summary").click()
    expect(page.locator("#sql-history a")).to_have_count(3)
