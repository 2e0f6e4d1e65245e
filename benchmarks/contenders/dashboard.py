"""Who asks the dashboard."""

from __future__ import annotations

import shutil
import sys
from dataclasses import replace
from importlib.util import find_spec
from typing import TYPE_CHECKING

from benchmarks.contenders.commands import PROGRAMS, program
from benchmarks.runner import Contender

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from benchmarks.inputs.runs import Imported

_ZOOMS = 60


def contenders(run: Imported, names: Sequence[str] = ()) -> Sequence[Contender]:
    """A program that asks for every page, one that builds and draws the timeline, and a browser.

    Args:
        run: What they look at.
        names: Only those with one of these in their name; all where empty.
    """
    missing = "" if find_spec("dash") else "not installed: the extra `dashboard`"
    found = [
        _pages(run, missing),
        replace(
            program("timeline", "builds, reads and draws", "draw_timeline.py", run.store, against=""),
            missing=missing,
        ),
        _browser(run, missing),
    ]
    return [one for one in found if not names or any(name in one.name for name in names)]


def _pages(run: Imported, missing: str) -> Contender:
    def copied(scratch: Path) -> None:
        shutil.copytree(run.store, scratch / "store")

    script = str(PROGRAMS / "ask_dashboard.py")
    return Contender(
        name="every page",
        does="starts the server and asks for every part of every page twice",
        command=lambda scratch: [sys.executable, "-P", script, str(scratch / "store"), run.run],
        prepare=copied,
        missing=missing,
    )


def _browser(run: Imported, missing: str) -> Contender:
    if not missing and not find_spec("playwright"):
        missing = "not installed: playwright"
    if not missing and not any(map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))):
        missing = "not installed: Chromium"
    size = ["--intervals", str(run.events), "--rounds", str(_ZOOMS)]
    return Contender(
        name="in Chromium",
        does="serves a synthetic run of as many intervals; a browser zooms in its timeline",
        command=lambda _: [sys.executable, "-m", "benchmarks.dashboard", "--json", *size],
        missing=missing,
    )
