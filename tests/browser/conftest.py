"""A real browser and a real server; skipped, and said so, where there is no Chromium."""

from __future__ import annotations

import os
import shutil
from typing import TYPE_CHECKING

import pytest

pytest.importorskip("dash", reason="the dashboard is not installed: pip install '.[dashboard]'")
pytest.importorskip("playwright", reason="playwright is not installed: pip install '.[dev]'")

from playwright.sync_api import expect, sync_playwright

from tests.browser.serving import Served, served
from tests.browser.stores import filled
from tests.browser.watch import WIDE, Watch
from tracekit.store import Store

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from playwright.sync_api import Browser, BrowserContext

    Opening = Callable[..., Watch]

TIMEOUT_MS = 30_000
"""Generous: the machine may be busy with other things."""
_ARGUMENTS = [
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-dev-shm-usage",
    "--disable-gpu",
    "--disable-quic",
    "--disable-sync",
    "--no-first-run",
]
expect.set_options(timeout=TIMEOUT_MS)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    here = os.path.dirname(__file__)  # noqa: PTH120
    for item in items:
        if str(item.path).startswith(here):
            item.add_marker("browser")


@pytest.fixture(scope="package")
def browser() -> Iterator[Browser]:
    executable = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
    if executable is None:
        pytest.skip("no Chromium on the PATH: apt-get install chromium")
    arguments = [*_ARGUMENTS, *(["--no-sandbox"] if os.geteuid() == 0 else [])]
    with sync_playwright() as playwright:
        opened = playwright.chromium.launch(executable_path=executable, headless=True, args=arguments)
        yield opened
        opened.close()


@pytest.fixture(scope="session")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    """A dashboard over the runs of `stores.filled`."""
    store, runs = filled(tmp_path_factory.mktemp("browser"))
    with served(store, runs) as answering:
        yield answering


@pytest.fixture
def empty_site(tmp_path: Path) -> Iterator[Served]:
    """A dashboard over a store without runs."""
    with served(Store(tmp_path / "store")) as answering:
        yield answering


@pytest.fixture(scope="package")
def profiles(browser: Browser) -> Iterator[dict[str, BrowserContext]]:
    """A profile of the browser for each theme, so that scripts are fetched and compiled once."""
    made = {theme: browser.new_context(color_scheme=theme) for theme in ("light", "dark")}
    for context in made.values():
        context.set_default_timeout(TIMEOUT_MS)
    yield made
    for context in made.values():
        context.close()


@pytest.fixture
def tab(profiles: dict[str, BrowserContext]) -> Iterator[Opening]:
    """Opens tabs; after the test nothing may have gone wrong in any of them."""
    watches: list[Watch] = []

    def opened(at: Served, *, theme: str = "light", width: int = WIDE) -> Watch:
        watches.append(Watch.of(profiles[theme], at.address))
        watches[-1].page.set_viewport_size({"width": width, "height": 900})
        return watches[-1]

    try:
        yield opened
        for watch in watches:
            watch.quiet()
    finally:
        for watch in watches:
            watch.page.close()


@pytest.fixture
def fresh_tab(browser: Browser, site: Served) -> Iterator[Watch]:
    """A tab in a profile of its own, which remembers nothing from before."""
    with browser.new_context(color_scheme="light") as context:
        context.set_default_timeout(TIMEOUT_MS)
        watch = Watch.of(context, site.address)
        yield watch
        watch.quiet()
