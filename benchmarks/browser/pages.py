"""Measure every page of the dashboard: loads, layout shift, width; a drop; and the server's memory.

    python -m benchmarks.browser.pages TRACE... [--parts layout loads drop memory tab] [--rounds 5]

Each TRACE is a file, or a folder of the traces of one job; each is imported into a store of its own, and its
pages are opened in headless Chromium at 1440x900 and 390x844. `layout` prints for each page the sum of all
layout shifts of a load at both widths, by how much the document is wider than the window, and the tables
with columns outside of it at 1440. `loads` prints the milliseconds until something is painted, and until
what is in the window is complete: first (of a new server, after the import, with an empty browser cache),
second, and in the same tab by a link from the page before it, in a browser that has shown a page; requests
and kilobytes of the first, kilobytes of the second, and the longest task and the layout shifts of the first,
medians of the rounds. `drop` is the time from dropping the file until the verdict is shown and until the
overview is complete. `memory` is memory and CPU time of the server and its processes over 2,000 loads of
pages with their blocks, without a browser. `tab` is the memory of one tab over as many loads, in turns of
all pages by new documents and by links: its heap, nodes and listeners after a garbage collection, and the
memory of the browser's processes. Times need an idle machine; the other parts do not.
"""

from __future__ import annotations

import argparse
import contextlib
import re
import tempfile
import time
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING, Any

import psutil
from playwright.sync_api import expect, sync_playwright
from tracekit.dashboards.analysis_pages.pages import load_pages

from benchmarks.browser.chromium import chromium
from benchmarks.dashboard import serving
from benchmarks.programs.ask_dashboard import BLOCK, asked, cpu_seconds, fetched
from tests.browser.watch import leave
from tracekit.ingest.importer import import_traces
from tracekit.runs.store import Store

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from playwright.sync_api import Browser, Page

PARTS = ("layout", "loads", "drop", "memory", "tab")
WIDE, PHONE = (1_440, 900), (390, 844)
SHIFT = 0.1
"""Most layout shift of a page."""
LOADS, EVERY = 2_000, 500
PATIENCE_S = 180
_WATCH = """(() => {
  const found = window.tracekitLoad = { shift: 0, shifted: [], longest: 0, done: null, title: "" };
  new PerformanceObserver((list) => {
    for (const one of list.getEntries()) found.longest = Math.max(found.longest, one.duration);
  }).observe({ type: "longtask", buffered: true });
  new PerformanceObserver((list) => {
    for (const one of list.getEntries().filter((each) => !each.hadRecentInput)) {
      found.shift += one.value;
      const named = one.sources.map(({ node }) => node && (node.id || node.className || node.nodeName));
      found.shifted.push(`${one.value.toFixed(3)} at ${Math.round(one.startTime)}: ${named.slice(0, 3)}`);
    }
  }).observe({ type: "layout-shift", buffered: true });
  const unfinished = ['.tk-block[aria-busy="true"]', ".dash-graph--pending", ".tkl-loading", ".tkl:empty",
    '[data-settled="false"]', '.tk-page [aria-busy="true"]'].join(",");
  let since = null;
  const look = () => {
    const now = performance.now();
    const title = document.querySelector("#page h1");
    const isOther = !title || !title.textContent.includes(found.title);
    if (isOther || document.querySelector(unfinished)) since = null;
    else if (since === null) since = now;
    found.done = since !== null && now - since > 500 ? since : null;
    window.requestAnimationFrame(look);
  };
  window.requestAnimationFrame(look);
})()"""
_SENT = """() => {
  const sent = ["navigation", "resource"].flatMap((kind) => performance.getEntriesByType(kind));
  const painted = performance.getEntriesByName("first-contentful-paint")[0];
  const bytes = sent.reduce((sum, one) => sum + one.transferSize, 0);
  return { painted: painted ? painted.startTime : 0, requests: sent.length, bytes };
}"""
_FITS = """() => {
  const root = document.documentElement;
  const wide = [...document.querySelectorAll("#page *")].filter((one) => one.scrollWidth > one.clientWidth + 1
    && /auto|scroll/.test(getComputedStyle(one).overflowX) && one.checkVisibility() && one.clientWidth > 60
    && (one.matches(".ag-center-cols-viewport") || one.querySelector("table")));
  const named = (one) => (one.closest("[aria-label]") || one).getAttribute("aria-label") || one.className;
  return { over: Math.max(0, root.scrollWidth - root.clientWidth), cut: [...new Set(wide.map(named))] };
}"""


def names(wanted: Sequence[str] = ()) -> list[str]:
    """Names of the pages, in the order of the menu."""
    return [name for name in load_pages() if name in wanted or not wanted]


def stored(trace: Path, folder: Path) -> tuple[Path, str]:
    """Import a trace, or the traces of a job, into a store of its own; gives the store and the run's id."""
    store = folder / "store"
    (run,) = import_traces(Store(store), [trace], label=trace.name)
    return store, run.path.name


