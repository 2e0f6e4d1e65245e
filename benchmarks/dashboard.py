"""Measure the dashboard in a browser: latency of a zoom, server memory, and cold start.

    python -m benchmarks.dashboard [--intervals 5000000] [--rounds 60] [--chromium PATH]

`tracekit dashboard` serves a synthetic run of millions of intervals in its own process; headless Chromium
zooms in and out at random places. A zoom ends when the frame with the server's response is painted
(`tracekit:painted` with `settled`). Memory is the growth of the server's process by showing the timeline.
Cold start is a new browser profile on a small run, until the overview shows its numbers. Use an idle machine.
"""

from __future__ import annotations

import argparse
import json
import shutil
import subprocess
import sys
import tempfile
import time
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from statistics import median, quantiles
from typing import TYPE_CHECKING

import psutil
from playwright.sync_api import expect, sync_playwright

from benchmarks.timeline import RUN_ID, synthetic
from samples.simulator import write
from samples.simulator.examples import training
from tracekit.ingest.importer import import_traces
from tracekit.runs.store import Store

if TYPE_CHECKING:
    from collections.abc import Iterator

    from playwright.sync_api import Browser, Page

PATIENCE_MS = 180_000
BROWSERS = ("chromium", "chromium-browser", "google-chrome")
SERVE = "from tracekit.cli.main import main; main()"
_ZOOMS = """async (rounds) => {
  const canvas = document.getElementById("timeline-canvas");
  const box = canvas.getBoundingClientRect();
  let state = 7;
  const random = () => (state = (state * 48271) % 2147483647) / 2147483647;
  const painted = () => new Promise((resolve) => {
    const watch = new PerformanceObserver((list) => {
      const last = list.getEntriesByName("tracekit:painted").filter((each) => each.detail.settled).at(-1);
      if (last) { watch.disconnect(); resolve(last.startTime); }
    });
    watch.observe({ type: "mark" });
  });
  const turn = async (deltaY, x) => {
    const end = painted();
    const start = performance.now();
    const at = { clientX: box.left + x * box.width, clientY: box.top + box.height / 2 };
    canvas.dispatchEvent(new WheelEvent("wheel", { deltaY, bubbles: true, cancelable: true, ...at }));
    return (await end) - start;
  };
  const took = [];
  performance.clearResourceTimings();
  performance.setResourceTimingBufferSize(10000);
  for (let round = 0; round < rounds; round += 1) {
    const [from, to] = canvas.dataset.range.split("-").map(Number);
    const out = round % 12 >= 9 || to - from < 2000;  // what is as near as it can be is painted no more
    took.push(await turn((out ? 1 : -1) * (200 + 500 * random()) * (out ? 4 : 1), 0.05 + 0.9 * random()));
  }
  const asked = performance.getEntriesByType("resource")
    .filter((each) => each.name.includes("/timeline/") && each.requestStart > 0);  // 0: given up
  return { took, answers: asked.map((each) => each.responseEnd - each.requestStart),
           bytes: asked.map((each) => each.encodedBodySize) };
}"""


@dataclass(frozen=True)
class Measure:
    """One number, and what it may be at most."""

    what: str
    value: float
    unit: str
    limit: float | None = None

    @property
    def over(self) -> bool:
        """Whether the limit is passed."""
        return self.limit is not None and self.value > self.limit


@contextmanager
def serving(store: Path, tracekit: Path | None = None) -> Iterator[tuple[psutil.Process, str]]:
    """The command that people run, on a free port; gives its process and its address.

    Args:
        store: The store.
        tracekit: The command, of another version; None for the one of this environment.
    """
    own = [sys.executable, "-c", SERVE] if tracekit is None else [str(tracekit)]
    command = [*own, "dashboard", "--port", "0", "--store", str(store)]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    try:
        printed = process.stdout.readline() if process.stdout else ""
        yield psutil.Process(process.pid), next(word for word in printed.split() if word.startswith("http"))
    finally:
        process.terminate()
        process.wait()


