from __future__ import annotations

import math
import re
from typing import TYPE_CHECKING, Any

import pytest
from playwright.sync_api import expect
from tracekit.analyses.modules import OUTSIDE_NAME
from tracekit.dashboards.components.text import human
from tracekit.dashboards.tables.columns import number_format

from tests.browser.conftest import TIMEOUT_MS
from tests.browser.serving import served
from tests.browser.watch import Watch, leave
from tests.builders import host, kernel, make_run, step
from tracekit.runs.store import Store
from tracekit.runs.text import SCALES
from tracekit.schema import C, HostKind

if TYPE_CHECKING:
    import socket
    from collections.abc import Iterator

    from playwright.sync_api import Browser, Page, Request, Route

    from tests.browser.conftest import Opening
    from tests.browser.serving import Served

HOSTILE = "void <script>window.hurt=1</script><b>bold</b><img src=x onerror='window.hurt=1'>" + "x" * 300


@pytest.fixture(scope="module")
def gridded(tmp_path_factory: pytest.TempPathFactory, port: socket.socket) -> Iterator[Served]:
    path = tmp_path_factory.mktemp("grids")
    names = [HOSTILE, *(f"kernel_{number}" for number in range(40))]
    make_run(
        path / "store",
        host_intervals=[host("cudaLaunchKernel", 0, 5), *_modules()],
        device_intervals=[
            kernel(100 * at, 100 * at + at + 1, **{C.NAME: name, C.LAUNCH_ROW: 0, C.STREAM: 7})
            for at, name in enumerate(names)
        ],
        steps=[step(1, 0, 5_000)],
    )
    with served(Store(path / "store"), port=port) as answering:
        yield answering


def _modules() -> list[dict[str, Any]]:
    """Calls of a module with 40 others inside, each with one inside: more than a tree shows at first."""
    rows = [host("nn.Module: Net_0", 10, 1_000, kind=HostKind.PYTHON)]
    for number in range(40):
        at, row = 20 + 20 * number, 1 + len(rows)
        rows += [
            host(f"nn.Module: Block_{number}", at, at + 15, kind=HostKind.PYTHON, parent_row=1),
            host(f"nn.Module: Linear_{number}", at + 1, at + 14, kind=HostKind.PYTHON, parent_row=row),
            host("aten::mm", at + 2, at + 12, parent_row=row + 1),
        ]
    return rows


@pytest.fixture
def address(gridded: Served) -> str:
    return gridded.address


@pytest.fixture
def page(warm_tab: Opening, gridded: Served) -> Page:
    """A page whose warnings, errors and requests beyond the server fail the test."""
    watch = warm_tab(gridded)
    watch.levels |= {"warning"}
    return watch.page


@pytest.fixture
def apart(browser: Browser, gridded: Served) -> Iterator[Page]:
    """Such a page whose routes and clock are no other page's; it may open Perfetto."""
    with browser.new_context() as context:
        context.set_default_timeout(TIMEOUT_MS)
        watch = Watch.of(context, gridded.address)
        watch.levels |= {"warning"}
        yield watch.page
        watch.quiet()


def values() -> list[float]:
    whole = [0, 1, 9, 10, 99, 999, 1000, 1023, 1024, 12_345, 999_999, 1_000_000, 1_234_567, 12_582_912]
    large = [10**9, 10**12 + 1, 2**40, 2**52 + 1, 3 * 10**15]
    halves = [0.125, 0.375, 2.5, 0.0005, 1.005, 2.675, 0.25, 0.75, 0.00125, 1023.125, 512.0625]
    parts = [1 / 3, 2 / 3, 0.1, 1e-5, 1.5e-7, 123.456789, 999.9999, 0.99999, 1e-9, 4.2e-10, 29.17e12]
    ties = [12_500, 1_125_000, 1_375_000, 100_125_000_000, 128, 1_152, 1_408]
    positive = [*whole, *large, *halves, *parts, *ties]
    return [*positive, *(-value for value in positive)]


def test_values_read_as_everywhere_else(page: Page) -> None:
    given = [value for value in values() if math.isfinite(value)]
    for unit in (*SCALES, "share", "count", "×", ""):
        cases = [[value, number_format(unit, decimals=isinstance(value, float))] for value in given]
        shown = page.evaluate("cases => cases.map(([value, format]) => tracekit.human(value, format))", cases)
        expected = [human(value, unit) for value in given]
        assert dict(zip(given, shown, strict=True)) == dict(zip(given, expected, strict=True)), unit
    shown = page.evaluate("[null, true, false, 'a'].map(value => tracekit.human(value, {kind: 'plain'}))")
    assert shown == [human(value, "") for value in (None, True, False, "a")]