def opened(browser: Browser, size: tuple[int, int]) -> Page:
    """A tab of a browser that has stored nothing."""
    width, height = size
    page = browser.new_context(viewport={"width": width, "height": height}).new_page()
    page.add_init_script(_WATCH)
    page.set_default_timeout(PATIENCE_S * 1_000)
    return page


def completed(page: Page, url: str | None) -> dict[str, Any]:
    """Load an address, or the page again, until it is complete; gives milliseconds and layout shifts."""
    if url:
        page.goto(url, wait_until="commit")
    else:
        page.reload(wait_until="commit")
    latest = time.monotonic() + PATIENCE_S
    while time.monotonic() < latest:
        found: dict[str, Any] = page.evaluate("() => window.tracekitLoad || {}")
        if found.get("done"):
            return found
        page.wait_for_timeout(100)
    raise TimeoutError(f"{page.url} is not complete after {PATIENCE_S} s")


def followed(page: Page, url: str, title: str) -> float:
    """Go to a page as a link does, until it is complete; gives milliseconds."""
    start: float = page.evaluate(
        "(title) => { Object.assign(window.tracekitLoad, { title, done: null }); return performance.now(); }",
        title,
    )
    leave(page, url)
    page.wait_for_function("() => window.tracekitLoad.done !== null", timeout=PATIENCE_S * 1_000)
    return float(page.evaluate("() => window.tracekitLoad.done")) - start


def layout(browser: Browser, address: str, run: str, pages: Iterable[str], *, verbose: bool) -> Iterator[str]:
    """Yield the rows of the table of layouts."""
    heads = (f"{head:>11}" for head in ("shift 1440", "shift 390", "wider 1440", "wider 390"))
    yield f"{'page':20}{''.join(heads)}  columns outside"
    for name in pages:
        found = []
        for size in (WIDE, PHONE):
            page = opened(browser, size)
            load = completed(page, f"{address}{name}?run={run}")
            found.append({**load, **page.evaluate(_FITS)})
            page.context.close()
        wide, phone = found
        over = "  over" if max(wide["shift"], phone["shift"]) > SHIFT else ""
        yield (
            f"{name:20}{wide['shift']:11.3f}{phone['shift']:11.3f}{wide['over']:11}{phone['over']:11}"
            f"  {', '.join(wide['cut'])}{over}"
        )
        if verbose:
            yield from (f"    {one}" for load in found for one in load["shifted"])


def loads(browser: Browser, trace: Path, pages: Sequence[str], rounds: int) -> Iterator[str]:
    """Yield the rows of the table of loads."""
    took: dict[str, list[list[float]]] = {name: [] for name in pages}
    titles = {name: one.title for name, one in load_pages().items()}
    times, sizes = ("paint ms", "first ms", "second ms", "link ms"), ("requests", "kB", "kB again")
    heads = (*times, *sizes, "longest ms", "shift")
    yield f"{'page':20}{''.join(f'{head:>11}' for head in heads)}"
    opened(browser, WIDE).goto("data:text/html,<h1>of no server</h1>")
    for number in range(rounds):
        with tempfile.TemporaryDirectory() as folder:
            store, run = stored(trace, Path(folder))
            with serving(store) as (_, address):
                for name, before in zip(pages, [pages[-1], *pages], strict=False):
                    page = opened(browser, WIDE)
                    first = completed(page, f"{address}{name}?run={run}") | page.evaluate(_SENT)
                    second = completed(page, None) | page.evaluate(_SENT)
                    completed(page, f"{address}{before}?run={run}")
                    linked = followed(page, f"{address}{name}?run={run}", titles[name])
                    took[name].append(
                        [
                            first["painted"],
                            first["done"],
                            second["done"],
                            linked,
                            first["requests"],
                            first["bytes"] / 1e3,
                            second["bytes"] / 1e3,
                            first["longest"],
                            first["shift"],
                        ]
                    )
                    page.context.close()
                    if number == rounds - 1:
                        *values, shift = map(median, zip(*took[name], strict=True))
                        yield f"{name:20}{''.join(f'{value:11.0f}' for value in values)}{shift:11.3f}"


def drop_files(page: Page, paths: list[str]) -> None:
    """Drop files on a page, as from a folder of the desktop."""
    data = {"items": [], "files": paths, "dragOperationsMask": 1}
    session = page.context.new_cdp_session(page)
    for kind in ("dragEnter", "dragOver", "drop"):
        session.send("Input.dispatchDragEvent", {"type": kind, "x": 600, "y": 400, "data": data})


