"""Values of generated pages equal those of `tracekit analyze --format json`."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import dash_ag_grid as dag
import pytest
from tracekit.dashboards.analysis_pages.pages import generate_page
from tracekit.dashboards.site import Context, Results, View

from tests.traces import imported
from tests.unit.dashboards.cells import in_cell
from tracekit import analysis
from tracekit.errors import clean
from tracekit.render.analyze import Section, render
from tracekit.runs.store import Store

if TYPE_CHECKING:
    from collections.abc import Iterator

SAMPLES = Path(__file__).parents[3] / "samples"
TRACES = {
    "simulated": SAMPLES / "simulated" / "training.json.gz",
    "mnist": SAMPLES / "recorded" / "mnist_cnn-train-cpu" / "trace.json.gz",
    "resnet50": SAMPLES / "recorded" / "resnet50-train-cpu" / "trace.json.gz",
}


@pytest.fixture(scope="module", params=TRACES)
def context(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Context:
    store = Store(tmp_path_factory.mktemp(request.param) / "store")
    run = imported(store, TRACES[request.param])
    view = View(page="any", run=run.path.name)
    return Context(view=view, dark=False, store=store, results=Results(), chosen=run)


def grids(shown: Any) -> Iterator[Any]:
    if isinstance(shown, list):
        for one in shown:
            yield from grids(one)
    elif isinstance(shown, dag.AgGrid):
        yield shown
    elif hasattr(shown, "children"):
        yield from grids(shown.children)


def printed(context: Context, name: str) -> dict[str, list[dict[str, Any]]]:
    result = analysis.analyze(context.run, name)
    text = render(context.run.id, {name: Section.of(analysis.get(name), result)}, "json")
    tables: dict[str, list[dict[str, Any]]] = json.loads(text)["results"][name]["tables"]
    return tables


@pytest.mark.slow_except("simulated-kernels", "simulated-modules", "mnist-ops", "mnist-steps")
@pytest.mark.parametrize("name", [one.name for one in analysis.available()])
def test_the_tables_of_a_page_hold_what_is_printed(context: Context, name: str) -> None:
    shown = list(grids(generate_page(analysis.get(name)).blocks["result"](context)))
    expected = {table: rows for table, rows in printed(context, name).items() if rows}
    assert [grid.id["name"] for grid in shown] == list(expected)
    for grid in shown:
        rows = expected[grid.id["name"]]
        fields = list(dict.fromkeys(one["field"] for one in grid.columnDefs))
        values = [{field: row[field] for field in fields if field in row} for row in grid.rowData]
        assert values == [
            {field: in_cell(field, row[field]) for field in fields if field in row} for row in rows
        ]
        left_out = set(rows[0]) - set(fields) - {"node", "parent", "depth"}  # shown by the tree itself
        assert all(row[field] in {None, ""} for row in rows for field in left_out)
        for field in fields:  # how a column is written is decided by whether it holds floats
            kinds = {type(row[field]) for row in rows} - {type(None), bool}
            assert len(kinds) <= 1, field


def text(shown: Any) -> str:
    return json.dumps(shown, default=lambda one: one.to_plotly_json())


def test_an_analysis_that_compares_asks_for_a_baseline_and_then_shows_what_it_says(context: Context) -> None:
    page = generate_page(analysis.get("device_compare"))
    asks = "choose a baseline"
    assert asks in text(page.blocks["result"](context)).lower()
    both = replace(context, base=context.run)
    expected = analysis.compare(context.run, context.run, "device_compare")
    shown = page.blocks["result"](both)
    assert asks not in text(shown).lower()
    assert all(clean(note.split("`")[0])[1:40] in text(shown) for note in expected.notes)
    held = [name for name, table in expected.tables.items() if len(table)]
    assert [grid.id["name"] for grid in grids(shown)][: len(held)] == held