def named(page: Page, title: str) -> Any:
    return page.get_by_role("region", name=title, exact=True)


@pytest.mark.slow
def test_names_of_traces_are_text_in_cells_and_tooltips(page: Page, address: str) -> None:
    leave(page, f"{address}/kernels?sort=names:sum_ns:asc")
    cell = named(page, "By full name").locator('[col-id="name"] .tk-name', has_text="<script>")
    expect(cell).to_have_text(HOSTILE)
    cell.hover()
    expect(page.locator(".ag-tooltip")).to_have_text(HOSTILE)
    assert page.evaluate("window.hurt === undefined && !document.querySelector('.ag-root img, .ag-root b')")


def test_rows_of_a_tree_open_and_a_box_of_a_treemap_shows_its_op(page: Page, address: str) -> None:
    leave(page, f"{address}/modules")
    table = named(page, "By module; the largest total first")
    names = table.locator(".tk-tree-name")
    expect(names).to_have_text(["Net_0", OUTSIDE_NAME])
    table.get_by_role("button", name="Open Net_0").click()
    block = table.get_by_role("button", name="Open Block_0", exact=True)
    expect(block).to_have_attribute("aria-expanded", "false")
    table.locator(".ag-cell[col-id=module]", has_text=re.compile(r"Block_0$")).focus()
    page.keyboard.press("Enter")
    expect(names.nth(2)).to_have_text("Linear_0")
    table.get_by_role("button", name="Close Net_0").click()
    expect(names).to_have_text(["Net_0", OUTSIDE_NAME])
    table.get_by_label("Filter By module").fill("Linear_17")
    expect(names).to_have_text(["Linear_17"])
    # a click on a box shows the op
    leave(page, f"{address}/ops?by=tree&measure=host_self_ns")
    page.locator(".treemaplayer .slice", has_text="aten::mm").click()
    expect(page).to_have_url(re.compile("op=aten:"))
    expect(page.locator("#op-selected")).to_contain_text("aten::mm: host self 400 ns in 40 calls")
    page.get_by_role("link", name="longest call").click()
    expect(page).to_have_url(re.compile("timeline.*row=host_intervals:"))


def test_rows_are_filtered_and_sorted_and_one_leads_to_the_timeline(page: Page, address: str) -> None:
    leave(page, f"{address}/kernels")
    # a chart is saved as a picture
    expect(page.locator(".tk-plot .tk-plot-bar").first).to_be_visible()
    for kind, begins in (("PNG", b"\x89PNG"), ("SVG", b"<svg")):
        with page.expect_download() as saved:
            page.get_by_role("button", name=kind).first.click()
        assert saved.value.suggested_filename.endswith(f"-top.{kind.lower()}")
        assert saved.value.path().read_bytes().startswith(begins)
    # a filter leaves the rows that match
    page.get_by_role("tab", name="By full name").click()
    table = named(page, "By full name")
    box = table.get_by_label("Filter By full name")
    expect(table.get_by_role("row").nth(1)).to_be_visible()
    box.fill("kernel_17")
    expect(table.locator(".tk-count")).to_have_text("1 of 41 rows")
    expect(table.locator(".ag-row:visible")).to_have_count(1)
    box.fill("")
    expect(table.locator(".tk-count")).not_to_have_text("1 of 41 rows")
    # a sort is in the address and the page stays
    grid = table.get_by_role("grid", name="By full name").or_(
        table.get_by_role("treegrid", name="By full name")
    )
    expect(grid).to_have_count(1)
    filled: list[str] = []
    page.on(
        "request", lambda asked: filled.append(asked.url) if "aria-busy" in (asked.post_data or "") else None
    )
    table.locator(".ag-header-cell", has_text="sum").click()
    expect(page).to_have_url(re.compile(r"sort=names:sum_ns:desc"))
    first = table.locator('.ag-row[row-index="0"]')
    expect(first).to_contain_text("kernel_39")
    assert filled == []
    page.reload()
    expect(first).to_contain_text("kernel_39")
    # a row without an id leads to its longest and next
    page.get_by_role("tab", name="By full name").click()
    link = page.get_by_role("link", name="Show the longest kernel_39 on the timeline")
    link.filter(visible=True).click()
    expect(page.locator("#timeline-details .tkl-full")).to_have_text("kernel_39")
    expect(page).to_have_url(re.compile(r"q=kernel_39&mode=name&order=longest&row=device_intervals:40"))
    expect(page.locator(".tkl-count")).to_have_text("1 of 1")


