from __future__ import annotations

import re
import shlex
import threading
from typing import TYPE_CHECKING, Any

import pytest
from click.testing import CliRunner

from tests.builders import kernel, make_run
from tests.tiers import thinned
from tests.unit.export.test_query_guard import FILES, OTHERS
from tracekit.cli.query import command as query_command
from tracekit.errors import UnusableInputError

pytest.importorskip("dash")

from tracekit.dashboards import query_runner
from tracekit.dashboards.app import create_app
from tracekit.dashboards.pages.sql import EXAMPLES, list_examples, result, tables_with_rows
from tracekit.dashboards.pages.sql.result import _axes, _show_lane_link
from tracekit.dashboards.query_runner import MAX_RUNNING, Queries, Query, Result
from tracekit.dashboards.security import UPDATE_PATH
from tracekit.dashboards.site import MAX_SQL_CHARS, Context, Results, View

from tracekit.export.query import read
from tracekit.export.views import KNOWN

if TYPE_CHECKING:
    from pathlib import Path

    from dash import Dash
    from werkzeug.test import TestResponse

    from tracekit.runs.run import Run
    from tracekit.runs.store import Store

SLOW = "SELECT count(*) FROM range(1000000) a, range(1000000) b WHERE hash(a.range + b.range) = 7"


@pytest.fixture
def run(store: Store) -> Run:
    return make_run(store.path, device_intervals=[kernel(0, 5), kernel(9, 11, name="=1+1")])


def block_of(app: Dash, search: str) -> TestResponse:
    """The response to the callback that fills the block of the result, as the browser calls it."""
    output = next(name for name in app.callback_map if "aria-busy" in name)
    place = {"type": "block", "page": "sql", "name": "result"}
    body = {
        "output": output,
        "outputs": [{"id": place, "property": name} for name in ("children", "aria-busy")],
        "inputs": [
            {"id": "view", "property": "data", "value": {"path": "/sql", "search": search}},
            {"id": "theme", "property": "data", "value": "light"},
            {"id": place | {"type": "again"}, "property": "data"},
        ],
        "state": [{"id": place, "property": "id", "value": place}],
        "changedPropIds": ["view.data"],
    }
    return app.server.test_client().post(UPDATE_PATH, json=body)


def search(sql: str, **options: str) -> str:
    return View(page="sql", options={"sql": sql, **options}).search()


ATTACKS = [
    "WITH x AS (COPY steps TO '{out}') SELECT * FROM x",
    "SELECT * FROM read_text('{secret}')",
]


@pytest.mark.parametrize("sql", thinned([*OTHERS[:-2], *FILES], default=ATTACKS))
def test_what_does_more_than_read_tables_is_refused(sql: str, store: Store, run: Run, tmp_path: Path) -> None:
    (tmp_path / "secret").write_text("a\nunreadable\n")
    before = sorted(tmp_path.rglob("*"))
    answer = block_of(create_app(store), search(sql.format(secret=tmp_path / "secret", out=tmp_path / "out")))
    assert answer.status_code == 200
    assert "tk-error" in answer.text
    assert "unreadable" not in answer.text
    assert sorted(tmp_path.rglob("*")) == before


def test_a_result_is_shown_exactly_and_as_csv_without_formulas(store: Store, run: Run) -> None:
    app = create_app(store)
    where = search(
        "SELECT name, -dur_ns AS dur_ns, 4611686018427387904 AS big FROM device_intervals ORDER BY 2"
    )
    shown = block_of(app, where).json
    assert "2 rows, in " in str(shown)
    assert "{'name': '=1+1', 'dur_ns': -2, 'big': '4611686018427387904'}" in str(shown)
    client, file = app.server.test_client(), "/export/query.csv"
    with client.get(file + where) as answer:
        assert answer.text.splitlines()[2] == "'=1+1,-2,4611686018427387904"
    assert client.get(file + where, headers={"Sec-Fetch-Site": "cross-site"}).status_code == 403
    failed = client.get(file + search("SELECT nme FROM steps"))
    assert (failed.status_code, "did you mean name?" in failed.text) == (422, True)


