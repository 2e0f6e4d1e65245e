from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from tests.large_store import fill
from tests.runs import make_run
from tests.unit.dashboards.run_rows import make_rows
from tracekit.errors import UnusableInputError
from tracekit.runs import index, meta, notes
from tracekit.runs.meta import Git, Timings
from tracekit.runs.store import Store

pytest.importorskip("dash")

from tracekit.dashboards import shell
from tracekit.dashboards.analysis_pages.pages import load_pages
from tracekit.dashboards.app import create_app
from tracekit.dashboards.blocks import compute_block
from tracekit.dashboards.components.links import color_of_run, distinct_colors
from tracekit.dashboards.figures.axis import COLORWAY
from tracekit.dashboards.pages.runs import describe_count
from tracekit.dashboards.pages.runs.rows import (
    FIELDS,
    StepTimes,
    columns,
    filter_rows,
    group_sweeps,
    sort_rows,
)
from tracekit.dashboards.security import UPDATE_PATH
from tracekit.dashboards.site import Site, View
from tracekit.dashboards.tables.table import TABLE_PX

if TYPE_CHECKING:
    from dash import Dash
    from werkzeug.test import TestResponse


def called(app: Dash, output: str, values: dict[str, Any]) -> TestResponse:
    """The response to the callback with this output, as the browser calls it."""
    name = next(name for name in app.callback_map if output in name)
    callback = app.callback_map[name]
    several = isinstance(callback["output"], list | tuple)
    declared = callback["output"] if several else [callback["output"]]
    outputs = [{"id": one.component_id, "property": one.component_property} for one in declared]
    given = {
        kind: [one | {"value": values.get(f"{one['id']}.{one['property']}")} for one in callback[kind]]
        for kind in ("inputs", "state")
    }
    body = {
        "output": name,
        "outputs": outputs if several else outputs[0],
        "changedPropIds": list(values)[:1],
        **given,
    }
    return app.server.test_client().post(UPDATE_PATH, json=body)