def test_bars_need_no_plotly_and_grids_are_made_when_one_scrolls_to_them(apart: Page, address: str) -> None:
    apart.set_viewport_size({"width": 1_440, "height": 200})
    apart.goto(f"{address}/kernels")
    table = named(apart, "By family")
    expect(table.get_by_text(re.compile(r"^\d+ rows?$"))).to_be_attached()
    assert apart.locator(".ag-root").count() == 0
    bar = apart.locator(".tk-plot-bar").first
    bar.scroll_into_view_if_needed()
    apart.wait_for_load_state("networkidle")  # what is then made scrolls the page, which ends a tip
    bar.hover()
    expect(apart.locator(".tk-tip")).to_contain_text("tensor cores (by kernel name)")
    table.scroll_into_view_if_needed()
    expect(table.locator(".ag-row").first).to_be_visible()
    assert apart.evaluate("window.Plotly === undefined")
    apart.get_by_role("button", name=re.compile("^Zoom: Kernel time")).click()
    expect(apart.locator(".js-plotly-plot .bars path").first).to_be_visible()
    assert apart.locator(".js-plotly-plot").count() == 1
    sources = "[...document.scripts].map(({ src }) => src).filter((src) => src.includes('plotly'))"
    assert [one.rpartition("/")[2][:16] for one in apart.evaluate(sources)] == ["plotly-cartesian"]
    leave(apart, "/ops?by=tree")  # what only all of Plotly draws
    expect(apart.locator(".js-plotly-plot .treemaplayer path").first).to_be_visible()
    assert len(apart.evaluate(sources)) == 2


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_what_the_first_response_has_is_not_asked_for_again(apart: Page, address: str, theme: str) -> None:
    asked: list[str] = []

    def note(request: Request) -> None:
        asked.append(f"{request.url.removeprefix(address)} {request.post_data}")

    apart.on("request", note)
    apart.emulate_media(color_scheme=theme)  # type: ignore[arg-type]
    apart.goto(f"{address}/kernels")
    expect(apart.locator("#page .tk-plot-bar").first).to_be_visible()
    assert len([one for one in asked if '"type":"block"' in one]) == (3 if theme == "dark" else 0)
    asked.clear()
    apart.goto(f"{address}/kernels?by=names")  # the cookie tells the theme now
    expect(apart.locator("#page .tk-plot-bar").first).to_be_visible()
    expect(apart.locator("#run")).not_to_have_value("")
    assert not [one for one in asked if re.match("/_dash-(layout|dependencies|update)", one)]
    ink = "getComputedStyle(document.querySelector('#page .tk-plot-name')).color"
    assert (apart.evaluate(ink) != "rgb(0, 0, 0)") == (theme == "dark")


def test_a_page_is_shown_before_its_scripts_and_without_them(
    apart: Page, browser: Browser, address: str
) -> None:
    held: list[Route] = []
    apart.route("**/bundle/*.js", lambda route: held.append(route))
    apart.goto(f"{address}/kernels", wait_until="commit")
    expect(apart.locator("#first")).to_be_visible()
    for route in held:
        route.continue_()
    expect(apart.locator("#first")).to_have_count(0)
    expect(apart.locator(".tk-plot-bar").first).to_be_visible()
    with browser.new_context(java_script_enabled=False) as context:
        page = context.new_page()
        page.goto(f"{address}/kernels")
        expect(page).to_have_url(re.compile(r"/export/.*/kernels\.html\?inline=1$"))
        for shown in (".tk-plot-bar", "td", "h1"):
            expect(page.locator(shown).first).to_be_visible()


ANSWERS = """<script>addEventListener("message", e => {
  if (e.data === "PING") e.source.postMessage("PONG", e.origin);
  else document.title = `got ${e.data.perfetto.buffer.byteLength} ${e.data.perfetto.title}`;
});</script>"""


def test_perfetto_is_given_the_trace(apart: Page, address: str) -> None:
    apart.context.route(
        "https://ui.perfetto.dev/**", lambda route: route.fulfill(body=ANSWERS, content_type="text/html")
    )
    apart.goto(f"{address}/integrity")
    with apart.expect_popup() as opened:
        apart.get_by_role("button", name="Open in Perfetto").click()
    expect(opened.value).to_have_title(re.compile(r"got [1-9]\d+ \d{8}T"))
    expect(apart.get_by_role("status").filter(has_text="Sent to Perfetto.")).to_be_visible()


@pytest.mark.slow
def test_without_a_network_the_trace_can_be_saved(apart: Page, address: str) -> None:
    apart.clock.install()
    apart.context.route("https://ui.perfetto.dev/**", lambda route: route.fulfill(body=""))
    apart.goto(f"{address}/kernels")
    button = apart.get_by_role("button", name="Open in Perfetto")
    with apart.expect_popup():
        button.click()
    apart.clock.run_for(25_000)
    expect(apart.get_by_role("status").filter(has_text="no response from")).to_be_visible()
    expect(apart.get_by_role("link", name="Save the trace")).to_be_visible()
