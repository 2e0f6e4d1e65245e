"""Timeline page: data for its scripts, and their delivery under the content security policy."""

from __future__ import annotations

import gzip
import re
from html import unescape
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
import pytest

pytest.importorskip("dash")

from tracekit.dashboards import app
from tracekit.dashboards.pages import timeline
from tracekit.dashboards.site import Context, Results, View
from tracekit.dashboards.timeline.read_columns import CATEGORIES

from tests.environment import HANG_SECONDS
from tests.runs import make_run
from tracekit.runs.store import Store

if TYPE_CHECKING:
    from tracekit.runs.run import Run

ASSETS = Path(app.__file__).parent / "assets" / "timeline"
MARKUP = r"innerHTML|outerHTML|insertAdjacentHTML|document\.write|eval\(|new Function"


def context(store: Store, search: str, run: Run | None) -> Context:
    view = View.parse("/timeline", search)
    return Context(view=view, dark=False, store=store, results=Results(), chosen=run)


def test_scripts_are_told_of_the_run_its_filters_and_the_place(tmp_path: Path) -> None:
    store = Store(tmp_path)
    run = make_run(store)
    search = f"?run={run.path.name}&rank=1&device=0&from=5&to=90&row=device_intervals:7&hide=3"
    assert timeline.source(context(store, search, run)) == {
        "run": run.path.name,
        "rank": 1,
        "device": 0,
        "from": 5,
        "to": 90,
        "row": "device_intervals:7",
    }


def test_without_a_run_scripts_are_told_nothing(tmp_path: Path) -> None:
    assert timeline.source(context(Store(tmp_path), "?run=gone", None)) is None


UNPACK = {"gzip": gzip.decompress, "br": lambda data: pa.input_stream(pa.py_buffer(data), "brotli").read()}


def test_every_script_and_style_is_served_and_named_in_the_page(tmp_path: Path) -> None:
    client = app.create_app(Store(tmp_path)).server.test_client()
    index = client.get("/timeline", base_url="http://127.0.0.1").text
    addresses = set(re.findall(r"/bundle/[0-9a-f]{16}\.(?:js|css)", index))
    assert len(addresses) == 2
    served = ""
    for address in addresses:
        plain = client.get(address, base_url="http://127.0.0.1")
        assert "immutable" in plain.headers["Cache-Control"]
        served += plain.text
        for accepted, unpack in UNPACK.items():
            packed = client.get(
                address, base_url="http://127.0.0.1", headers={"Accept-Encoding": f"gzip, {accepted}"}
            )
            assert packed.headers["Content-Encoding"] == accepted
            assert unpack(packed.data).decode() == plain.text
    for file in (file for file in ASSETS.parent.rglob("*") if file.suffix in {".js", ".css"}):
        assert file.read_text() in (index if file.name == "early.js" else served), file.name
    assert "assets/" not in index.replace("/assets/favicon.svg", "")
    assert client.get("/bundle/none.js", base_url="http://127.0.0.1").status_code == 404


def test_files_are_compressed_before_a_browser_asks(tmp_path: Path) -> None:
    created = app.create_app(Store(tmp_path))
    created.prepare().join(HANG_SECONDS)
    ready = dict(created.bundles.compressed)
    client = created.server.test_client()
    index = client.get("/timeline", base_url="http://127.0.0.1").text
    addresses = [unescape(one) for one in re.findall(r'<script src="([^"]+)"', index)]
    assert len(addresses) >= 4
    for address in addresses:
        packed = client.get(address, base_url="http://127.0.0.1", headers={"Accept-Encoding": "br"})
        assert packed.data in ready.values()
    assert created.bundles.compressed == ready


@pytest.mark.parametrize("scheme", [":root {", ':root[data-mantine-color-scheme="dark"] {'])
def test_every_category_has_a_colour_in_both_themes(scheme: str) -> None:
    style = (ASSETS.parent / "palette.css").read_text()
    block = style[style.index(scheme) :].split("}", 1)[0]
    for name in CATEGORIES:
        variable = re.sub(r"[^a-z0-9]+", "-", name.lower()).rstrip("-")
        assert re.search(rf"--tkl-{variable}: #[0-9a-f]{{6}};", block), name


def test_every_cause_of_idle_time_has_a_pattern_of_its_own() -> None:
    script = (ASSETS / "colors.js").read_text()
    patterns = dict(re.findall(r'^    "(idle: [^"]+)": (\[.*\]),$', script, re.MULTILINE))
    assert set(patterns) == {name for name in CATEGORIES if name.startswith("idle: ")}
    assert len(set(patterns.values())) == len(patterns)


def test_scripts_set_text_and_never_markup() -> None:
    for file in ASSETS.glob("*.js"):
        text = file.read_text()
        assert not re.search(MARKUP, text)
        assert '"use strict";' in text
        assert len(text.splitlines()) <= 250, file.name
