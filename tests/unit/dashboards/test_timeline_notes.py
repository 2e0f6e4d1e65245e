"""Notes on the timeline: stored beside the tables, and no part of the run."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from tracekit.dashboards.app import create_app
from tracekit.dashboards.timeline import interval_notes

from tests.runs import make_run
from tracekit.runs.run import Run
from tracekit.runs.store import Store
from tracekit.runs.verify import verify

if TYPE_CHECKING:
    from pathlib import Path

    from flask.testing import FlaskClient

NOTE = {"from_ns": 100, "to_ns": 2**60 // 4, "row": "device_intervals:7", "text": "<b>slow</b>"}


@pytest.fixture
def store(tmp_path: Path) -> Store:
    return Store(tmp_path)


@pytest.fixture
def run(store: Store) -> Run:
    return make_run(store, tables={})


@pytest.fixture
def client(store: Store, run: Run) -> FlaskClient:
    return create_app(store).server.test_client()


def address(run: Run, note: str = "") -> str:
    return f"/timeline/{run.path.name}/notes" + (f"/{note}" if note else "")


def texts(client: FlaskClient, run: Run) -> list[str]:
    return [note["text"] for note in client.get(address(run)).json["notes"]]


def test_a_note_is_added_replaced_and_deleted(client: FlaskClient, run: Run) -> None:
    added = client.post(address(run), json=NOTE).json
    assert {name: added[name] for name in NOTE} == NOTE
    assert client.get(address(run)).json == {"notes": [added]}
    client.post(address(run), json={"from_ns": 5, "to_ns": 5})
    assert texts(client, run) == ["", "<b>slow</b>"]
    client.post(address(run, added["id"]), json={**NOTE, "text": "fast"})
    assert texts(client, run) == ["", "fast"]
    assert client.delete(address(run, added["id"])).status_code == 200
    assert texts(client, run) == [""]


@pytest.mark.parametrize(
    ("change", "status"),
    [
        ({"to_ns": 99}, 400),
        ({"from_ns": 1.5}, 400),
        ({"from_ns": 10**18}, 400),
        ({"row": "../run:1"}, 400),
        ({"text": "x" * 2_001}, 400),
        ({"more": 1}, 400),
        ({}, 200),
    ],
)
def test_what_is_no_note_is_refused(
    client: FlaskClient, run: Run, change: dict[str, Any], status: int
) -> None:
    assert client.post(address(run), json=NOTE | change).status_code == status
    assert len(texts(client, run)) == (status == 200)


def test_a_note_that_is_not_utf_8_is_refused(client: FlaskClient, run: Run) -> None:
    body = b'{"from_ns":1,"to_ns":2,"text":"\xff"}'
    assert client.post(address(run), data=body).status_code == 400


def test_other_sites_other_files_and_other_runs_are_refused(client: FlaskClient, run: Run) -> None:
    other = {"Origin": "https://example.org"}
    assert client.post(address(run), json=NOTE, headers=other).status_code == 403
    assert client.delete(address(run, "0" * 12), headers=other).status_code == 403
    for note in ("0" * 12, "..%2Frun", "run"):
        assert client.post(address(run, note), json=NOTE).status_code in {404, 405}
        assert client.delete(address(run, note)).status_code in {404, 405}
    assert client.post("/timeline/none/notes", json=NOTE).status_code == 404
    assert (run.path / "run.json").is_file()


def test_notes_are_limited_and_damaged_files_skipped(
    client: FlaskClient, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(interval_notes, "MAX_NOTES", 2)
    client.post(address(run), json=NOTE)
    (run.path / interval_notes.FOLDER / "0123456789ab.json").write_text("{")
    (run.path / interval_notes.FOLDER / "0123456789cd.json").write_bytes(b'{"text":"\xff"}')
    assert texts(client, run) == ["<b>slow</b>"]
    assert client.post(address(run), json=NOTE).status_code == 400


def test_a_run_with_notes_is_whole_and_goes_with_them(store: Store, client: FlaskClient, run: Run) -> None:
    client.post(address(run), json=NOTE)
    again = Run(run.path)
    assert verify(again).damage == ()
    assert [one.path.name for one in store.runs()] == [run.path.name]
    assert store.leftovers() == []
    store.remove(again)
    assert not run.path.exists()