def timeline(browser: Browser, address: str) -> tuple[Page, float]:
    """Open the timeline of the large run; gives the tab, and the seconds until it was painted."""
    page = browser.new_page(viewport={"width": 1_440, "height": 900})
    page.set_default_timeout(PATIENCE_MS)
    start = time.perf_counter()
    page.goto(f"{address}timeline?run={RUN_ID}")
    expect(page.locator('#timeline-canvas[data-settled="true"]')).to_be_visible(timeout=PATIENCE_MS)
    return page, time.perf_counter() - start


def zooming(browser: Browser, store: Path, rounds: int) -> list[Measure]:
    """Zooms, answers, memory and opening again."""
    with serving(store) as (process, address):
        browser.new_page().goto(address)
        before = process.memory_full_info().uss
        page, first_s = timeline(browser, address)
        page.evaluate(_ZOOMS, 12)
        found = page.evaluate(_ZOOMS, rounds)
        memory = (process.memory_full_info().uss - before) / 1e9
        page.close()
    with serving(store) as (_, address):
        browser.new_page().goto(address)
        _, again_s = timeline(browser, address)
    return [
        Measure("zoom to painted frame, median", median(found["took"]), "ms", 100),
        Measure("zoom to painted frame, p95", p95(found["took"]), "ms", 200),
        *answers(found),
        Measure("memory of the index", memory, "GB", 0.6),
        Measure("first opened, index built", first_s, "s"),
        Measure("opened again by a new server", again_s, "s", first_s / 2),
    ]


def answers(found: dict[str, list[float]]) -> list[Measure]:
    """What the server took; nothing where the zooms asked it nothing, as on a run that is sent whole."""
    if not found["answers"]:
        return []
    return [
        Measure("answer of the server, p95", p95(found["answers"]), "ms", 100),
        Measure("answer of the server, largest", max(found["bytes"]) / 1e3, "kB"),
    ]


def cold(browser: Browser, folder: Path, rounds: int = 5) -> list[Measure]:
    """Seconds until the overview of a small run has its numbers, in profiles that know nothing."""
    store = folder / "small"
    import_traces(Store(store), [write(training(), folder / "trace.json")])
    took = []
    with serving(store) as (_, address):
        for _ in range(rounds):
            with browser.new_context(viewport={"width": 1_440, "height": 900}) as context:
                page = context.new_page()
                start = time.perf_counter()
                page.goto(f"{address}overview", wait_until="commit")
                expect(page.locator(".tk-tile-value").first).to_be_visible(timeout=PATIENCE_MS)
                took.append(time.perf_counter() - start)
    return [Measure("numbers visible, cold", median(took), "s", 1.5)]


def p95(values: list[float]) -> float:
    """The 95th percentile."""
    return quantiles(values, n=20, method="inclusive")[-1] if len(values) > 1 else values[0]


def report(measures: list[Measure]) -> int:
    """Print the table; returns 1 where a limit is passed."""
    print(f"{'':34}{'value':>9}{'limit':>9}")
    for one in measures:
        limit = "" if one.limit is None else f"{one.limit:.2f}"
        print(f"{one.what:34}{one.value:9.2f}{limit:>9} {one.unit}{'  over' if one.over else ''}")
    return int(any(one.over for one in measures))


def main() -> None:
    """Measure and print; exit with 1 where a limit is passed."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--intervals", type=int, default=5_000_000)
    parser.add_argument("--rounds", type=int, default=60)
    parser.add_argument("--chromium", default=next(filter(None, map(shutil.which, BROWSERS)), None))
    parser.add_argument("--json", action="store_true", help="print one JSON object, without limits")
    options = parser.parse_args()
    arguments = ["--no-sandbox", "--disable-gpu", "--disable-background-networking", "--no-first-run"]
    with tempfile.TemporaryDirectory() as name, sync_playwright() as playwright:
        folder = Path(name)
        synthetic(Store(folder / "large"), options.intervals)
        browser = playwright.chromium.launch(executable_path=options.chromium, args=arguments)
        measures = [*zooming(browser, folder / "large", options.rounds), *cold(browser, folder)]
        browser.close()
    if options.json:
        print(json.dumps({f"{one.what}, {one.unit}": one.value for one in measures}))
        return
    print(f"{options.intervals:,} intervals, {options.rounds} zooms, Chromium without a GPU")
    sys.exit(report(measures))


if __name__ == "__main__":
    main()
