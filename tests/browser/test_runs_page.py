"""Runs page in a browser: updates, comparing, deleting, and importing by drag and drop."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import pytest

pytest.importorskip("playwright")
pytest.importorskip("tests.browser.serving")

from playwright.sync_api import expect
from tracekit.dashboards.imports.routes import sample_traces

from tests.browser.serving import served
from tests.runs import make_run
from tracekit.runs import notes

if TYPE_CHECKING:
    import socket
    from collections.abc import Iterator
    from pathlib import Path

    from playwright.sync_api import Locator, Page

    from tests.browser.conftest import Opening
    from tests.browser.serving import Served
    from tracekit.runs.store import Store

LONG_MS = 90_000
_DROP = """([name, content]) => {
  const transfer = new DataTransfer();
  transfer.items.add(new File([content], name));
  for (const type of ["dragenter", "dragover", "drop"]) {
    const options = { dataTransfer: transfer, bubbles: true, cancelable: true };
    document.body.dispatchEvent(new DragEvent(type, options));
  }
}"""


@pytest.fixture
def own(store: Store, port: socket.socket) -> Iterator[Served]:
    """A dashboard over a store of the test's own."""
    with served(store, port=port) as answering:
        yield answering


def row(page: Page, run: str) -> Locator:
    return page.locator(f'#runs-grid .ag-center-cols-container [row-id="{run}"]')


def box(page: Page, run: str) -> Locator:
    return page.locator(f'#runs-grid [row-id="{run}"] input[type=checkbox]')


@pytest.mark.parametrize("name", ["<b>x</b>.json", pytest.param("=1+1.json", marks=pytest.mark.slow)])
def test_an_empty_store_is_filled_and_what_is_no_trace_says_so(own: Served, tab: Opening, name: str) -> None:
    page = tab(own).open(own.url("runs"))
    expect(page.get_by_text("tracekit collect --workload resnet50")).to_be_visible()
    expect(page.locator("#run")).to_be_hidden()
    page.get_by_role("button", name="Load the samples").click()
    expect(page.locator(".tk-import[data-phase=done]")).to_be_visible(timeout=LONG_MS)
    page.locator(".tk-import[data-phase=done]").get_by_role("button").click()
    expect(page.locator("#runs-count")).to_have_text("3 runs")
    expect(page.get_by_text("tracekit collect --workload resnet50")).to_be_hidden()
    # what is no trace says so where it was dropped
    page.evaluate(_DROP, [name, "hello"])
    failed = page.locator(".tk-import[data-phase=failed]")
    expect(failed).to_contain_text(name, timeout=LONG_MS)
    expect(failed).to_contain_text("not a Kineto trace")
    expect(failed.locator("b")).to_have_count(0)
    failed.get_by_role("button").click()
    expect(page.locator(".tk-import")).to_have_count(0)
    # a chosen trace becomes a run and leads to its overview
    with page.expect_file_chooser() as chooser:
        page.get_by_role("button", name="Import", exact=True).click()
    chooser.value.set_files([str(sample_traces()[-1])])
    expect(page).to_have_url(re.compile("/overview\\?run=.*simulated-training"), timeout=LONG_MS)
    expect(page.locator(".tk-import")).to_have_count(0)


def test_runs_appear_are_compared_noted_found_and_deleted(own: Served, store: Store, tab: Opening) -> None:
    older = make_run(store)
    old = older.path.name
    page = tab(own).open(own.url("runs"))
    compare = page.get_by_role("button", name="Compare")
    expect(compare).to_be_disabled()
    # a new run appears and the selection stays
    box(page, old).check()
    newer = make_run(store, after_s=1)
    new = newer.path.name
    expect(row(page, new)).to_be_visible()
    expect(box(page, old)).to_be_checked()
    expect(page.locator("#run")).to_have_value(re.compile(old[-6:]))
    # two runs are compared
    box(page, old).uncheck()
    expect(compare).to_be_disabled()
    box(page, new).check()
    box(page, old).check()
    expect(page.locator("#runs-compare a")).to_have_attribute("href", f"/compare?run={new}&base={old}")
    # a run gets tags by which it is found
    box(page, new).uncheck()
    page.get_by_role("button", name="Notes…").click()
    sheet = page.get_by_role("dialog", name="Name, tags, color and note")
    sheet.get_by_label("Tags").fill("quiet")
    sheet.get_by_label("Tags").press("Enter")
    sheet.get_by_role("textbox", name="Color").click()
    page.get_by_role("option", name="violet").click()
    sheet.get_by_label("Note").fill("no other load")
    sheet.get_by_role("button", name="Save").click()
    expect(sheet).to_be_hidden()
    expect(row(page, old)).to_contain_text("quiet")
    assert (notes.read(older).tags, notes.read(older).color) == (("quiet",), "violet")
    expect(row(page, old).locator(".tk-run-dot")).to_have_css("background-color", "rgb(148, 103, 189)")
    page.get_by_label("Filter runs").fill("quiet")
    expect(page.locator("#runs-count")).to_have_text("1 of 2 runs")
    expect(row(page, new)).to_have_count(0)
    page.get_by_label("Filter runs").fill("")
    expect(row(page, new)).to_be_visible()
    # runs are deleted in two steps
    box(page, old).uncheck()
    box(page, new).check()
    page.get_by_role("button", name="Delete…").click()
    sheet = page.get_by_role("dialog", name="Delete runs")
    expect(sheet).to_contain_text(new)
    sheet.get_by_role("button", name="Cancel").click()
    expect(sheet).to_be_hidden()
    assert newer.path.is_dir()
    page.get_by_role("button", name="Delete…").click()
    sheet.get_by_role("button", name="Delete", exact=True).click()
    expect(row(page, new)).to_have_count(0)
    expect(page.locator("#runs-count")).to_have_text("1 run")
    expect(page.locator("#run")).to_have_value(re.compile(old[-6:]))
    assert store.runs() == [older]


