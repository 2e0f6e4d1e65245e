"""Timeline in a browser: painting, navigation, selection, and state in the address."""

from __future__ import annotations

import re
from contextlib import closing
from typing import TYPE_CHECKING

import pytest

pytest.importorskip("dash", reason="the dashboard is not installed")
pytest.importorskip("playwright", reason="playwright is not installed")

from playwright.sync_api import expect

from tests.browser.serving import served
from tests.browser.watch import leave
from tests.builders import device, host, kernel, step
from tests.runs import make_run
from tracekit.runs.store import Store
from tracekit.schema import C, DeviceKind, HostKind

if TYPE_CHECKING:
    import socket
    from collections.abc import Iterator

    from playwright.sync_api import Locator, Page, Route

    from tests.browser.conftest import Opening
    from tests.browser.serving import Served
    from tests.builders import Row

HOSTILE = "<img src=x onerror=window.pwned=1><script>window.pwned=2</script>"
STEP_NS = 1_000_000
KERNELS = 3_000
"""In each of two steps: too many for the whole capture to be shown exactly."""


def training() -> dict[str, list[Row]]:
    """Two steps: many small kernels, launched by calls in ops; a long one with a hostile name; a gap."""
    hosts: list[Row] = []
    devices: list[Row] = []
    for number in range(2):
        base = number * STEP_NS
        for place in range(KERNELS):
            start = base + place * 300
            op = len(hosts)
            hosts.append(host(f"aten::op{place % 3}", start, start + 90))
            call = {C.PARENT_ROW: op, C.DEPTH: 1}
            hosts.append(host("cudaLaunchKernel", start + 10, start + 40, kind=HostKind.RUNTIME, **call))
            more = {C.NAME: f"kernel{place % 3}", C.STREAM: 7, C.LAUNCH_ROW: op + 1, C.OP_ROW: op}
            devices.append(kernel(start + 100, start + 250, **more))
        devices.append(kernel(base + 910_000, base + 960_000, **{C.NAME: HOSTILE, C.STREAM: 9}))
        devices.append(device(DeviceKind.IDLE, base + 960_000, base + STEP_NS))
    steps = [step(number, number * STEP_NS, (number + 1) * STEP_NS) for number in range(2)]
    return {"device_intervals": numbered(devices), "host_intervals": numbered(hosts), "steps": whole(steps)}


def numbered(rows: list[Row]) -> list[Row]:
    return [{C.ROW_ID: number, **row} for number, row in enumerate(whole(rows))]


def whole(rows: list[Row]) -> list[Row]:
    return [{C.RANK: 0, C.DEVICE: 0, C.PID: 1, C.TID: 1, C.DEPTH: 0, **row} for row in rows]


REDUCTIONS = 5


def reducing() -> dict[str, list[Row]]:
    """Two ranks that end reductions together, by clocks that differ by 0.1 ms."""
    name = {C.NAME: "ncclDevKernel_AllReduce_Sum_f32_RING_LL", C.STREAM: 9}
    rows = [
        kernel(offset + at, offset + at + 80_000, **name, **{C.RANK: rank, C.DEVICE: rank, C.ROW_ID: number})
        for rank, offset in enumerate((0, 100_000))
        for number, at in enumerate(range(10_000, 900_000, 200_000), rank * REDUCTIONS)
    ]
    return {"device_intervals": rows}