def test_starting_and_pages_over_all_runs_read_no_run_json_but_that_of_the_run(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(index, "MAX_UNWRITTEN", 2)
    monkeypatch.setattr(index, "MIN_AGE_NS", 0)
    of_commit = Git("a" * 40, "", "main", dirty=False, diff_sha256=None, commit_time="2026-11-21T00:00:00Z")
    run = make_run(
        store, fingerprint={"dtype": None}, git=of_commit, timings=Timings([2, 1, 3], [], "perf_counter")
    )
    fill(store, [run], 8)
    names = [one.path.name for one in store.runs()]  # writes the index
    read: list[str] = []
    original = meta.read
    monkeypatch.setattr(meta, "read", lambda path: (read.append(path.name), original(path))[1])
    app = create_app(fresh := Store(store.path))
    site = Site(app=app, store=fresh, pages=load_pages())
    assert read == []
    blocks = [(page, block) for page in ("compare", "history", "sweeps") for block in site.pages[page].blocks]
    shown = [
        str(compute_block(site, View(page=page, run=names[-1]), block, dark=False)) for page, block in blocks
    ]
    assert not [text for text in shown if "failed" in text]
    assert set(read) <= {names[-1]}


def test_the_list_is_refreshed_from_what_the_browser_knows(store: Store) -> None:
    make_run(store)
    app, known = create_app(store), {}
    for second in (1, 2):
        answer = called(app, "runs-unreadable", {"runs-tick.n_intervals": second, **known})
        assert answer.json["response"]["runs-known"]["data"] != known.get("runs-known.data")
        known = {"runs-known.data": answer.json["response"]["runs-known"]["data"]}
        make_run(store, after_s=second)


@pytest.mark.parametrize(
    ("condition", "status"),
    [
        ({"type": "inRange", "filter": 1, "filterTo": "a"}, 200),
        ({"operator": "OR", "conditions": [{"type": "blank"}]}, 200),
        ({"type": ["blank"]}, 400),
        ({"operator": "OR", "conditions": [1]}, 400),
    ],
)
def test_conditions_that_the_grid_does_not_send_are_no_server_error(
    store: Store, condition: dict[str, Any], status: int
) -> None:
    make_run(store, label="a")
    request = {"startRow": 0, "endRow": 50, "filterModel": {"label": condition}}
    answer = called(create_app(store), "runs-grid.getRowsResponse", {"runs-grid.getRowsRequest": request})
    assert answer.status_code == status


def test_columns_that_do_not_fit_are_hidden_and_the_usual_ones_are_not() -> None:
    every = columns([dict.fromkeys(FIELDS, "x")])
    shown = [one for one in every if not one.get("hide")]
    assert {one["field"] for one in every} == FIELDS
    assert sum(one["minWidth"] for one in shown) <= TABLE_PX
    assert {"run", "label", "workload", "gpu", "ranks", "steps", "step", "source_bytes"} <= {
        one["field"] for one in shown
    }
    assert not any(one.get("hide") for one in columns([]))


def test_rows_pass_words_and_conditions_of_columns_and_are_sorted(store: Store) -> None:
    listed = make_rows(fill(store, [make_run(store)], 8), StepTimes())
    assert [one["workload"] for one in filter_rows(listed, "GPT trial", {})] == []
    trial = {"label": {"filterType": "text", "type": "contains", "filter": "TRIAL 0"}}
    assert [one["workload"] for one in filter_rows(listed, "resnet50", trial)] == ["resnet50"]
    blank = {"label": {"type": "blank"}, "size": {"filterType": "number", "type": "greaterThan", "filter": 1}}
    assert len(filter_rows(listed, "", blank)) == 7
    by_label = sort_rows(listed, [{"colId": "label", "sort": "desc"}])
    assert [one["label"] for one in by_label][:2] == ["trial 0", None]
    assert sort_rows(listed, [{"colId": "no such", "sort": "asc"}]) == listed


def test_runs_of_a_sweep_are_one_row(store: Store) -> None:
    runs = [
        make_run(store, after_s=second, label=label) for second, label in enumerate(["s1/a", "s1/b", "x/y"])
    ]
    listed = group_sweeps(make_rows(runs, StepTimes()), {"s1": "sweep"})
    assert [(one["run"], one["label"]) for one in listed] == [
        (runs[2].path.name, "x/y"),
        ("s1", "sweep of 2 runs"),
    ]


def test_a_named_run_of_a_sweep_stays_in_its_row_and_is_found_by_its_label(store: Store) -> None:
    run = make_run(store, label="s1/a")
    notes.write(run, tags=[], note="", name="baseline")
    listed = make_rows([run], StepTimes())
    assert [one["label"] for one in listed] == ["baseline"]
    assert [one["run"] for one in group_sweeps(listed, {"s1": "sweep"})] == ["s1"]
    assert filter_rows(listed, "s1/a", {}) == filter_rows(listed, "baseline", {}) == listed


def test_recorded_ranks_are_counted_also_without_marked_steps(store: Store) -> None:
    zeros = {"row_id": 0, "pid": 1, "tid": 1, "depth": 0, "start_ns": 0, "dur_ns": 1}
    run = make_run(
        store,
        tables={"host_intervals": [zeros | {"kind": "op", "name": "op", "rank": 1}]},
        fingerprint={"world_size": 2},
    )
    times = StepTimes()
    assert make_rows([run], times)[0]["ranks"] == "… of 2"
    assert times.work([run])
    assert make_rows([run], times)[0]["ranks"] == "1 of 2"


def test_a_row_of_a_sweep_can_be_neither_deleted_nor_noted(store: Store) -> None:
    run = make_run(store, label="s1/a")
    (group,) = group_sweeps(make_rows([run], StepTimes()), {"s1": "sweep"})
    app, selected = create_app(store), {"runs-grid.selectedRows": [group]}
    deleting = called(app, "runs-delete.disabled", selected).json["response"]
    assert deleting["runs-delete"] == {"disabled": True}
    noting = called(app, "runs-notes.disabled", selected).json["response"]
    assert noting["runs-notes"] == {"disabled": True}


def test_all_step_times_are_computed_to_filter_by_them(store: Store) -> None:
    make_run(store)
    app = create_app(store)
    long = {"filterType": "number", "type": "greaterThan", "filter": 0}
    request = {"startRow": 0, "endRow": 50, "filterModel": {"step": long}}
    known = {"stamp": "", "fields": []}
    called(app, "runs-unreadable", {"runs-known.data": known, "runs-grid.getRowsRequest": request})
    answer = called(app, "runs-grid.getRowsResponse", {"runs-grid.getRowsRequest": request})
    assert answer.json["response"]["runs-grid"]["getRowsResponse"]["rowCount"] == 1


def test_notes_that_cannot_be_read_are_not_replaced(store: Store) -> None:
    run = make_run(store)
    (run.path / notes.FILE_NAME).write_text('{"note": "kept", "tags": 5}')
    assert notes.read(run) == notes.Notes()
    with pytest.raises(UnusableInputError, match="cannot be read"):
        notes.write(run, tags=[], note="", name="")
    selected = {"runs-notes.n_clicks": 1, "runs-grid.selectedRows": [{"run": run.path.name}]}
    shown = called(create_app(store), "notes-tags.value", selected).json["response"]
    assert shown["notes-run"] == {"children": ""}
    assert "cannot be read" in str(shown["notes-error"])
    assert "kept" in (run.path / notes.FILE_NAME).read_text()


def test_notes_are_beside_the_run_and_bounded(store: Store) -> None:
    run = make_run(store)
    before = (run.path / "run.json").read_bytes()
    written = notes.write(run, tags=[" a ", "a", ""], note="b", name="c\x1b")
    assert (notes.read(run), written.tags, written.name) == (written, ("a",), "c\\x1b")
    assert (run.path / "run.json").read_bytes() == before
    with pytest.raises(UnusableInputError):
        notes.write(run, tags=["a" * 41], note="", name="")
    notes.write(run, tags=[], note="", name="")
    assert not (run.path / notes.FILE_NAME).exists()


def test_a_run_has_a_colour_of_the_palette_whatever_its_notes_say(store: Store) -> None:
    run = make_run(store)
    by_id = color_of_run(run)
    with pytest.raises(UnusableInputError, match="unknown color"):
        notes.write(run, tags=[], note="", name="", color="url(//example.org)")
    (run.path / notes.FILE_NAME).write_text('{"color": "url(//example.org)"}')
    assert color_of_run(run) == by_id in COLORWAY
    notes.write(run, tags=[], note="", name="", color="violet")
    assert make_rows([run], StepTimes())[0]["color"] == color_of_run(run) == "#9467bd"
    first, second = distinct_colors([run, run])
    assert first == color_of_run(run) != second
    assert second in COLORWAY


def test_pickers_offer_the_newest_and_search_the_others(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(shell, "MAX_OPTIONS", 2)
    runs = fill(store, [make_run(store)], 6)
    oldest = runs[0].path.name
    newest = [run.path.name for run in runs[:-3:-1]]
    assert [one["value"] for one in shell.list_run_options(runs, oldest)] == [*newest, oldest]
    shown = shell.list_run_options(runs, oldest)[-1]["label"].replace(" d ago", "00 d ago")
    unfiltered = shell.list_run_options(runs, oldest, search=shown)
    assert [one["value"] for one in unfiltered] == [*newest, oldest]  # its age has changed since
    found = shell.list_run_options(runs, None, search="TRIAL 0")
    assert [one["value"] for one in found] == [oldest]
    assert [one["value"] for one in shell.list_run_options(runs, None, without=newest[0])][:1] == newest[1:]


def test_the_number_of_runs_that_pass_the_filters() -> None:
    assert describe_count(1, 1) == "1 run"
    assert describe_count(12, 5_000) == "12 of 5,000 runs"