def drop(browser: Browser, trace: Path, rounds: int) -> Iterator[str]:
    """Yield the seconds from a drop until the verdict is shown and the overview is complete."""
    trace = trace.resolve()
    paths = sorted(map(str, trace.iterdir())) if trace.is_dir() else [str(trace)]
    took = []
    for _ in range(rounds):
        with tempfile.TemporaryDirectory() as folder, serving(Path(folder) / "store") as (_, address):
            page = opened(browser, WIDE)
            completed(page, f"{address}runs")
            start = time.perf_counter()
            drop_files(page, paths)
            expect(page).to_have_url(re.compile("/overview"), timeout=PATIENCE_S * 1_000)
            opened_s = time.perf_counter() - start
            expect(page.locator(".tk-bound")).to_be_visible(timeout=PATIENCE_S * 1_000)
            verdict_s = time.perf_counter() - start
            expect(page.locator(".tk-block[aria-busy=true]")).to_have_count(0, timeout=PATIENCE_S * 1_000)
            took.append((opened_s, verdict_s, time.perf_counter() - start))
            page.context.close()
    shown = (median(values) for values in zip(*took, strict=True))
    yield "run opened {:.1f} s, verdict {:.1f} s, overview complete {:.1f} s after the drop".format(*shown)


def memory(server: psutil.Process, address: str, run: str, pages: Sequence[str], count: int) -> Iterator[str]:
    """Yield memory and CPU time of the server after every `EVERY` of so many loads of pages."""
    entries = fetched(f"{address}_dash-dependencies").decode()
    output = next(
        one for one in re.findall(r'"output":"((?:[^"\\]|\\.)*)"', entries) if BLOCK in unquoted(one)
    )
    blocks = {name: list(page.blocks) for name, page in load_pages().items() if name in pages}
    yield f"{'loads':>8}{'MB':>8}{'CPU s':>8}"
    for number in range(count + 1):
        if number % EVERY == 0 or number == len(pages):
            memory_mb = server.memory_full_info().uss / 1e6
            yield f"{number:8}{memory_mb:8.0f}{cpu_seconds(server):8.1f}"
        name = pages[number % len(pages)]
        fetched(f"{address}{name}?run={run}")
        asked(address, unquoted(output), name, blocks[name], run)


def tab(browser: Browser, address: str, run: str, pages: Sequence[str], count: int) -> Iterator[str]:
    """Yield the memory of one tab after every round of all pages, for so many loads."""
    page, titles = opened(browser, WIDE), {name: one.title for name, one in load_pages().items()}
    session = page.context.new_cdp_session(page)
    session.send("Performance.enable")
    yield f"{'loads':>8}{'heap MB':>9}{'nodes':>8}{'listeners':>11}{'documents':>11}{'browser MB':>12}"
    for number in range(count):
        name = pages[number % len(pages)]
        url = f"{address}{name}?run={run}"
        if number // len(pages) % 2 and number % len(pages):
            followed(page, url, titles[name])
        else:
            completed(page, url)
        if number % len(pages) == len(pages) - 1 or number == count - 1:
            session.send("HeapProfiler.collectGarbage")
            found = {one["name"]: one["value"] for one in session.send("Performance.getMetrics")["metrics"]}
            yield (
                f"{number + 1:8}{found['JSHeapUsedSize'] / 1e6:9.1f}{found['Nodes']:8.0f}"
                f"{found['JSEventListeners']:11.0f}{found['Documents']:11.0f}{browser_bytes() / 1e6:12.0f}"
            )
    page.context.close()


def browser_bytes() -> int:
    """Memory of the browser's processes that they share with no other."""
    total = 0
    for process in psutil.Process().children(recursive=True):
        with contextlib.suppress(psutil.Error):
            total += process.memory_full_info().uss if "chrom" in process.name() else 0
    return total


def unquoted(text: str) -> str:
    """A JSON string without its escapes."""
    return text.replace('\\"', '"').replace("\\\\", "\\")


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("traces", nargs="+", type=Path, metavar="TRACE")
    parser.add_argument("--parts", nargs="+", choices=PARTS, default=PARTS[:-1])
    parser.add_argument("--pages", nargs="+", default=[], metavar="NAME", help="only these pages")
    parser.add_argument("--rounds", type=int, default=1, help="times are the median of so many")
    parser.add_argument("--count", type=int, default=LOADS, help="loads of the parts memory and tab")
    parser.add_argument("--verbose", action="store_true", help="print each layout shift")
    options = parser.parse_args()
    pages = names(options.pages)
    with sync_playwright() as playwright:
        browser = chromium(playwright)
        for trace in options.traces:
            for part in options.parts:
                print(f"\n{trace.name}: {part}")
                for row in measured(browser, trace, part, pages, options):
                    print(row, flush=True)
        browser.close()


def measured(
    browser: Browser, trace: Path, part: str, pages: Sequence[str], options: argparse.Namespace
) -> Iterator[str]:
    """Yield the rows of a part."""
    if part == "loads":
        yield from loads(browser, trace, pages, options.rounds)
    elif part == "drop":
        yield from drop(browser, trace, options.rounds)
    else:
        with tempfile.TemporaryDirectory() as folder:
            store, run = stored(trace, Path(folder))
            with serving(store) as (server, address):
                if part == "layout":
                    yield from layout(browser, address, run, pages, verbose=options.verbose)
                elif part == "tab":
                    yield from tab(browser, address, run, pages, options.count)
                else:
                    yield from memory(server, address, run, pages, options.count)


if __name__ == "__main__":
    main()
