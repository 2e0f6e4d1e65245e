"""Do eight tasks in the dashboard as a user would, and count the actions and the seconds.

    python -m benchmarks.browser.tasks GPU_TRACE BASE_TRACE JOB_FOLDER [--serve TRACEKIT] [--json]

GPU_TRACE is a trace with idle time and copies to the device, BASE_TRACE one to compare it with, JOB_FOLDER
the traces of several ranks. They are imported into a store that `tracekit dashboard` serves; with `--serve`,
the command of another version, which must read the store. An action is a click, a drag, a key press, or
typing a text; waiting is none. Seconds are from opening the first page until the answer is shown. A task that
fails is printed with the step at which it did: that version does not offer it.
"""

from __future__ import annotations

import argparse
import json
import re
import tempfile
import time
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from playwright.sync_api import Error, expect, sync_playwright

from benchmarks.browser.chromium import chromium
from benchmarks.browser.pages import drop_files
from benchmarks.dashboard import serving
from tracekit.ingest.importer import import_traces
from tracekit.runs.store import Store

if TYPE_CHECKING:
    from collections.abc import Callable

    from playwright.sync_api import Browser, Locator, Page

PATIENCE_MS = 60_000


@dataclass
class User:
    """Someone at a tab, whose actions are counted.

    Attributes:
        page: The tab.
        runs: Ids of the runs by label.
        address: Address of the dashboard.
        dropped: A trace to import.
        actions: What was done.
    """

    page: Page
    runs: dict[str, str]
    address: str
    dropped: Path
    actions: list[str] = field(default_factory=list)

    def opens(self, name: str, run: str = "gpu") -> None:
        """Have a page open; no action."""
        self.page.goto(f"{self.address}{name}?run={self.runs[run]}")
        expect(self.page.locator("#page h1")).to_be_visible()

    def clicks(self, where: Locator) -> None:
        """Click the first of these."""
        where.first.click()
        self.actions.append(f"click {where}")

    def scrolls(self, where: Locator) -> None:
        """Scroll to the first of these: tables are made once they are near the window."""
        where.first.scroll_into_view_if_needed()
        self.actions.append(f"scroll to {where}")

    def presses(self, *keys: str) -> None:
        """Press keys, one after the other."""
        for key in keys:
            self.page.keyboard.press(key)
            self.actions.append(f"press {key}")

    def types(self, text: str) -> None:
        """Type a text; one action."""
        self.page.keyboard.type(text)
        self.actions.append(f"type {text}")

    def menu(self, title: str) -> None:
        """Open a page from the menu."""
        self.clicks(
            self.page.get_by_role("navigation", name="Pages").get_by_role("link", name=title, exact=True)
        )
        expect(self.page.locator("#page h1")).to_have_text(title)

    @property
    def selection(self) -> Locator:
        """The panel of the selected interval."""
        return self.page.locator("#timeline-details")


def why_idle(user: User) -> str:
    """From the overview to the source line that causes the longest idle time."""
    user.opens("overview")
    user.menu("Idle gaps")
    user.scrolls(user.page.locator(".tk-table"))
    user.clicks(user.page.locator(".tk-grid .tk-jump"))
    expect(user.selection).to_contain_text("cause")
    return f"{user.selection.inner_text().count(chr(10))} lines of the panel"


def longest_h2d(user: User) -> str:
    """The longest copy from host to device: by the link of its row, else by a search."""
    user.opens("overview")
    user.menu("Copies")
    tab = user.page.get_by_role("tab", name="Copies by host memory: By direction and memory")
    expect(user.page.get_by_role("tab").first).to_be_visible()
    if tab.count():
        user.clicks(tab)
        user.clicks(user.page.locator(".tk-grid a[aria-label^='Show the longest H2D']"))
    else:
        user.menu("Timeline")
        expect(user.page.locator("#timeline-canvas[data-settled=true]")).to_be_visible()
        user.presses("/")
        user.types("HtoD")
        user.presses("Enter")
    expect(user.selection).to_contain_text(re.compile("HtoD|H2D"))
    return user.selection.inner_text().replace("\n", " ")[:80]


def worst_op(user: User) -> str:
    """Two runs chosen from the list and compared, with the largest cause of the difference named."""
    user.opens("runs")
    for label in ("gpu", "base"):
        row = user.page.locator(f".ag-row[row-id='{user.runs[label]}']")
        user.clicks(row.locator(".ag-selection-checkbox"))
    user.clicks(user.page.locator("a.tk-go[href*='base=']", has_text="Compare"))
    expect(user.page.locator("#page h1")).to_have_text("Compare")
    anyway = user.page.get_by_role("link", name="Compare anyway")
    causes = user.page.locator("#page").get_by_text(re.compile("^Largest (?:in|de)crease: "))
    expect(anyway.or_(causes).first).to_be_visible()
    if anyway.count():
        user.clicks(anyway)
    expect(causes.first).to_be_visible()
    return causes.first.inner_text().replace("\n", " ")[:80]


