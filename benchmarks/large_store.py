"""Check commands and dashboard on a store of thousands of runs.

    python -m benchmarks.large_store [--runs 5000] [--store STORE] [--chromium PATH]

The runs are copies of a simulated one, with other workloads, batch sizes, labels and commits, as made by
`python -m tests.large_store`, in a new STORE; an existing one is used as it is. Commands are measured with
the index of the store, which is written first. Pages are measured in headless Chromium. Use an idle machine.
"""

from __future__ import annotations

import argparse
import shutil
import sys
import tempfile
import time
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from playwright.sync_api import expect, sync_playwright

from benchmarks.dashboard import BROWSERS, PATIENCE_MS, SERVE, Measure, report, serving
from benchmarks.runner import Failure, measure
from samples.simulator import write
from samples.simulator.examples import training
from tests.large_store import fill
from tracekit.ingest.importer import import_traces
from tracekit.runs import meta as run_meta
from tracekit.runs.meta import Git, Timings
from tracekit.runs.run import Run
from tracekit.runs.store import Store

if TYPE_CHECKING:
    from collections.abc import Iterator

    from playwright.sync_api import Browser, Page, Response

TICKS_MS = 15_000
"""How long ticks of the page *Runs* are watched."""
_CALLBACK = "/_dash-update-component"
_ARGUMENTS = ("--no-sandbox", "--disable-gpu", "--disable-background-networking", "--no-first-run")
_SQL = "SELECT name, count(*) AS n, sum(dur_ns) AS sum_ns FROM device_intervals GROUP BY name ORDER BY name"
_COMMANDS = {
    "runs": (("runs", "--limit", "20"), 1.0, 200.0),
    "query --all": (("query", "--all", _SQL), 10.0, 500.0),
}
"""Commands with their limits of seconds and MB."""
_PAGES = {"compare": "text=most similar first", "sweeps": ".js-plotly-plot", "history": ".js-plotly-plot"}
"""What is visible when a page over all runs has its content."""


def made(folder: Path, count: int, scratch: Path) -> None:
    """Make a store of runs with commits and step times."""
    store = Store(folder)
    (run,) = import_traces(store, [write(training(), scratch / "trace.json")])
    git = Git("0" * 40, "", "main", dirty=False, diff_sha256=None, commit_time="2026-11-21T00:00:00Z")
    timed = replace(run.meta, git=git, timings=Timings([2_000_000, 2_100_000], [], "perf_counter"))
    run_meta.write(run.path, timed)
    fill(store, [Run(run.path)], count - 1)


def commands(store: Path) -> Iterator[Measure]:
    """Time and memory of commands, after one that writes the index.

    Raises:
        RuntimeError: A command failed.
    """
    Store(store).runs()
    for name, (arguments, most_s, most_mb) in _COMMANDS.items():
        cost = measure([sys.executable, "-c", SERVE, *arguments, "--store", str(store)])
        if isinstance(cost, Failure):
            raise RuntimeError(f"{name}: {cost.reason}")
        yield Measure(name, cost.wall_s, "s", most_s)
        yield Measure(f"{name}, CPU", cost.cpu_s, "s")
        yield Measure(f"{name}, memory", cost.peak_mb, "MB", most_mb)


def pages(browser: Browser, store: Path) -> Iterator[Measure]:
    """Start of the dashboard, the page Runs and its ticks, and the pages that look at all runs."""
    begun = time.perf_counter()
    with serving(store) as (process, address):
        yield Measure("dashboard, start", time.perf_counter() - begun, "s", 3.0)
        page = browser.new_page(viewport={"width": 1_440, "height": 900})
        page.set_default_timeout(PATIENCE_MS)
        bodies: list[int] = []
        page.on("response", lambda one: bodies.append(_size(one)))
        yield Measure("Runs, first rows", _seconds(page, address, "runs", "#runs-grid .ag-row a"), "s")
        page.wait_for_timeout(TICKS_MS)  # step times of the visible rows
        yield Measure("Runs, largest answer", max(bodies) / 1e3, "kB", 50.0)
        del bodies[:]
        used = sum(process.cpu_times()[:2])
        page.wait_for_timeout(TICKS_MS)
        yield Measure("Runs, answers of a minute", sum(bodies) / 1e3 * 60_000 / TICKS_MS, "kB")
        yield Measure("Runs, CPU at rest", (sum(process.cpu_times()[:2]) - used) / TICKS_MS * 1e5, "%")
        yield Measure("Runs, filter", _filter(page), "s")
        for name, found in _PAGES.items():
            yield Measure(f"page {name}", _seconds(page, address, name, found), "s")
        yield Measure("dashboard, memory", process.memory_full_info().uss / 1e6, "MB")


def _size(answer: Response) -> int:
    """Return the bytes of a callback's answer; 0 of other answers."""
    if _CALLBACK not in answer.url or answer.status != 200:
        return 0
    return int(answer.headers.get("content-length", 0))


def _seconds(page: Page, address: str, name: str, found: str) -> float:
    begun = time.perf_counter()
    page.goto(f"{address}{name}", wait_until="commit")
    expect(page.locator(found).first).to_be_visible(timeout=PATIENCE_MS)
    return time.perf_counter() - begun


def _filter(page: Page) -> float:
    """Return the seconds until the list shows only the runs that a text selects."""
    begun = time.perf_counter()
    page.get_by_label("Filter runs").fill("trial 4990")
    expect(page.locator("#runs-count")).to_contain_text("1 of", timeout=PATIENCE_MS)
    return time.perf_counter() - begun


def main() -> None:
    """Measure and print; exit with 1 where a limit is passed."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--runs", type=int, default=5_000)
    parser.add_argument("--store", type=Path, help="default: a temporary one")
    parser.add_argument("--chromium", default=next(filter(None, map(shutil.which, BROWSERS)), None))
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as name, sync_playwright() as playwright:
        store = options.store or Path(name) / "store"
        if not store.exists():
            made(store, options.runs, Path(name))
        browser = playwright.chromium.launch(executable_path=options.chromium, args=list(_ARGUMENTS))
        measures = [*commands(store), *pages(browser, store)]
        browser.close()
    print(f"{len(Store(store).runs()):,} runs, Chromium without a GPU")
    sys.exit(report(measures))


if __name__ == "__main__":
    main()
