"""Start Chromium as the tests do, and print measures."""

from __future__ import annotations

import shutil
from typing import TYPE_CHECKING

from tests.browser.watch import ARGUMENTS

if TYPE_CHECKING:
    from collections.abc import Iterable

    from playwright.sync_api import Browser, Playwright

    from benchmarks.dashboard import Measure

BROWSERS = ("chromium", "chromium-browser", "google-chrome")


def executable() -> str | None:
    """Path of the installed Chromium; None lets Playwright use its own."""
    return next(filter(None, map(shutil.which, BROWSERS)), None)


def chromium(playwright: Playwright) -> Browser:
    """A headless Chromium without a GPU."""
    return playwright.chromium.launch(executable_path=executable(), args=[*ARGUMENTS, "--no-sandbox"])


def report(measures: Iterable[Measure]) -> int:
    """Print a table; returns 1 where a limit is passed."""
    found = list(measures)
    for one in found:
        limit = "" if one.limit is None else f"  limit {one.limit:g}{'  over' if one.over else ''}"
        print(f"{one.what:36}{one.value:12,.2f} {one.unit}{limit}", flush=True)
    return int(any(one.over for one in found))
