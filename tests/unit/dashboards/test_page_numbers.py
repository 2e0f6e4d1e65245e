"""Numbers of hand-written pages equal those of `tracekit analyze --format json`."""

from __future__ import annotations

import json
from contextlib import redirect_stdout
from io import StringIO
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from tests.traces import imported
from tests.unit.dashboards.cells import in_cell
from tracekit import analysis, registry
from tracekit.analysis.cache import ResultCache
from tracekit.analysis.idle_causes import QUEUED, IdleCause
from tracekit.cli import main
from tracekit.render import human
from tracekit.runs.store import Store

pytest.importorskip("dash")

import dash_ag_grid as dag
from dash import html
from tracekit.dashboards import blocks
from tracekit.dashboards.analysis_pages.pages import load_pages
from tracekit.dashboards.app import create_app
from tracekit.dashboards.exports.downloads import list_analyses
from tracekit.dashboards.site import Results, Site, View

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tracekit.runs.run import Run

    Tables = dict[str, list[dict[str, Any]]]

SAMPLES = Path(__file__).parents[3] / "samples"
TRACES = {
    "simulated": SAMPLES / "simulated" / "training.json.gz",
    "mnist": SAMPLES / "recorded" / "mnist_cnn-train-cpu" / "trace.json.gz",
}
PAGES = load_pages()
BY_HAND = [name for name in registry.names(registry.PAGES) if list_analyses(PAGES[name])]
SHOWN = ("overview", "steps", "idle_gaps", "zero_grad", "kernels", "copies", "launch_config", "memory")
"""Pages whose numbers in tiles, sentences and short tables stand in tables of their analyses."""


@pytest.fixture(scope="module", params=TRACES)
def run(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Run:
    store = Store(tmp_path_factory.mktemp(request.param) / "store")
    return imported(store, TRACES[request.param])


@pytest.fixture(scope="module")
def site(run: Run) -> Site:
    store = Store(run.path.parent)
    return Site(
        app=create_app(store), store=store, pages=PAGES, results=Results(analyze=ResultCache(store).analyze)
    )


def printed(run: Run, names: list[str]) -> dict[str, Tables]:
    """What `tracekit analyze` prints of a run: rows by analysis and table."""
    out = StringIO()
    with redirect_stdout(out):
        code = main.run(["analyze", run.id, *names, "--store", str(run.path.parent), "--format", "json"])
    assert code == 0
    results = json.loads(out.getvalue())["results"]
    return {name: results[name]["tables"] for name in names}


def components(site: Site, run: Run, page: str, **view: Any) -> Iterator[Any]:
    """All components of all blocks of a page."""
    looked_at = View(page=page, run=run.path.name, **view)
    for name in site.pages[page].blocks:
        content = blocks.compute_block(site, looked_at, name, dark=False)
        for top in content if isinstance(content, list) else [content]:
            if hasattr(top, "_traverse"):
                yield top
                yield from (one for one in top._traverse() if not isinstance(one, str))


def words(component: Any) -> str:
    children = component.children
    parts = children if isinstance(children, list) else [children]
    return "".join(one if isinstance(one, str) else words(one) for one in parts if one is not None)


def written(names: list[str], tables: dict[str, Tables]) -> set[str]:
    """Every printed value and number of rows as people read them."""
    found = set()
    for name in names:
        for spec in analysis.get(name).tables:
            rows = tables[name].get(spec.name, [])
            found.add(human(len(rows), "count"))
            found |= {
                human(row[column.name], column.unit)
                for column in spec.columns
                for row in rows
                if column.name in row and not isinstance(row[column.name], str)
            }
    return found | by_tensor_cores(tables) | by_idle_cause(tables)


def by_idle_cause(tables: dict[str, Tables]) -> set[str]:
    """Idle time of the profiled steps by who was late, of runs of one device, and the gaps in it."""
    rows = tables.get("idle_gaps", {})
    sums = dict.fromkeys(("late", "queued", "unknown"), 0)
    for row in (*rows.get("by_cause", []), *rows.get("before_work", [])):
        counted = row["dur_ns"] if "dur_ns" in row else (row["steps_ns"] or row["idle_ns"]) - row["aside_ns"]
        is_queued, is_unknown = row["cause"] in QUEUED, row["cause"] == IdleCause.UNKNOWN
        sums["queued" if is_queued else "unknown" if is_unknown else "late"] += counted
    gaps = sum(row["counted_ns"] > 0 for row in rows.get("gaps", []))
    return {human(gaps, "count"), *(human(total, "ns") for total in sums.values())}


def by_tensor_cores(tables: dict[str, Tables]) -> set[str]:
    """The one sum that a sentence tells."""
    rows = tables.get("kernels", {}).get("families", [])
    return {human(float(sum(row["share"] for row in rows if row["tensor_cores"])), "share")}


def numbers_in(site: Site, run: Run, page: str) -> list[str]:
    """The numbers of tiles, of sentences that answer, and of short tables."""
    found = []
    for one in components(site, run, page):
        kind = getattr(one, "className", None)
        if isinstance(one, html.Dd) and kind == "tk-tile-value":
            found += parts(words(one))
        elif isinstance(one, html.P) and kind == "tk-answer":
            found += [words(each) for each in one.children if isinstance(each, html.Strong)]
        elif isinstance(one, html.Td) and kind == "tk-number":
            found.append(words(one))
    return found


def parts(tile: str) -> list[str]:
    """The values of a tile, of which a range names the unit once."""
    low, _, high = tile.partition(" to ")
    unit = high.partition(" ")[2]
    return [low] if not high else [low if " " in low or not unit else f"{low} {unit}", high]


def has_devices(run: Run) -> bool:
    return len(run.arrow("device_intervals")) > 0


@pytest.mark.slow_except("simulated-kernels", "simulated-overview", "mnist-ops")
@pytest.mark.parametrize("page", BY_HAND)
def test_the_grids_of_a_page_hold_what_is_printed(page: str, run: Run, site: Site) -> None:
    names = [*list_analyses(PAGES[page]), *(["ranks"] if page == "steps" else [])]
    expected = printed(run, names)
    declared = {spec.name: name for name in names for spec in analysis.get(name).tables}
    for grid in (one for one in components(site, run, page) if isinstance(one, dag.AgGrid)):
        owner = grid.id["page"] if grid.id.get("page") in expected else declared[grid.id["name"]]
        rows = expected[owner][grid.id["name"]]
        fields = [one["field"] for one in grid.columnDefs if one["field"] in rows[0]]
        assert fields
        shown = [{field: row.get(field) for field in fields} for row in grid.rowData]
        assert shown == [
            {field: in_cell(field, row[field]) for field in fields} for row in rows[: len(shown)]
        ]
        assert len(shown) == min(len(rows), max(len(shown), 2_000))


@pytest.mark.slow_except(
    "simulated-overview", "simulated-idle_gaps", "simulated-kernels", "simulated-memory", "mnist-steps"
)
@pytest.mark.parametrize("page", SHOWN)
def test_tiles_sentences_and_short_tables_tell_printed_numbers(page: str, run: Run, site: Site) -> None:
    names = list_analyses(PAGES[page])
    known = written(names, printed(run, names))
    shown = numbers_in(site, run, page)
    assert [text for text in shown if text not in known] == []
    assert shown or not has_devices(run)


def test_every_analysis_stands_on_a_page() -> None:
    on_pages = {name for page in PAGES.values() for name in list_analyses(page)}
    assert set(registry.names(registry.ANALYSES)) <= on_pages