def test_a_view_of_the_list_is_saved_under_a_name_and_is_in_the_address(
    own: Served, store: Store, tab: Opening
) -> None:
    runs = [make_run(store, after_s=1, label=label).path.name for label in ("alpha", "beta")]
    page = tab(own).open(own.url("runs"))
    count, steps = page.locator("#runs-count"), page.locator("#runs-grid .ag-header-cell[col-id=steps]")
    page.locator("summary", has_text="Columns").click()
    page.get_by_label("steps", exact=True).uncheck()
    expect(steps).to_have_count(0)
    page.get_by_label("Filter runs").fill("alpha")
    expect(count).to_have_text("1 of 2 runs")
    address = page.evaluate("location.href")
    page.locator("summary", has_text="Views").click()
    page.get_by_label("Name of this view").fill("first")
    page.get_by_role("button", name="Save").click()
    page.get_by_role("button", name="Show Default").click()
    expect(count).to_have_text("2 runs")
    expect(steps).to_be_visible()
    page.locator("summary", has_text="Views").click()
    page.get_by_role("button", name="Show first").click()
    expect(count).to_have_text("1 of 2 runs")
    expect(page).to_have_url(address)
    page.goto(address)
    expect(row(page, runs[0])).to_be_visible()
    expect(count).to_have_text("1 of 2 runs")
    expect(steps).to_have_count(0)


@pytest.mark.slow
def test_an_unreadable_run_is_named(own: Served, store: Store, tab: Opening, tmp_path: Path) -> None:
    make_run(store)
    bad = make_run(store, after_s=1)
    (bad.path / "run.json").write_text('{"schema_version": 99}')
    page = tab(own).open(own.url("runs"))
    expect(page.locator("#runs-unreadable")).to_contain_text(bad.path.name)
    expect(page.locator("#runs-unreadable")).to_contain_text("upgrade tracekit")


@pytest.mark.slow
def test_the_filter_is_reached_by_its_key(own: Served, store: Store, tab: Opening) -> None:
    runs = [make_run(store, after_s=1, name=name).path.name for name in ("alpha", "beta")]
    page = tab(own).open(own.url("runs"))
    expect(row(page, runs[1])).to_be_visible()
    page.keyboard.press("/")
    page.keyboard.type("alpha")
    expect(row(page, runs[1])).to_have_count(0)
    expect(row(page, runs[0])).to_be_visible()


@pytest.mark.slow
def test_keys_open_pages_and_the_list_of_keys(own: Served, store: Store, tab: Opening) -> None:
    make_run(store)
    page = tab(own).open(own.url("runs"))
    page.keyboard.press("?")
    expect(page.get_by_role("dialog", name="Keyboard shortcuts")).to_be_visible()
    page.keyboard.press("Escape")
    expect(page.get_by_role("dialog", name="Keyboard shortcuts")).to_be_hidden()
    page.keyboard.press("g")
    page.keyboard.press("h")
    expect(page.get_by_role("heading", name="Help", level=1)).to_be_focused()
    expect(page).to_have_title("Help · tracekit")


@pytest.mark.slow
def test_the_menu_of_a_narrow_screen_opens_and_closes(own: Served, store: Store, tab: Opening) -> None:
    make_run(store)
    page = tab(own, width=360).open(own.url("runs"))
    menu = page.get_by_role("navigation", name="Pages")
    expect(menu).not_to_be_in_viewport()
    page.get_by_role("button", name="Menu").click()
    menu.get_by_role("link", name="Help").click()
    expect(page.get_by_role("heading", name="Help", level=1)).to_be_visible()
    expect(menu).not_to_be_in_viewport()
