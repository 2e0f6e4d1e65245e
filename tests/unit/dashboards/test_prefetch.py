"""Opening a page starts computing its first results; other requests do not."""

from __future__ import annotations

import json
import queue
import re
import threading
import zlib
from contextlib import contextmanager
from html import unescape
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest

from tests import builders
from tests.environment import HANG_SECONDS
from tests.runs import make_run

pytest.importorskip("dash")

from dash import Dash, html
from tracekit.dashboards import blocks
from tracekit.dashboards.analysis_pages.pages import load_pages
from tracekit.dashboards.app import Ahead, create_app
from tracekit.dashboards.site import Context, Results, Site, View

from benchmarks.programs.ask_dashboard import BLOCK, question
from tracekit.analysis import Result, available
from tracekit.analysis.cache import ResultCache
from tracekit.analysis.findings import Advice, advise_cached
from tracekit.analysis.savings import Budget, budget
from tracekit.runs.store import Store
from tracekit.schema import C

if TYPE_CHECKING:
    from collections.abc import Iterator

    from flask.testing import FlaskClient

    from tracekit.runs.run import Run

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
def site(store: Store, asked: Asked) -> Iterator[Site]:
    made = Site(app=Dash(), store=store, pages=load_pages(), results=Results(analyze=asked))
    made.app.layout = html.Div()
    blocks.connect_prefetch(made)
    yield made
    join_prefetching()


def join_prefetching() -> None:
    for thread in threading.enumerate():
        if thread.name == blocks.PREFETCH_NAME:
            thread.join(HANG_SECONDS)


def test_opening_a_page_begins_what_it_shows_first(site: Site, store: Store, asked: Asked) -> None:
    old, new = make_run(store), make_run(store, after_s=1)
    site.app.server.test_client().get("/overview", headers=HTML)
    first = site.pages["overview"].prefetch
    assert all(asked.done.acquire(timeout=HANG_SECONDS) for _ in first)
    assert asked.names[: len(first)] == [(new.path.name, name) for name in first]
    blocks.prefetch(site, View.parse("/kernels", f"?run={old.path.name}"))
    of_old = [name for run, name in asked.names if run == old.path.name]
    assert of_old == [*site.pages["kernels"].covers]


def test_opening_a_page_of_a_run_begins_its_other_results_too(store: Store, asked: Asked) -> None:
    run, opened = make_run(store), queue.SimpleQueue[str]()
    made = Site(app=Dash(), store=store, pages=load_pages(), results=Results(analyze=asked))
    made.app.layout = html.Div()
    blocks.connect_prefetch(made, also=lambda chosen: opened.put(chosen.path.name))
    for path in ("/runs", "/kernels"):  # the first is of no run
        made.app.server.test_client().get(path, headers=HTML)
        join_prefetching()
    assert opened.get(timeout=HANG_SECONDS) == run.path.name
    assert opened.empty()