@pytest.mark.parametrize(
    ("names", "options", "is_linked"),
    [
        (("name", "start_ns", "end_ns"), {}, True),
        (("start_ns", "dur_ns"), {"over": "all"}, False),
        (("start_ns", "name"), {}, False),
    ],
)
def test_rows_with_times_of_one_run_can_be_shown_as_a_lane(
    names: tuple[str, ...], options: dict[str, str], is_linked: bool, store: Store
) -> None:
    view = View(page="sql", run="r1", options={"sql": 'SELECT "a" + 1', **options})
    context = Context(view=view, dark=False, store=store, results=Results())
    shown = _show_lane_link(context, Result(tuple((name, "BIGINT") for name in names), [], False, 0.1))
    address = r"/timeline?run=r1&queries=%5B%5B1%2C+%22%22%2C+%22SELECT+%5C%22a%5C%22+%2B+1%22%5D%5D"
    assert [paragraph.children.href for paragraph in shown] == [address] * is_linked


def test_the_command_of_a_query_that_begins_with_a_comment_runs_it(store: Store, run: Run) -> None:
    shown = block_of(create_app(store), search("-- one\nSELECT 1 AS a")).text
    command = next(text for text in re.findall(r'"(tracekit query [^"]*)"', shown))
    words = shlex.split(command.encode().decode("unicode_escape"))
    answer = CliRunner().invoke(query_command, ["--store", str(store.path), "--format", "csv", *words[2:]])
    assert (answer.output, answer.exit_code) == ("a\n1\n", 0)


def test_a_query_that_is_too_long_is_refused_and_not_cut(store: Store, run: Run) -> None:
    longest = "SELECT 1 -- " + "a" * MAX_SQL_CHARS
    assert View.parse("/sql", search(longest[:MAX_SQL_CHARS])).options["sql"] == longest[:MAX_SQL_CHARS]
    assert "more than 4,000 characters" in block_of(create_app(store), search(longest)).text


def test_queries_beyond_the_maximum_are_refused_and_running_ones_end_when_cancelled(
    store: Store, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    queries, ended = Queries(), []

    def wait_for(query: Query) -> None:
        with pytest.raises(UnusableInputError) as caught:
            queries.result(query)
        ended.append(caught.value.message)

    asked = [Query(f"{SLOW} -- {number}", str(store.path), (run.id,)) for number in range(MAX_RUNNING)]
    waiting = [threading.Thread(target=wait_for, args=[query]) for query in [*asked, asked[0]]]
    for thread in waiting:
        thread.start()
    while len(queries._processes) < MAX_RUNNING:
        waiting[0].join(0.01)
    with pytest.raises(UnusableInputError, match="maximum at once"):
        queries.result(Query("SELECT 1", str(store.path), (run.id,)))
    monkeypatch.setattr(result, "QUERIES", queries)
    answer = create_app(store).server.test_client().get("/export/query.csv" + search("SELECT 1 AS a"))
    assert (answer.status_code, int(answer.headers["Retry-After"]) > 0) == (429, True)
    while any(thread.is_alive() for thread in waiting):  # the last may begin after the first ended
        for query in asked:
            queries.cancel(query)
        waiting[-1].join(0.01)
    assert ended == 3 * ["cancelled"]
    assert queries._processes == []
    assert all(future.done() for future in queries._results._values.values())


@pytest.mark.slow
def test_a_result_of_too_many_bytes_is_an_error(
    store: Store, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(query_runner, "_MAX_BYTES", 1 << 20)
    with pytest.raises(UnusableInputError, match="larger than 1 MiB"):
        Queries().result(Query("SELECT repeat('a', 3000000)", str(store.path), (run.id,)))


def test_examples_fit_the_tables_of_the_run(run: Run) -> None:
    offered = list_examples(tables_with_rows(run))
    assert [one.title for one in offered if "host_intervals" in one.tables] == []
    for example in EXAMPLES:
        assert {*example.tables} - read(example.sql, KNOWN).tables == set()


@pytest.mark.parametrize(
    ("options", "kind", "axes"),
    [
        ({}, "bar", ("name", "sum_ns")),
        ({}, "line", ("n", "sum_ns")),
        ({"x": "name", "y": "n"}, "bar", ("name", "n")),
        ({"x": "name", "y": "name"}, "scatter", ("n", "sum_ns")),
    ],
)
def test_the_axes_are_those_in_the_address_or_the_first_that_fit(
    options: dict[str, Any], kind: str, axes: tuple[str, str]
) -> None:
    assert _axes(["n", "name", "sum_ns"], ["n", "sum_ns"], options, kind) == axes