def share_view(user: User) -> str:
    """The exact view of the timeline in another browser."""
    user.opens("timeline")
    user.clicks(user.page.get_by_role("button", name="Zoom in (W)"))
    canvas = user.page.locator("#timeline-canvas[data-settled=true]")
    expect(user.page).to_have_url(re.compile("from="))
    seen = canvas.get_attribute("data-range")
    other = user.page.context.browser.new_page()  # type: ignore[union-attr]
    other.goto(user.page.url)
    user.actions.append("copy the address")
    expect(other.locator("#timeline-canvas")).to_have_attribute("data-range", str(seen), timeout=PATIENCE_MS)
    other.close()
    return str(seen)


def query(user: User) -> str:
    """The number of intervals of each kind, by a query."""
    user.opens("sql")
    user.clicks(user.page.get_by_role("textbox", name="Query"))
    user.presses("Control+A")
    user.types("SELECT kind, count(*) AS n FROM device_intervals GROUP BY kind")
    user.presses("Control+Enter")
    rows = user.page.locator(".tk-grid .ag-center-cols-container .ag-row")
    expect(rows.filter(has_text="kernel")).to_be_visible()
    return f"{rows.count()} rows"


def keyboard_only(user: User) -> str:
    """From the overview to the second kernel of a search and what launched it, without a pointer."""
    user.opens("overview")
    user.page.wait_for_timeout(500)
    user.presses("g", "t")
    expect(user.page.locator("#timeline-canvas[data-settled=true]")).to_be_visible()
    user.presses("/")
    user.types("gemm")
    expect(user.page.locator(".tkl-count")).to_contain_text(re.compile("match| of "))
    user.presses("Enter")
    expect(user.selection.locator(".tkl-full")).to_be_visible()
    user.presses("n")
    expect(user.selection).to_contain_text("Launched by")
    return user.page.locator(".tkl-count").inner_text()


def straggler(user: User) -> str:
    """The rank that the others wait for."""
    user.opens("overview", "job")
    user.menu("Ranks")
    answer = user.page.locator(".tk-answer, .tk-finding-title, .tk-tile").first
    expect(answer).to_contain_text(re.compile("rank", re.IGNORECASE))
    return answer.inner_text().replace("\n", " ")[:100]


def drop(user: User) -> str:
    """The verdict of a trace that is dropped on the list of runs."""
    user.opens("runs")
    drop_files(user.page, [str(user.dropped.resolve())])
    user.actions.append("drop a file")
    expect(user.page).to_have_url(re.compile("/overview"))
    expect(user.page.locator(".tk-bound")).to_be_visible()
    return user.page.locator(".tk-bound").inner_text().replace("\n", " ")[:80]


TASKS: dict[str, Callable[[User], str]] = {
    "why idle, to the source line": why_idle,
    "longest H2D copy": longest_h2d,
    "compare two runs, worst op": worst_op,
    "share the exact view": share_view,
    "query in SQL": query,
    "find, next, launcher, by keyboard": keyboard_only,
    "straggler of the ranks": straggler,
    "drop a file": drop,
}


def done(
    browser: Browser, address: str, runs: dict[str, str], dropped: Path, task: Callable[[User], str]
) -> dict[str, object]:
    """Do a task in a tab of its own."""
    page = browser.new_context(viewport={"width": 1_440, "height": 900}).new_page()
    page.set_default_timeout(PATIENCE_MS)
    expect.set_options(timeout=PATIENCE_MS)
    user = User(page, runs, address, dropped)
    start = time.perf_counter()
    try:
        answer = task(user)
    except (Error, AssertionError) as error:
        answer = f"failed: {str(error).splitlines()[0]}"
    finally:
        seconds = time.perf_counter() - start
        page.context.close()
    return {"actions": len(user.actions), "s": round(seconds, 2), "answer": answer, "did": user.actions}


def main() -> None:
    """Do the tasks and print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("traces", nargs=3, type=Path, metavar="TRACE")
    parser.add_argument("--serve", type=Path, help="the command `tracekit` of another version, to serve with")
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory())) / "store"
        store, runs = Store(folder), {}
        for label, trace in zip(("gpu", "base", "job"), options.traces, strict=True):
            (run,) = import_traces(store, [trace], label=label)
            runs[label] = run.path.name
        _, address = stack.enter_context(serving(folder, options.serve))
        browser = chromium(stack.enter_context(sync_playwright()))
        found = {}
        for name, task in TASKS.items():
            found[name] = one = done(browser, address, runs, options.traces[1], task)
            if not options.json:
                print(f"{name:32}{one['actions']:3} actions{one['s']:8} s  {one['answer']}", flush=True)
    if options.json:
        print(json.dumps(found, indent=1))


if __name__ == "__main__":
    main()
