"""Browser and server fixtures; tests are skipped without Chromium."""

from __future__ import annotations

import os
import shutil
import socket
from typing import TYPE_CHECKING, Any

import pytest

pytest.importorskip("dash", reason="the dashboard is not installed: pip install '.[dashboard]'")
pytest.importorskip("playwright", reason="playwright is not installed: pip install '.[dev]'")

from playwright.sync_api import expect, sync_playwright

from tests.browser.serving import Served, served
from tests.browser.stores import filled
from tests.browser.watch import ARGUMENTS, WIDE, Watch
from tracekit.runs.store import Store

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from playwright.sync_api import Browser, BrowserContext, BrowserType

    Opening = Callable[..., Watch]

TIMEOUT_MS = 30_000
"""Generous: the machine may be busy with other things."""
expect.set_options(timeout=TIMEOUT_MS)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    here = os.path.dirname(__file__)  # noqa: PTH120
    for item in items:
        if str(item.path).startswith(here):
            item.add_marker("browser")


@pytest.fixture(scope="package")
def chromium() -> Iterator[BrowserType]:
    with sync_playwright() as playwright:
        yield playwright.chromium


@pytest.fixture(scope="package")
def launch() -> dict[str, Any]:
    """How Chromium is started."""
    executable = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
    if executable is None:
        pytest.skip("no Chromium on the PATH: apt-get install chromium")
    arguments = [*ARGUMENTS, *(["--no-sandbox"] if os.geteuid() == 0 else [])]
    return {"executable_path": executable, "headless": True, "args": arguments}


@pytest.fixture(scope="package")
def browser(chromium: BrowserType, launch: dict[str, Any]) -> Iterator[Browser]:
    """A browser whose contexts know nothing of each other; each compiles all scripts at every load."""
    opened = chromium.launch(**launch)
    yield opened
    opened.close()


@pytest.fixture(scope="package")
def profile(
    chromium: BrowserType, launch: dict[str, Any], tmp_path_factory: pytest.TempPathFactory
) -> Iterator[BrowserContext]:
    """A profile on the disk: only there does Chromium keep compiled scripts, which is half of a load."""
    folder = tmp_path_factory.mktemp("profile")
    context = chromium.launch_persistent_context(folder, **launch, reduced_motion="reduce")
    context.set_default_timeout(TIMEOUT_MS)
    yield context
    context.close()


@pytest.fixture(scope="session")
def port() -> Iterator[socket.socket]:
    """A port for one server after another: compiled scripts are kept by address."""
    with socket.create_server(("127.0.0.1", 0), backlog=128) as listening:
        yield listening


@pytest.fixture(scope="session")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    """A dashboard over the runs of `stores.filled`."""
    store, runs = filled(tmp_path_factory.mktemp("browser"))
    with served(store, runs) as answering:
        yield answering


@pytest.fixture
def empty_site(tmp_path: Path, port: socket.socket) -> Iterator[Served]:
    """A dashboard over a store without runs."""
    with served(Store(tmp_path / "store"), port=port) as answering:
        yield answering


@pytest.fixture(scope="package")
def opening(profile: BrowserContext) -> Opening:
    """Opens tabs that remember nothing of those before."""

    def opened(at: Served, *, theme: str = "light", width: int = WIDE) -> Watch:
        watch = Watch.of(profile, at.address)
        watch.page.emulate_media(color_scheme=theme)
        watch.page.set_viewport_size({"width": width, "height": 900})
        return watch

    return opened


@pytest.fixture
def tab(opening: Opening) -> Iterator[Opening]:
    """Opens tabs; after the test nothing may have gone wrong in any of them."""
    watches: list[Watch] = []

    def opened(at: Served, **how: Any) -> Watch:
        watches.append(opening(at, **how))
        return watches[-1]

    try:
        yield opened
        for watch in watches:
            watch.quiet()
    finally:
        for watch in watches:
            watch.page.close()


@pytest.fixture(scope="module")
def kept() -> Iterator[dict[str, Watch]]:
    """The tabs of `warm_tab`, by the address of their server."""
    watches: dict[str, Watch] = {}
    yield watches
    for watch in watches.values():
        watch.page.close()


@pytest.fixture
def warm_tab(kept: dict[str, Watch], opening: Opening) -> Iterator[Opening]:
    """Gives a tab that the tests of a module use in turns: to load a document costs more than to draw it.

    It shows Help, so that the page that a test goes to is made anew.
    """
    used: list[Watch] = []

    def opened(at: Served) -> Watch:
        if at.address in kept:
            kept[at.address].go(at.url("help"), "Help")
            kept[at.address].forget()
        else:
            kept[at.address] = opening(at)
            kept[at.address].open(at.url("help"))
        used.append(kept[at.address])
        return used[-1]

    yield opened
    for watch in used:
        watch.quiet()
