"""Opening a page starts computing its first results; other requests do not."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING

import pytest

from tests.environment import HANG_SECONDS
from tests.runs import make_run

pytest.importorskip("dash")

from dash import Dash, html
from tracekit.dashboards import blocks
from tracekit.dashboards.analysis_pages.pages import load_pages
from tracekit.dashboards.site import Results, Site, View

from tracekit.analysis import Result, available

if TYPE_CHECKING:
    from tracekit.runs.run import Run
    from tracekit.runs.store import Store

HTML = {"Accept": "text/html,application/xhtml+xml,*/*;q=0.8"}


class Asked:
    """Analyses asked for, each with its run; `done` after each."""

    def __init__(self) -> None:
        self.names: list[tuple[str, str]] = []
        self.done = threading.Semaphore(0)

    def __call__(self, run: Run, name: str) -> Result:
        self.names.append((run.path.name, name))
        self.done.release()
        return Result()


@pytest.fixture
def asked() -> Asked:
    return Asked()


@pytest.fixture
def site(store: Store, asked: Asked) -> Site:
    made = Site(app=Dash(), store=store, pages=load_pages(), results=Results(analyze=asked))
    made.app.layout = html.Div()
    blocks.connect_prefetch(made)
    return made


def test_opening_a_page_begins_what_it_shows_first(site: Site, store: Store, asked: Asked) -> None:
    old, new = make_run(store), make_run(store, after_s=1)
    site.app.server.test_client().get("/overview", headers=HTML)
    first = site.pages["overview"].prefetch
    assert all(asked.done.acquire(timeout=HANG_SECONDS) for _ in first)
    assert asked.names == [(new.path.name, name) for name in first]
    blocks.prefetch(site, View.parse("/kernels", f"?run={old.path.name}"))
    assert asked.names[len(first) :] == [(old.path.name, name) for name in site.pages["kernels"].covers]


def test_what_is_no_page_begins_nothing(site: Site, store: Store, asked: Asked) -> None:
    make_run(store)
    client = site.app.server.test_client()
    client.get("/overview")
    client.post("/overview", headers=HTML)
    for path in ("/assets/a.js", "/timeline/x/draw", "/no-such-page"):
        client.get(path, headers=HTML)
    assert not [one for one in threading.enumerate() if one.name == blocks.PREFETCH_NAME]
    assert asked.names == []


def test_a_run_that_is_not_there_begins_nothing(site: Site, asked: Asked) -> None:
    blocks.prefetch(site, View.parse("/overview", ""))
    blocks.prefetch(site, View.parse("/overview", "?run=none"))
    assert asked.names == []


def test_every_page_names_analyses_that_there_are() -> None:
    known = {one.name for one in available()}
    for page in load_pages().values():
        assert set(page.prefetch) <= known
