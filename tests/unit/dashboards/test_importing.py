from __future__ import annotations

import gzip
import io
import signal
from typing import TYPE_CHECKING, Any

import pytest

pytest.importorskip("dash")

from pathlib import Path

from tracekit.dashboards.imports import import_jobs, routes, worker
from tracekit.dashboards.imports.import_jobs import FOLDER, Imports, Phase, safe_file_name

from samples.simulator import examples, nsys
from tests.unit.dashboards.test_security import client_of

if TYPE_CHECKING:
    from flask.testing import FlaskClient
    from tracekit.dashboards.imports.import_jobs import State

    from tracekit.runs.store import Store

RECORDED = Path(__file__).parents[3] / "samples"
TRACE = routes.SAMPLES / "simulated-training.json.gz"
LONG_S = 120.0


@pytest.fixture
def imports(store: Store) -> Imports:
    return Imports(store, limit=1 << 30)


def sent(imports: Imports, name: str, content: bytes, *, key: str = "", parts: int = 1) -> State:
    """A file sent in so many slices."""
    length = max(-(-len(content) // parts), 1)
    for offset in range(0, max(len(content), 1), length):
        body = io.BytesIO(content[offset : offset + length])
        state = imports.receive(key, name=name, offset=offset, size=len(content), body=body)
        key = state.id
    return state


def over(imports: Imports, state: State) -> State:
    imports.start(state.id)
    return imports.wait(state.id, seconds=LONG_S)


def left(store: Store) -> list[str]:
    folder = store.path / FOLDER
    return [str(path) for path in folder.rglob("*")] if folder.exists() else []


def test_slices_become_a_run_and_nothing_is_left(imports: Imports, store: Store) -> None:
    state = over(imports, sent(imports, "../../tr ace.json.gz", TRACE.read_bytes(), parts=5))
    assert state.phase is Phase.DONE
    assert state.runs == tuple(run.path.name for run in store.readable())
    assert "tr_ace" in state.runs[0]
    assert left(store) == []


def test_only_the_run_of_an_import_of_one_is_announced(store: Store) -> None:
    announced: list[str] = []
    imports = Imports(store, 1 << 30, announced.append)
    state = over(imports, sent(imports, "a.json.gz", TRACE.read_bytes()))
    assert announced == list(state.runs)
    first = sent(imports, "b.json.gz", TRACE.read_bytes())
    state = over(imports, sent(imports, "c.json.gz", TRACE.read_bytes(), key=first.id))
    assert (len(announced), len(state.runs)) == (1, 2)


@pytest.mark.slow_except(2)
@pytest.mark.parametrize(
    ("content", "said"),
    [
        (b"hello", "not JSON"),
        (b"", "empty"),
        (b'{"a": 1}', "trace"),
        (gzip.compress(b"x", mtime=0)[:8], "x.json.gz"),
    ],
)
def test_what_is_no_trace_says_why_and_what_to_do(
    imports: Imports, store: Store, content: bytes, said: str
) -> None:
    state = over(imports, sent(imports, "x.json.gz", content))
    assert (state.phase, state.runs) == (Phase.FAILED, ())
    ((message, hint),) = state.errors
    assert said in message
    assert str(store.path) not in message
    assert hint
    assert left(store) == []
    assert store.runs() == []


@pytest.mark.slow
def test_an_export_of_nsight_systems_becomes_a_run(imports: Imports, store: Store, tmp_path: Path) -> None:
    content = nsys.write(examples.training(), tmp_path / "run.sqlite").read_bytes()
    state = over(imports, sent(imports, "run.sqlite", content, parts=3))
    assert (state.phase, state.errors) == (Phase.DONE, ())
    assert [run.path.name for run in store.readable()] == list(state.runs)
    cut = over(imports, sent(imports, "cut.sqlite", content[: len(content) // 2]))
    ((message, hint),) = cut.errors
    assert "cut.sqlite is damaged" in message
    assert str(store.path) not in message
    assert "nsys export" in hint
    assert left(store) == []


def test_a_truncated_trace_becomes_a_run_with_a_warning(imports: Imports) -> None:
    whole = gzip.decompress(TRACE.read_bytes())
    state = over(imports, sent(imports, "cut.json", whole[: len(whole) // 2]))
    assert (state.phase, state.warnings > 0) == (Phase.DONE, True)


def test_one_bad_file_does_not_keep_the_others_back(imports: Imports) -> None:
    first = sent(imports, "good.json.gz", TRACE.read_bytes())
    state = over(imports, sent(imports, "bad.json", b"no", key=first.id))
    assert (state.phase, len(state.runs), len(state.errors)) == (Phase.DONE, 1, 1)


def test_more_than_the_limit_is_refused_before_it_is_kept(store: Store) -> None:
    imports = Imports(store, limit=100)
    with pytest.raises(Exception, match="upload-limit"):
        sent(imports, "large.json", b"x" * 101)
    assert left(store) == []


def test_a_slice_that_says_less_than_it_holds_is_refused(store: Store) -> None:
    imports = Imports(store, limit=100)
    with pytest.raises(Exception, match="upload limit"):
        imports.receive("", name="a", offset=0, size=1, body=io.BytesIO(b"x" * 101))
    assert left(store) == []


def test_all_uploads_have_one_budget(store: Store) -> None:
    imports = Imports(store, limit=100)
    first = imports.receive("", name="a", offset=0, size=60, body=io.BytesIO(b"x"))
    with pytest.raises(Exception, match="not imported yet"):
        imports.receive("", name="b", offset=0, size=60, body=io.BytesIO(b"x"))
    imports.cancel(first.id)
    imports.receive("", name="b", offset=0, size=60, body=io.BytesIO(b"x"))
    imports.close()
    assert left(store) == []
    with pytest.raises(Exception, match="stopping"):
        imports.receive("", name="c", offset=0, size=1, body=io.BytesIO(b"x"))


def test_few_imports_are_pending(imports: Imports, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(import_jobs, "MAX_PENDING", 1)
    imports.receive("", name="a", offset=0, size=2, body=io.BytesIO(b"x"))
    with pytest.raises(Exception, match="pending already"):
        imports.receive("", name="b", offset=0, size=2, body=io.BytesIO(b"x"))


def test_an_upload_leaves_space_on_the_disk(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(import_jobs, "MIN_FREE_BYTES", 1 << 60)
    with pytest.raises(Exception, match="not enough free space"):
        Imports(store, limit=100).receive("", name="a", offset=0, size=2, body=io.BytesIO(b"x"))
    assert left(store) == []


def test_a_missing_slice_is_noticed(imports: Imports) -> None:
    state = sent(imports, "a.json", b"abc")
    with pytest.raises(Exception, match="missing"):
        imports.receive(state.id, name="a.json", offset=7, size=9, body=io.BytesIO(b"xy"))


def test_a_slice_that_was_received_is_not_appended_again(imports: Imports) -> None:
    state = sent(imports, "a.json", b"abc")
    with pytest.raises(Exception, match="missing"):
        imports.receive(state.id, name="a.json", offset=0, size=3, body=io.BytesIO(b"abc"))


def test_all_files_of_an_import_count(store: Store) -> None:
    imports = Imports(store, limit=100)
    state = imports.receive("", name="a", offset=0, size=60, body=io.BytesIO(b"x"))
    with pytest.raises(Exception, match="upload limit"):
        imports.receive(state.id, name="b", offset=0, size=60, body=io.BytesIO(b"x"))


def test_a_cancelled_import_leaves_nothing(imports: Imports, store: Store) -> None:
    state = sent(imports, "a.json.gz", TRACE.read_bytes())
    assert imports.cancel(state.id).phase is Phase.CANCELLED
    assert left(store) == []
    with pytest.raises(Exception, match="cancelled"):
        imports.start(state.id)


def test_what_a_page_left_behind_is_deleted(
    imports: Imports, store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    left_behind = sent(imports, "a.json", b"abc")
    assert left(store) != []
    monkeypatch.setattr(import_jobs, "MAX_SILENCE_S", -1)
    imports.cancel(sent(imports, "b.json", b"abc").id)
    assert imports.wait(left_behind.id, seconds=0).phase is Phase.CANCELLED
    assert left(store) == []


def test_a_running_import_is_ended(imports: Imports, store: Store) -> None:
    state = sent(imports, "a.json.gz", TRACE.read_bytes())
    imports.start(state.id)
    imports.cancel(state.id)
    assert imports.wait(state.id, seconds=LONG_S).phase is Phase.CANCELLED
    assert left(store) == []
    assert [entry for entry in store.path.iterdir() if entry.name.startswith(".tmp")] == []


def test_a_worker_whose_dashboard_ended_exits_quietly(
    store: Store, capfd: pytest.CaptureFixture[str]
) -> None:
    """Its output can break before its input closes."""
    process = worker.start_worker(store.path, [TRACE])
    assert process.stdin
    assert process.stdout
    process.stdout.close()
    assert process.wait(LONG_S) == 128 + signal.SIGTERM
    process.stdin.close()
    assert capfd.readouterr().err == ""
    assert [entry for entry in store.path.iterdir() if entry.name.startswith(".tmp")] == []


def test_names_are_only_names() -> None:
    assert [safe_file_name(name) for name in ("../../etc/passwd", "C:\\x\\rank 0.json.gz", "..")] == [
        "passwd",
        "rank_0.json.gz",
        "trace",
    ]
    assert [safe_file_name(name) for name in ("a/../b.json", "..\\c", "\0d", "é.json", ".hidden", "")] == [
        "b.json",
        "c",
        "d",
        "json",
        "hidden",
        "trace",
    ]


def test_samples_are_those_of_the_repository() -> None:
    twins = {
        "mnist_cnn-train-cpu.json.gz": "recorded/mnist_cnn-train-cpu/trace.json.gz",
        "mnist_cnn-train-zero-cpu.json.gz": "recorded/mnist_cnn-train-zero-cpu/trace.json.gz",
        "simulated-training.json.gz": "simulated/training.json.gz",
    }
    assert {path.name for path in routes.sample_traces()} == set(twins)
    for path in routes.sample_traces():
        assert path.read_bytes() == (RECORDED / twins[path.name]).read_bytes()


def answered(client: FlaskClient, path: str, **request: Any) -> tuple[int, Any]:
    answer = client.open(path, **request)
    return answer.status_code, answer.get_json()


@pytest.mark.parametrize(
    ("query", "said"),
    [
        ("", "no name"),
        ("?name=a&from=-1", "not a number"),
        ("?name=a&size=1e9", "not a number"),
        ("?name=a&id=nothing", "unknown import"),
        ("?name=a&from=5", "missing"),
        ("?name=a&size=99999999999999", "upload limit"),
    ],
)
def test_a_wrong_request_is_answered_in_words(store: Store, query: str, said: str) -> None:
    status, answer = answered(client_of(store), f"/import{query}", method="POST", data=b"x")
    assert (status, said in answer["error"]) == (422, True)
    assert answer["hint"]


def test_a_page_sees_all_imports_and_forgets_one(store: Store) -> None:
    client = client_of(store)
    _, begun = answered(client, "/import?name=a.json&more=1", method="POST", data=b"{")
    assert [one["phase"] for one in answered(client, "/import")[1]] == ["receiving"]
    assert answered(client, f"/import/{begun['id']}", method="DELETE")[1]["phase"] == "cancelled"
    answered(client, f"/import/{begun['id']}", method="DELETE")
    assert answered(client, "/import") == (200, [])
    assert answered(client, f"/import/{begun['id']}", method="DELETE")[0] == 422