@pytest.fixture(scope="module")
def timelines(tmp_path_factory: pytest.TempPathFactory, port: socket.socket) -> Iterator[Served]:
    """A dashboard over three runs, one of which holds 1 GiB from a quarter to half of the capture."""
    store = Store(tmp_path_factory.mktemp("store"))
    gib = 1 << 30
    events = [(STEP_NS // 2, gib, 3 * gib), (STEP_NS, -gib, 2 * gib)]
    rows = [
        {C.T_NS: at, C.RANK: 0, C.DEVICE: 0, C.BYTES: size, C.TOTAL_ALLOCATED: total}
        for at, size, total in events
    ]
    samples = [
        {
            C.T_NS: at,
            C.SOURCE: "nvml",
            C.METRIC: "power_w",
            C.UNIT: "W",
            C.VALUE: watts,
            C.RANK: 0,
            C.DEVICE: 0,
        }
        for at, watts in ((0, 300.0), (2 * STEP_NS, 500.0))
    ]
    tables = training()
    runs = {
        "plain": make_run(store, tables=tables),
        "filled": make_run(store, tables={**tables, "allocations": rows, "counters": samples}, after_s=1),
        "ranks": make_run(store, tables=reducing(), after_s=2),
    }
    with served(store, {name: run.path.name for name, run in runs.items()}, port=port) as answering:
        yield answering


@pytest.fixture
def address(timelines: Served) -> str:
    """Where the timeline of the run without memory is."""
    return timelines.url("timeline", "plain")


@pytest.fixture
def tab(warm_tab: Opening, timelines: Served) -> Page:
    """A tab in which nothing may go wrong, and nothing be fetched from elsewhere."""
    return warm_tab(timelines).page


def opened(page: Page, address: str) -> Locator:
    leave(page, address)
    canvas = page.locator("#timeline-canvas")
    expect(canvas).to_have_attribute("data-settled", "true")
    return canvas


def shows(canvas: Locator, start: int, end: int) -> None:
    """Wait until a range of time is painted as exactly as it can be."""
    expect(canvas).to_have_attribute("data-range", f"{start}-{end}")
    expect(canvas).to_have_attribute("data-settled", "true")


def selected(page: Page) -> Locator:
    return page.locator("#timeline-details .tkl-full")


def test_the_whole_capture_is_painted_and_a_part_is_looked_at_with_the_mouse(tab: Page, address: str) -> None:
    canvas = opened(tab, address)
    shows(canvas, 0, 2 * STEP_NS)
    # the whole capture is painted and its lanes are named
    expect(canvas).to_have_attribute("role", "application")
    for title in ("steps", "stream 7", "stream 9", "idle", "main thread 1"):
        expect(tab.locator(".tkl-title", has_text=re.compile(f"^{title}$")).first).to_be_visible()
    painted = tab.evaluate("performance.getEntriesByName('tracekit:painted').at(-1).detail")
    assert painted["settled"]
    assert (painted["from"], painted["to"]) == (0, 2 * STEP_NS)
    # what is in view is a table with the exact sums
    row = tab.locator(".tkl-table tbody tr", has_text="cudaLaunchKernel")
    expect(row.locator("td.tkl-number")).to_have_text(["6,000", "180.00 µs", "30 ns", "30 ns"])
    expect(row.locator("td.tkl-number").nth(1)).to_have_attribute("title", "180,000 ns")
    # collapsing leaves one line per group
    tab.keyboard.press("c")
    expect(tab.locator(".tkl-labels .tkl-line")).to_have_count(0)
    expect(tab.locator(".tkl-labels .tkl-group")).to_have_count(3)
    tab.keyboard.press("c")
    expect(tab.locator(".tkl-labels .tkl-line").first).to_be_visible()
    # the wheel zooms at the pointer
    box = canvas.bounding_box()
    assert box
    tab.mouse.move(box["x"] + box["width"] / 2, box["y"] + 40)
    tab.mouse.wheel(0, -300)
    expect(canvas).not_to_have_attribute("data-range", f"0-{2 * STEP_NS}")
    start, end = (int(one) for one in (canvas.get_attribute("data-range") or "").split("-"))
    assert abs((start + end) / 2 - STEP_NS) < 0.01 * STEP_NS
    assert end - start < 1.5 * STEP_NS
    tab.keyboard.press("0")
    shows(canvas, 0, 2 * STEP_NS)
    # a click on a step looks at it
    tab.mouse.click(box["x"] + box["width"] * 0.75, box["y"] + 36)
    shows(canvas, STEP_NS, 2 * STEP_NS)
    expect(selected(tab)).to_have_text("ProfilerStep#1")
    tab.keyboard.press("Escape")
    expect(selected(tab)).to_have_count(0)
    tab.keyboard.press("0")
    shows(canvas, 0, 2 * STEP_NS)
    # a marked range has a table of its own
    tab.keyboard.down("Shift")
    tab.mouse.move(box["x"] + box["width"] * 0.25, box["y"] + 30)
    tab.mouse.down()
    tab.mouse.move(box["x"] + box["width"] * 0.5, box["y"] + 30, steps=4)
    tab.mouse.up()
    tab.keyboard.up("Shift")
    expect(tab.get_by_role("heading", name="In the marked range", exact=True)).to_be_visible()
    expect(tab.locator(".tkl-panel .tkl-hint").first).to_contain_text(re.compile(r"^(499|500|501)\.\d\d µs"))
    tab.keyboard.press("f")
    expect(tab.get_by_role("heading", name="In view", exact=True)).to_be_visible()
    expect(canvas).to_have_attribute("data-range", re.compile(r"^(499|500|501)\d{3}-(999|100[01])\d{3}$"))


def test_keys_step_from_kernel_to_kernel_and_one_shows_its_fields_and_what_launched_it(
    tab: Page, address: str
) -> None:
    canvas = opened(tab, f"{address}&row=device_intervals:30")
    expect(selected(tab)).to_have_text("kernel0")
    # period and comma step to the same name, angles along the lane
    for key, row in ((".", 33), (",", 30), (">", 31), ("<", 30)):
        tab.keyboard.press(key)
        expect(tab).to_have_url(re.compile(f"row=device_intervals:{row}(&|$)"))
    # a kernel shows its fields and what launched it
    expect(selected(tab)).to_have_text("kernel0")
    details = tab.locator("#timeline-details")
    expect(details).to_contain_text("duration150 ns")
    details.get_by_role("button", name="cudaLaunchKernel").click()
    expect(selected(tab)).to_have_text("cudaLaunchKernel")
    expect(details).to_contain_text("aten::op0")
    expect(tab).to_have_url(re.compile("row=host_intervals:61"))
    expect(tab.locator(".tkl-status")).to_contain_text("cudaLaunchKernel · 30 ns")
    canvas.focus()
    tab.keyboard.press("Escape")
    expect(selected(tab)).to_have_count(0)
    expect(tab).not_to_have_url(re.compile("row="))
    # an arrow leads to the next kernel on the stream
    canvas = opened(tab, f"{address}&from=3000&to=4000&row=device_intervals:10")
    shows(canvas, 3_000, 4_000)
    expect(details).to_contain_text("Next on its stream")
    painted = """(from) => {
      const lane = window.tracekit.timeline.current.lanes.where.get(
        window.tracekit.timeline.current.selected.lane);
      const overlay = document.getElementById("timeline-canvas");
      const ratio = overlay.width / overlay.clientWidth;
      const app = window.tracekit.timeline.current;
      const [x0, x1] = [app.scale.x(3250), app.scale.x(3400)];
      const y = app.yOf(lane) + lane.h + 2;
      const data = overlay.getContext("2d").getImageData(
        x0 * ratio, y * ratio, (x1 - x0) * ratio, 8 * ratio).data;
      return data.some((value, at) => at % 4 === 3 && value > 0);
    }"""
    expect(canvas).to_have_attribute("data-settled", "true")
    tab.wait_for_function(painted)
    details.get_by_role("button", name="kernel2").click()
    expect(tab).to_have_url(re.compile("row=device_intervals:11(&|$)"))


def test_back_returns_to_each_range_though_the_selection_stays(tab: Page, address: str) -> None:
    canvas = opened(tab, address)
    whole_range = canvas.get_attribute("data-range")
    canvas.focus()
    # the selection is zoomed to once it is loaded, which takes until after the key is pressed
    held: list[Route] = []
    row = re.compile(r"/row/device_intervals/\d+")
    tab.route(row, lambda route: held.append(route))
    with tab.expect_request(row):
        tab.keyboard.press("Enter")
    tab.keyboard.press("f")
    held[0].continue_()
    tab.unroute(row)
    expect(tab).to_have_url(re.compile(r"from=\d+"))
    near = canvas.get_attribute("data-range")
    assert near
    assert whole_range
    assert near != whole_range
    tab.keyboard.press("0")
    expect(tab).not_to_have_url(re.compile(r"from=\d+"))
    for expected in (near, whole_range):
        tab.go_back()
        shows(canvas, *map(int, expected.split("-")))
    tab.go_forward()
    shows(canvas, *map(int, near.split("-")))


def test_a_link_to_a_range_shows_it_and_moves_are_kept_in_the_address(tab: Page, address: str) -> None:
    canvas = opened(tab, f"{address}&from=100000&to=200000")
    shows(canvas, 100_000, 200_000)
    tab.keyboard.press("0")
    shows(canvas, 0, 2 * STEP_NS)
    expect(tab).not_to_have_url(re.compile("from="))
    tab.go_back()
    shows(canvas, 100_000, 200_000)
    expect(tab).to_have_url(re.compile("from=100000&to=200000"))


def count(page: Page) -> Locator:
    return page.locator(".tkl-count")


def test_names_are_searched_counted_stepped_through_and_stay_text(tab: Page, address: str) -> None:
    # a row of the table leads to its longest, and names stay text
    canvas = opened(tab, address)
    tab.locator(".tkl-table").get_by_role("button", name=HOSTILE).click()
    expect(selected(tab)).to_have_text(HOSTILE)
    expect(canvas).not_to_have_attribute("data-range", f"0-{2 * STEP_NS}")
    assert tab.evaluate("window.pwned") is None
    expect(count(tab)).to_have_text("1 of 2")
    tab.keyboard.press("n")
    expect(tab).to_have_url(re.compile(rf"row=device_intervals:{2 * KERNELS + 2}(&|$)"))
    expect(count(tab)).to_have_text("2 of 2")
    # matches are counted, and keys step through them
    opened(tab, address)
    expect(selected(tab)).to_have_count(0)
    tab.get_by_role("combobox", name="Search by").select_option("regex")
    tab.keyboard.press("/")
    tab.keyboard.type("^KERNEL[12]$")
    expect(count(tab)).to_have_text("4,000 matches")
    tab.locator("#timeline-canvas").focus()
    for key, place in (("n", 1), ("n", 2), ("Shift+N", 1), ("Shift+N", 4000), ("n", 1)):
        tab.keyboard.press(key)
        expect(count(tab)).to_have_text(f"{place:,} of 4,000")
    tab.get_by_role("button", name="kernel2").first.click()
    expect(tab.get_by_role("combobox", name="Search by")).to_have_value("name")
    tab.get_by_role("combobox", name="Search", exact=True).fill("ernel0")
    expect(count(tab)).to_have_text("2,000 matches")
    expect(tab.get_by_role("combobox", name="Search by")).to_have_value("text")
    tab.keyboard.press("Escape")
    expect(count(tab)).to_have_text("")
    # a name that is found leads to its first
    opened(tab, address)
    expect(selected(tab)).to_have_count(0)
    tab.keyboard.press("/")
    tab.keyboard.type("KERNEL")
    expect(tab.locator("#timeline-found [role=option]").nth(2)).to_have_text("kernel22,000 × · 300.00 µs")
    tab.keyboard.type("2\n")  # before it is searched
    expect(selected(tab)).to_have_text("kernel2")
    expect(tab).to_have_url(re.compile("row=device_intervals:2(&|$)"))
    expect(tab.get_by_role("combobox", name="Search", exact=True)).to_have_value("KERNEL2")
    expect(count(tab)).to_have_text("1 of 2,000")


def test_a_link_shows_the_exact_view(tab: Page, timelines: Served) -> None:
    words = {
        "from": 900_000,
        "to": 1_500_000,
        "row": "device_intervals:3000",
        "q": "idle",
        "mode": "category",
        "order": "longest",
        "mark": "950000:1000000",
        "sort": "count",
        "group": "stream",
        "fold": 0,
        "top": 8,
    }
    canvas = opened(tab, timelines.url("timeline", "plain", **words))
    shows(canvas, 900_000, 1_500_000)
    expect(selected(tab)).to_have_text(HOSTILE)
    expect(count(tab)).to_have_text("2 matches")
    expect(tab.get_by_role("heading", name="In the marked range, by category (50.00 µs)")).to_be_visible()
    expect(tab.locator(".tkl-shares tbody tr", has_text="idle").locator("td")).to_have_text(
        [re.compile("idle"), "1", "40.00 µs", "80.0%"]
    )
    expect(tab.locator("th[data-key=count]")).to_have_attribute("aria-sort", "ascending")
    expect(tab.get_by_role("combobox", name="Group the lanes")).to_have_value("stream")
    tab.get_by_role("button", name="Move stream 9 up").focus()
    tab.keyboard.press("Enter")
    expect(tab).to_have_url(re.compile("lanes="))
    titles = tab.locator(".tkl-labels .tkl-fold .tkl-title")
    arranged = titles.all_inner_texts()
    assert arranged.index("stream 9") < arranged.index("stream 7")
    shared = tab.url
    leave(tab, timelines.url("help"))
    canvas = opened(tab, shared)
    shows(canvas, 900_000, 1_500_000)
    expect(titles).to_have_text(arranged)
    tab.evaluate("window.tracekit.timeline.current.address.flush()")
    assert tab.url == shared


def test_rows_of_a_query_are_a_lane_in_the_link_until_it_is_removed(
    tab: Page, address: str, timelines: Served
) -> None:
    canvas = opened(tab, address)
    tab.get_by_role("button", name="Add a lane from a SQL query").click()
    tab.get_by_label("Title of the lane").fill("Long ones")
    query = "SELECT start_ns, end_ns, name, stream FROM device_intervals WHERE stream = 9 ORDER BY start_ns"
    tab.get_by_label("Query of the lane").fill(query)
    tab.keyboard.press("Control+Enter")
    lanes = tab.get_by_role("region", name="Lanes from SQL")
    expect(lanes.get_by_role("alert")).to_contain_text('"end_ns" not found')
    lanes.get_by_role("button", name="Edit Long ones").click()
    tab.get_by_label("Query of the lane").fill(query.replace("end_ns", "dur_ns"))
    tab.keyboard.press("Control+Enter")
    expect(lanes.locator("li .tkl-hint")).to_have_text("2 intervals")
    # it comes first; a click selects one of its intervals, which keys and the link find again
    titles = tab.locator(".tkl-labels .tkl-title")
    expect(titles.nth(0)).to_have_text("Long ones")
    expect(titles.nth(1)).to_have_text("intervals")
    box = canvas.bounding_box()
    assert box
    tab.mouse.click(box["x"] + box["width"] * 0.935 / 2, box["y"] + 34)
    expect(selected(tab)).to_have_text(HOSTILE)
    expect(tab.locator("#timeline-details")).to_contain_text("laneLong ones · intervalsstream9")
    tab.keyboard.press(".")
    expect(tab).to_have_url(re.compile(r"row=sql1:1(&|$)"))
    shared = tab.url
    leave(tab, timelines.url("help"))
    leave(tab, shared)
    expect(selected(tab)).to_have_text(HOSTILE)
    expect(tab.locator("#timeline-details")).to_contain_text("0.001 910 000 s")
    assert tab.evaluate("window.pwned") is None
    tab.get_by_role("button", name="Remove Long ones").first.click()
    expect(titles.nth(0)).to_have_text("rank 0")
    expect(tab).not_to_have_url(re.compile("queries=|row="))


def test_clocks_of_ranks_are_aligned_with_a_switch_that_the_link_has(
    tab: Page, address: str, timelines: Served
) -> None:
    switch = tab.get_by_role("button", name="Align the clocks of ranks")
    opened(tab, address)
    expect(switch).to_be_hidden()  # it has one rank
    words = {"row": f"device_intervals:{REDUCTIONS}"}
    canvas = opened(tab, timelines.url("timeline", "ranks", **words))
    details = tab.locator("#timeline-details")
    expect(details).to_contain_text("start0.000 110 000 s")
    expect(switch).to_have_attribute("aria-pressed", "false")
    switch.click()
    expect(details).to_contain_text("start0.000 010 000 srecorded start0.000 110 000 s")
    clocks = tab.get_by_role("region", name="Clocks of ranks")
    expect(clocks.locator("tbody tr").nth(1).locator("td")).to_have_text(
        ["1", "+100.00 µs", "0 ns", str(REDUCTIONS)]
    )
    expect(tab).to_have_url(re.compile("clocks=aligned"))
    shared = tab.url
    leave(tab, timelines.url("help"))
    canvas = opened(tab, shared)
    expect(switch).to_have_attribute("aria-pressed", "true")
    expect(details).to_contain_text("recorded start")
    tab.keyboard.press("0")
    shows(canvas, 10_000, 890_000)
    switch.click()
    shows(canvas, 10_000, 990_000)
    expect(details).to_contain_text("start0.000 110 000 s")
    expect(tab).not_to_have_url(re.compile("clocks="))


@pytest.mark.slow
def test_a_view_is_saved_under_a_name_shown_again_and_deleted(tab: Page, timelines: Served) -> None:
    words = {"from": 900_000, "to": 1_500_000, "q": "idle"}
    canvas = opened(tab, timelines.url("timeline", "plain", **words))
    shows(canvas, 900_000, 1_500_000)
    views = tab.get_by_role("region", name="Views")
    views.get_by_label("Name of the view").fill(f" {HOSTILE[:50]} ")
    tab.keyboard.press("Enter")
    expect(views.get_by_role("button", name=HOSTILE[:50], exact=True)).to_be_visible()
    canvas = opened(tab, timelines.url("timeline", "plain"))
    shows(canvas, 0, 2 * STEP_NS)
    views.get_by_role("button", name=HOSTILE[:50], exact=True).click()
    shows(canvas, 900_000, 1_500_000)
    expect(tab.get_by_role("combobox", name="Search", exact=True)).to_have_value("idle")
    opened(tab, timelines.url("timeline", "filled"))
    expect(views.locator("li")).to_have_count(0)
    tab.go_back()
    views.get_by_role("button", name="Delete").click()
    expect(views.locator("li")).to_have_count(0)
    assert tab.evaluate("window.pwned") is None


@pytest.mark.slow
def test_lanes_panel_and_table_fill_the_window_and_their_layout_is_remembered(
    tab: Page, address: str
) -> None:
    canvas = opened(tab, f"{address}&row=device_intervals:30")
    side, edge = tab.locator("#timeline-side"), tab.get_by_role("separator", name="Width of the panel")
    lanes, box = canvas.bounding_box(), side.bounding_box()
    assert lanes
    assert box
    assert box["x"] > lanes["x"] + lanes["width"]
    assert box["y"] < lanes["y"]
    assert box["y"] + box["height"] <= 900
    edge.focus()
    tab.keyboard.press("ArrowLeft")
    width = int(edge.get_attribute("aria-valuenow") or 0)
    tab.reload()
    expect(edge).to_have_attribute("aria-valuenow", str(width))
    expect(side).to_have_css("width", f"{width}px")
    tab.keyboard.press("i")
    expect(side).to_be_hidden()
    # The lanes, and the canvas, which the pointer needs, follow as the page is laid out.
    tab.wait_for_function(
        """([canvas, before]) => {
            const body = document.querySelector(".tkl-body").getBoundingClientRect().width;
            return body > before && Math.abs(canvas.getBoundingClientRect().width - body) < 1;
        }""",
        arg=[canvas.element_handle(), lanes["width"]],
    )
    tab.keyboard.press("i")
    expect(side).to_be_visible()
    # the window is filled also if the toolbar takes another line, as with a search
    tab.evaluate("document.querySelector('#timeline-controls > *').style.minHeight = '80px'")
    tab.wait_for_function("() => document.documentElement.scrollHeight <= window.innerHeight")
    tab.evaluate("document.querySelector('#timeline-controls > *').style.minHeight = ''")
    # the full window is that of the timeline, until another page is opened
    tab.keyboard.press("v")
    expect(tab.locator(".tk-navbar")).to_be_hidden()
    tab.keyboard.press("l")
    rows = tab.locator(".tkl-below tbody tr").first
    expect(rows).to_be_hidden()
    tab.reload()
    expect(tab.get_by_role("button", name="Fill the window")).to_have_attribute("aria-pressed", "true")
    expect(rows).to_be_hidden()
    assert tab.evaluate("document.documentElement.scrollHeight <= window.innerHeight")
    leave(tab, address.replace("timeline", "kernels"))
    expect(tab.locator(".tk-navbar")).to_be_visible()
    tab.evaluate("localStorage.removeItem('tracekit.timeline.side')")


def test_memory_stands_below_its_device_and_a_note_is_written_with_the_keyboard(
    tab: Page, timelines: Served
) -> None:
    canvas = opened(tab, timelines.url("timeline", "filled"))
    title = tab.locator(".tkl-title", has_text="memory · peak 3.00 GiB")
    expect(title).to_be_visible()
    lane, box = title.bounding_box(), canvas.bounding_box()
    assert lane
    assert box
    for part, held in ((0.1, "2.00 GiB"), (0.4, "3.00 GiB"), (0.9, "2.00 GiB")):
        tab.mouse.move(box["x"] + part * box["width"], lane["y"] + lane["height"] / 2)
        expect(tab.locator(".tkl-tooltip .tkl-tip-time")).to_have_text(held)
    tab.mouse.click(box["x"] + 0.4 * box["width"], lane["y"] + lane["height"] / 2)
    expect(tab.locator("#timeline-details .tkl-full")).to_have_count(0)
    ink = tab.evaluate(
        """([x, y]) => {
          const body = document.querySelector(".tkl-body");
          const ratio = body.width / body.clientWidth;
          return [...body.getContext("2d").getImageData(x * ratio, y * ratio, 1, 1).data].join();
        }""",
        [0.4 * box["width"], lane["y"] + lane["height"] - 6 - box["y"]],
    )
    assert ink == "91,124,153,255"  # the colour of memory in the light theme
    # so do samples, where they are known
    sampled = tab.locator(".tkl-title", has_text=re.compile(r"^power · max 500 W$"))
    sampled.scroll_into_view_if_needed()
    lane = sampled.bounding_box()
    assert lane
    for part, held in ((0.1, "300 W"), (0.9, "500 W")):
        tab.mouse.move(box["x"] + part * box["width"], lane["y"] + lane["height"] / 2)
        expect(tab.locator(".tkl-tooltip")).to_contain_text(f"power{held}")
    # a note leads back to what it is on
    opened(tab, timelines.url("timeline", "filled", row="device_intervals:30"))
    expect(selected(tab)).to_have_text("kernel0")
    tab.keyboard.press("t")
    tab.keyboard.type(HOSTILE)
    tab.keyboard.press("Control+Enter")
    notes = tab.get_by_role("region", name="Notes")
    expect(notes.locator("li")).to_have_text(re.compile(re.escape(HOSTILE)))
    tab.evaluate(  # what is clicked before the page has heard of Back is selected, once its fields are there
        """(url) => {
          const { source, wire } = tracekit.timeline.current;
          const fields = wire.row("device_intervals", 30);
          wire.row = () => {
            delete wire.row;
            return new Promise((resolve) => { window.sendFields = () => resolve(fields); });
          };
          source.row = "another";
          history.pushState({}, "", url);
          dispatchEvent(new PopStateEvent("popstate"));
          document.querySelector(".tkl-note .tkl-link").click();
        }""",
        timelines.url("timeline", "filled"),
    )
    tab.wait_for_function("() => !tracekit.timeline.current.source.row")
    tab.evaluate("sendFields()")
    expect(selected(tab)).to_have_text("kernel0")
    followed = tab.evaluate(  # a move before the page has heard of the link leaves its address
        """() => {
          const { address } = tracekit.timeline.current;
          address.flush();
          history.pushState(null, "", location.search.replace("intervals:30", "intervals:31"));
          address.flush();
          return location.search;
        }"""
    )
    assert "row=device_intervals:31" in followed
    notes.get_by_role("button", name="Delete").click()
    expect(notes.locator("li")).to_have_count(0)
    assert tab.evaluate("window.pwned") is None


@pytest.mark.slow
def test_a_lane_and_a_group_are_dragged_by_their_labels(tab: Page, address: str) -> None:
    opened(tab, address)
    titles = tab.locator(".tkl-labels .tkl-title")

    def drag(label: str, onto: str) -> None:
        what, where = (
            tab.locator(".tkl-labels .tkl-title", has_text=re.compile(f"^{text}$")).bounding_box() or {}
            for text in (label, onto)
        )
        tab.mouse.move(what["x"] + 40, what["y"] + 6)
        tab.mouse.down()
        tab.mouse.move(where["x"] + 40, where["y"] + 2, steps=4)
        tab.mouse.up()

    drag("stream 9", "stream 7")
    expect(tab).to_have_url(re.compile("lanes="))
    shown = titles.all_inner_texts()
    assert shown.index("stream 9") < shown.index("stream 7")
    drag("rank 0 · GPU 0", "rank 0")
    expect(titles.first).to_have_text("rank 0 · GPU 0")
    expect(tab.locator(".tkl-fold[aria-expanded=false]")).to_have_count(0)  # a drag is no click


@pytest.mark.slow
def test_hidden_pinned_and_folded_lanes_and_categories_survive_a_reload(tab: Page, address: str) -> None:
    canvas = opened(tab, address)
    tab.get_by_role("button", name="Hide idle").focus()
    tab.keyboard.press("Enter")
    tab.get_by_role("button", name="Pin stream 9 to the top").focus()
    tab.keyboard.press("Enter")
    tab.locator(".tkl-fold", has_text="host").click()
    tab.locator(".tkl-key", has_text="runtime call").click()
    expect(tab).to_have_url(re.compile(r"hide=\d+.*off=\d+"))
    tab.reload()
    expect(canvas).to_have_attribute("data-settled", "true")
    expect(tab.locator(".tkl-fold", has_text="host")).to_have_attribute("aria-expanded", "false")
    expect(tab.locator(".tkl-pins .tkl-title")).to_have_text("GPU 0 · stream 9")
    expect(tab.locator(".tkl-key[aria-pressed=false]")).to_have_text("runtime call")
    tab.get_by_role("button", name="Show 1 hidden of rank 0 · GPU 0").click()
    expect(tab.get_by_role("button", name="Hide idle")).to_be_attached()


def test_choosing_a_device_keeps_the_range_and_what_is_hidden(tab: Page, address: str) -> None:
    opened(tab, f"{address}&device=0")
    tab.get_by_role("button", name="Hide idle").focus()
    tab.keyboard.press("Enter")
    tab.evaluate("window.tracekit.timeline.current.jump(100000, 200000)")
    expect(tab).to_have_url(re.compile("from=100000&to=200000"))
    with tab.expect_response(re.compile("_dash-update-component")):
        tab.locator("#device").hover()
    tab.locator("#device").click()
    tab.get_by_role("option", name="all", exact=True).click()
    expect(tab).not_to_have_url(re.compile("device=0"))
    shows(tab.locator("#timeline-canvas"), 100_000, 200_000)
    expect(tab).to_have_url(re.compile("from=100000"))
    expect(tab.get_by_role("button", name="Show 1 hidden of rank 0 · GPU 0")).to_be_visible()


def test_another_page_and_back_leaves_nothing_behind(tab: Page, address: str) -> None:
    opened(tab, address)
    tab.get_by_role("link", name="Overview").click()
    expect(tab.get_by_role("heading", level=1, name="Overview")).to_be_visible()
    expect(tab.locator("#timeline-canvas")).to_have_count(0)
    tab.go_back()
    canvas = tab.locator("#timeline-canvas")
    shows(canvas, 0, 2 * STEP_NS)
    tab.keyboard.press("?")
    expect(tab.get_by_role("dialog")).to_have_count(1)
    tab.keyboard.press("Escape")
    expect(tab.get_by_role("dialog")).to_have_count(0)


@pytest.mark.slow
def test_the_theme_repaints_and_a_picture_is_saved(opening: Opening, timelines: Served, address: str) -> None:
    watch = opening(timelines)  # the theme of a warm tab stays
    with closing(watch.open(timelines.url("help"))) as tab:
        canvas = opened(tab, address)
        back = "document.querySelector('.tkl-body').getContext('2d').getImageData(2, 2, 1, 1).data[0]"
        bright = tab.evaluate(back)
        frame = tab.evaluate("performance.getEntriesByName('tracekit:painted').at(-1).detail.frame")
        tab.get_by_role("button", name="Toggle light/dark theme").click()
        expect(canvas).not_to_have_attribute("data-frame", str(frame))
        assert tab.evaluate(back) < bright / 2
        with tab.expect_download() as saved:
            tab.get_by_role("button", name="Save the timeline as PNG").click()
        assert saved.value.suggested_filename.endswith("-timeline.png")
        watch.quiet()
