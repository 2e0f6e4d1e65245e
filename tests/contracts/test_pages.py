"""Every page says what it answers, is in the menu, and shows the numbers that the command line prints."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
import tomllib
from contextlib import redirect_stdout
from io import StringIO
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from tracekit import registry
from tracekit.analysis import available, get
from tracekit.analysis.cache import ResultCache
from tracekit.cli import main
from tracekit.runs.store import Store

pytest.importorskip("dash")

from dash_ag_grid import AgGrid
from tracekit.dashboards import blocks
from tracekit.dashboards.analysis_pages.pages import generate_page, load_pages
from tracekit.dashboards.app import create_app
from tracekit.dashboards.site import Results, Section, Site, View

if TYPE_CHECKING:
    from dash.development.base_component import Component

    from tracekit.runs.run import Run

ROOT = Path(__file__).parents[2]
DASHBOARDS = ROOT / "dashboards"
PAGES = load_pages()
NUMBERS = {"ns", "bytes", "count", "share", "id", "GB/s", "TFLOP/s", "FLOP", "×"}
each_page = pytest.mark.parametrize("name", PAGES)
each_analysis = pytest.mark.parametrize("name", registry.names(registry.ANALYSES))


@pytest.fixture(scope="module")
def run(analyzed_store: Store, tmp_path_factory: pytest.TempPathFactory) -> Run:
    store = Store(tmp_path_factory.mktemp("pages") / "store")
    shutil.copytree(analyzed_store.path, store.path)
    (copied,) = store.runs()
    return copied


@pytest.fixture(scope="module")
def site(run: Run) -> Site:
    store = Store(run.path.parent)
    pages = PAGES | {one.name: generate_page(one) for one in available()}
    return Site(
        app=create_app(store), store=store, pages=pages, results=Results(analyze=ResultCache(store).analyze)
    )


@pytest.mark.parametrize("name", registry.names(registry.PAGES))
def test_every_registered_page_loads_under_its_name(name: str) -> None:
    assert registry.load(registry.PAGES, name).name == name


@each_page
def test_metadata_is_complete(name: str) -> None:
    page = PAGES[name]
    assert page.name == name
    assert re.fullmatch(r"[a-z][a-z0-9_]{0,63}", name)
    assert page.title
    assert page.question.endswith(("?", "."))
    assert all(re.fullmatch(r"[a-z][a-z0-9_]*", block) for block in page.blocks)
    assert set(page.covers) <= set(registry.names(registry.ANALYSES))


def test_the_menu_has_an_order_and_every_analysis_is_shown() -> None:
    titles = [page.title for page in PAGES.values()]
    assert sorted(set(titles)) == sorted(titles)
    assert next(iter(PAGES)) == "runs"
    sections = [
        page.section for page in sorted(PAGES.values(), key=lambda page: list(Section).index(page.section))
    ]
    assert list(dict.fromkeys(sections)) == [section for section in Section if section in sections]
    covered = {name for page in PAGES.values() for name in page.covers}
    assert set(registry.names(registry.ANALYSES)) <= covered | set(PAGES)


def test_what_is_not_python_is_installed_with_the_package() -> None:
    tool = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["setuptools"]
    installed = {
        path
        for package, patterns in tool["package-data"].items()
        if package.startswith("tracekit.dashboards")
        for pattern in patterns
        for path in DASHBOARDS.joinpath(*package.split(".")[2:]).glob(pattern)
    }
    others = {path for path in DASHBOARDS.rglob("*") if path.is_file() and path.suffix not in {".py", ".pyc"}}
    assert DASHBOARDS / "assets/shell.css" in others
    assert sorted(others - installed) == []


def test_a_class_that_takes_an_element_out_of_the_flow_is_of_one_stylesheet() -> None:
    sheets = {path.name: path.read_text() for path in DASHBOARDS.rglob("*.css")}
    rules = [
        (name, *rule) for name, text in sheets.items() for rule in re.findall(r"(?m)^\.([\w-]+) {(.*)", text)
    ]
    floating = {one for _, one, style in rules if re.search(r"position: (?:absolute|fixed)", style)}
    places = {one: {name for name, each, _ in rules if each == one} for one in floating}
    assert "tk-fold-panel" in places
    assert {one: names for one, names in places.items() if len(names) > 1} == {}


@each_page
def test_a_page_places_the_blocks_that_it_has(name: str, site: Site) -> None:
    page = PAGES[name]
    body = page.layout(site.context(View(page=name), dark=False))
    placed = [place["name"] for place in places(body) if place["page"] == name]
    assert set(placed) <= set(page.blocks)
    assert len(set(placed)) == len(placed)


@each_analysis
def test_tables_show_the_numbers_that_the_command_prints(name: str, run: Run, site: Site) -> None:
    printed = reported(run, name)["results"][name]["tables"]
    shown = {
        grid.id["name"]: grid
        for grid in grids(blocks.compute_block(site, View(page=name), "result", dark=False))
    }
    assert set(shown) == {table for table, rows in printed.items() if rows}
    for table, grid in shown.items():
        spec = next(spec for spec in get(name).tables if spec.name == table)
        numbers = [column.name for column in spec.columns if column.unit in NUMBERS]
        wanted = [{key: row.get(key) for key in numbers} for row in printed[table]]
        assert [{key: row.get(key) for key in numbers} for row in grid.rowData] == wanted


@pytest.mark.slow
def test_an_analysis_of_an_outside_package_gets_a_page_by_itself(run: Run) -> None:
    program = (
        "import json; from tracekit.dashboards.analysis_pages.pages import load_pages;"
        "page = load_pages()['longest_kernel']; print(json.dumps([page.title, page.question]))"
    )
    path = os.pathsep.join([str(ROOT / "tests" / "outside"), str(ROOT)])
    environment = {**os.environ, "PYTHONPATH": path}
    done = subprocess.run([sys.executable, "-c", program], env=environment, capture_output=True, check=True)
    assert json.loads(done.stdout) == ["Longest kernel", "Which single kernel took longest?"]


def reported(run: Run, name: str) -> dict[str, Any]:
    """What `tracekit analyze` prints of a run."""
    out = StringIO()
    with redirect_stdout(out):
        code = main.run(["analyze", run.id, name, "--store", str(run.path.parent), "--format", "json"])
    assert code == 0
    found: dict[str, Any] = json.loads(out.getvalue())
    return found


def every(body: Any) -> list[Component]:
    """All components of a tree."""
    tops = body if isinstance(body, list) else [body]
    return [one for top in tops if hasattr(top, "_traverse") for one in (top, *top._traverse())]


def grids(body: Any) -> list[AgGrid]:
    return [one for one in every(body) if isinstance(one, AgGrid)]


def places(body: Any) -> list[dict[str, str]]:
    found = [getattr(one, "id", None) for one in every(body)]
    return [one for one in found if isinstance(one, dict) and one.get("type") == blocks.BLOCK_TYPE]