def test_results_of_the_newest_run_are_begun_by_a_server_before_a_page_is_opened(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    old, new = make_run(store), make_run(store, after_s=1)
    begun: queue.SimpleQueue[tuple[str, bool, bool, bool]] = queue.SimpleQueue()

    @contextmanager
    def compute_ahead(
        _: ResultCache,
        run: Run,
        names: list[str],
        *,
        niceness: int,
        forks: bool = True,
        finish: Any = None,
    ) -> Iterator[Any]:
        assert niceness > 0
        assert {*names} == {one.name for one in available()}
        begun.put((run.path.name, forks, finish is advise_cached, names[-1] == "steps"))
        yield SimpleNamespace(join=lambda: None)

    monkeypatch.setattr(ResultCache, "compute_ahead", compute_ahead)
    ahead = Ahead(ResultCache(store))
    with ahead.with_newest():
        for run in (new, old, new, old):
            ahead.begin(run)
    assert begun.get(timeout=HANG_SECONDS) == (new.path.name, True, True, True)
    assert begun.get(timeout=HANG_SECONDS) == (new.path.name, True, False, False)  # from the other end
    assert begun.get(timeout=HANG_SECONDS)[:3] == (old.path.name, False, True)
    assert begun.empty()
    with Ahead(ResultCache(Store(store.path / "none"))).with_newest():
        assert begun.empty()


def test_a_budget_is_that_of_the_advice_if_it_is_known(store: Store) -> None:
    run = make_run(store)
    known = Advice(findings=(), budget=Budget(7, 8, marked=True), rules=0)
    assert Results(advise=lambda *_: known).budget(run) == Budget(7, 8, marked=True)
    assert Results().budget(run) == budget(run)


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


HOSTILE = "<script>x</script>"
RUN = "20261121T000000Z-made-by-hand-000000"


@pytest.fixture
def client(store: Store) -> Iterator[FlaskClient]:
    names = {HOSTILE: (100, 200), "gemm": (300, 350)}
    kernels = [builders.kernel(*ends, **{C.NAME: name, C.STREAM: 7}) for name, ends in names.items()]
    builders.make_run(store.path, device_intervals=kernels)
    yield create_app(store).server.test_client()
    join_prefetching()


@pytest.fixture
def computed(monkeypatch: pytest.MonkeyPatch) -> Iterator[threading.Event]:
    """An event without which no block is ready."""
    event = threading.Event()
    add = blocks._First.add

    def add_late(first: blocks._First, name: str, content: Any) -> bool:
        assert event.wait(HANG_SECONDS)
        return add(first, name, content)

    monkeypatch.setattr(blocks._First, "add", add_late)
    yield event
    event.set()


def first_of(client: FlaskClient, path: str) -> tuple[list[str], str]:
    """Blocks of the layout of the first response to an address, and its tree."""
    return read_first(client.get(path, headers=HTML).text)


def read_first(text: str) -> tuple[list[str], str]:
    """Blocks of the layout of a first response, and its tree."""
    found = re.search(r'<div id="first">(<template .*</template>)</div>', text, re.DOTALL)
    said = re.search(r'<script type="application/json" id="first-layout" [^>]*data-blocks="([^"]*)">', text)
    assert found
    assert said
    return json.loads(unescape(said[1])), found[1]


def test_a_first_response_has_the_blocks_of_its_page_with_names_as_text(
    client: FlaskClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(blocks, "FIRST_S", HANG_SECONDS)
    names, tree = first_of(client, "/kernels?by=names")
    assert names == ["answer", "figures", "tables"]
    assert '<h1 class="tk-title">Kernels</h1>' in tree
    assert "takes the most device time" in tree
    assert tree.count('class="tk-plot-bar') == 2
    rows = re.search(r'<div class="tk-first-rows".*?</div>', tree)
    assert rows
    assert ">100 ns<" in rows[0]
    assert ">66.7%<" in rows[0]
    assert "&lt;script&gt;x&lt;/script&gt;" in tree
    assert 'href="/steps?run=' in tree
    assert not re.search(r"<script| id=|tk-later", tree)


def test_a_first_response_waits_for_nothing_that_takes_long(
    client: FlaskClient, monkeypatch: pytest.MonkeyPatch, computed: threading.Event
) -> None:
    monkeypatch.setattr(blocks, "FIRST_S", 0)
    monkeypatch.setattr(blocks, "LAYOUT_S", 0)
    names, tree = first_of(client, "/kernels")
    assert names == []
    assert '<h1 class="tk-title">Kernels</h1>' in tree
    assert '<div class="tk-block" style="--tk-height:460px" aria-busy="true"></div>' in tree
    computed.set()
    assert 'id="first"' not in client.get("/none", headers=HTML).text


def test_the_layout_waits_longer_than_what_is_shown_before(
    client: FlaskClient, monkeypatch: pytest.MonkeyPatch, computed: threading.Event
) -> None:
    monkeypatch.setattr(blocks, "FIRST_S", 0)
    monkeypatch.setattr(blocks, "LAYOUT_S", HANG_SECONDS)
    text = ""
    for part in client.get("/kernels", headers=HTML).iter_encoded():
        text += part.decode()
        if '<div id="first">' in text:
            computed.set()
    names, tree = read_first(text)
    assert names == ["answer", "figures", "tables"]
    assert '<div class="tk-block" style="--tk-height:460px" aria-busy="true"></div>' in tree


def layout_of(client: FlaskClient, path: str) -> tuple[dict[str, str], dict[str, Any]]:
    """What the first response says of its layout, and the properties of each component with an id."""
    text = client.get(path, headers=HTML).text
    found = re.search(r'<script type="application/json" id="first-layout" ([^>]*)>(.*?)</script>', text)
    assert found
    props: dict[str, Any] = {}

    def walk(part: Any) -> None:
        for one in part if isinstance(part, list) else [part]:
            if isinstance(one, dict):
                props[json.dumps(one["props"].get("id"), sort_keys=True)] = one["props"]
                walk(one["props"].get("children"))

    walk(json.loads(found[2]))
    return {word: unescape(text) for word, text in re.findall(r'data-(\w+)="([^"]*)"', found[1])}, props


def block_id(name: str) -> str:
    """Id of a block of the page of kernels, as `layout_of` names it."""
    return json.dumps({"name": name, "page": "kernels", "type": blocks.BLOCK_TYPE}, sort_keys=True)


def test_a_first_response_has_the_layout_that_callbacks_would_make(
    client: FlaskClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(blocks, "FIRST_S", HANG_SECONDS)
    said, props = layout_of(client, "/kernels?by=names")
    search = f"?run={RUN}&by=names"
    assert said == {"view": search, "theme": "light", "blocks": '["answer", "figures", "tables"]'}
    assert (props['"url"']["pathname"], props['"url"']["search"]) == ("/kernels", "?by=names")
    assert props['"view"']["data"] == {"path": "/kernels", "search": search}
    assert (props['"run"']["value"], props['"run-box"']["hidden"]) == (RUN, False)
    assert props['"offered"']["data"][1] == [RUN, None, "", "", None]
    assert "Kernels" in json.dumps(props['"menu"'])
    figures = props[block_id("figures")]
    assert figures["aria-busy"] == "false"
    assert HOSTILE in json.dumps(props[block_id("tables")])


def test_the_layout_of_a_first_response_is_in_the_theme_that_the_browser_shows(
    client: FlaskClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(blocks, "FIRST_S", HANG_SECONDS)
    ink: dict[str, str] = {}
    for theme in ("light", "dark"):
        client.set_cookie(blocks.THEME_COOKIE, theme)
        said, props = layout_of(client, "/kernels")
        assert said["theme"] == theme
        figures = json.dumps(props[block_id("figures")])
        ink[theme] = re.findall(r'"font": {[^}]*"color": "([^"]*)"', figures)[0]
    assert ink == {"light": "#1f2328", "dark": "#e4e6e9"}


def test_files_are_named_before_the_page_is_computed_and_without_it(
    client: FlaskClient, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    computed: list[str] = []

    def fail(site: Site, context: Context) -> Any:
        computed.append(context.view.page)
        raise ValueError("no layout")

    monkeypatch.setattr(blocks, "page_layout", fail)
    pieces = iter(client.get("/kernels", headers=HTML | {"Accept-Encoding": "gzip"}).response)
    unpack = zlib.decompressobj(16 + zlib.MAX_WBITS)
    begin = unpack.decompress(next(pieces)).decode()
    assert re.search(r'<template id="scripts"><script src="/bundle/\w+.js">', begin)
    assert computed == []
    rest = b"".join(map(unpack.decompress, pieces)).decode()
    assert computed == ["kernels"]
    assert (unpack.eof, rest.count("</html>"), 'id="first' in rest) == (True, 1, False)
    assert "the first response to /kernels has nothing" in caplog.text


def test_what_a_first_response_waits_for_in_vain_is_computed_once(
    client: FlaskClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    computed: list[tuple[str, bool]] = []
    compute, begun, is_sent = blocks.compute_block, threading.Event(), threading.Event()

    def count(site: Site, view: View, name: str, *, dark: bool) -> Any:
        computed.append((name, dark))
        begun.set()
        assert is_sent.wait(HANG_SECONDS)
        return compute(site, view, name, dark=dark)

    def wait(first: Any, _: float, *, is_last: bool = False) -> dict[str, Any]:
        assert begun.wait(HANG_SECONDS)
        first.is_sent |= is_last
        return {}

    monkeypatch.setattr(blocks._First, "wait", wait)
    monkeypatch.setattr(blocks._First, "is_late", property(lambda first: first.is_sent))
    monkeypatch.setattr(blocks, "compute_block", count)
    _, props = layout_of(client, "/kernels")
    assert props[block_id("answer")]["aria-busy"] == "true"
    is_sent.set()
    listed = client.get("/_dash-dependencies").json or []
    output = next(one["output"] for one in listed if BLOCK in one["output"])
    themes = ("dark", "light", "light")
    for theme in themes:
        body: dict[str, Any] = question(output, "kernels", "answer", RUN)
        body["inputs"][1]["value"] = theme
        assert "takes the most" in client.post("/_dash-update-component", json=body).text
    assert computed == [("answer", False), ("answer", True), ("answer", False)]
