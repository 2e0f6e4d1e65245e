"""A reference names a run, and never leads anywhere else."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.runs import make_meta, make_run
from tests.tiers import UNTIMED, examples
from tracekit.errors import RunNotFoundError, TracekitError, UnusableInputError
from tracekit.runs.meta import FILE_NAME
from tracekit.runs.run import Run
from tracekit.runs.store import Store

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from tests.unit.cli.conftest import Done

HOSTILE = [
    "..",
    "../outside",
    "../../etc/passwd",
    ".results",
    ".tmp-1-0a",
    "run\0id",
    "\0",
    "latest~-1",
    "latest~99999999999999999999",
    "*",
    "[a-z]*",
    "2026*",
    "git:--help",
    "git:HEAD; rm -rf /",
    "\u202e20261121",
    "２０２６１１２１",  # digits that int() would take
    "\ud800",
    "/dev/null",
    "~",
    "a" * 10_000,
    "\n",
    " ",
]


@pytest.fixture
def treasure(tmp_path: Path) -> Path:
    """A folder beside the store that nothing may touch."""
    folder = tmp_path / "outside"
    folder.mkdir()
    (folder / "precious").write_text("kept")
    return folder


@pytest.mark.parametrize("reference", HOSTILE)
def test_a_hostile_reference_is_one_line_and_deletes_nothing(
    reference: str,
    store: Store,
    treasure: Path,
    invoke: Callable[..., Done],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    run = make_run(store)
    (treasure / "here").mkdir()
    monkeypatch.chdir(treasure / "here")
    for command in (["rm", "--yes"], ["verify"], ["analyze"], ["show"]):
        done = invoke(*command, reference)
        assert done.code == 2
        assert done.err.startswith("tracekit: ")
        assert done.err.count("\n") == 1
    assert store.runs() == [run]
    assert (treasure / "precious").read_text() == "kept"


@pytest.fixture
def invoke(store: Store, capsys: pytest.CaptureFixture[str]) -> Callable[..., Done]:
    from tests.unit.cli.conftest import Done
    from tracekit.cli import main

    def call(*arguments: str) -> Done:
        code = main.run([*arguments, "--store", str(store.path)])
        return Done(code, *capsys.readouterr())

    return call


@settings(
    derandomize=True,
    max_examples=examples(150),
    suppress_health_check=[*UNTIMED, HealthCheck.function_scoped_fixture],
)
@given(
    st.text(max_size=30) | st.lists(st.sampled_from(["..", ".", "/", "~", "latest", ":", "a"])).map("".join)
)
def test_whatever_is_asked_for_is_a_run_of_the_store_or_an_error(store: Store, reference: str) -> None:
    known = store.runs() or [make_run(store, label="..")]
    try:
        found = store.resolve(reference)
    except TracekitError:
        return
    assert found in known


@pytest.mark.parametrize(
    "run_id", ["../../x", "/etc/x", "a/b", "", ".", "..", "a\0b", "a" * 65, ".tmp-1-0a", "-x"]
)
def test_metadata_cannot_say_that_a_run_is_elsewhere(run_id: str, store: Store, treasure: Path) -> None:
    run = make_run(store)
    path = run.path / FILE_NAME
    reported = json.loads(path.read_text())
    path.write_text(json.dumps({**reported, "run_id": run_id}))
    with pytest.raises(UnusableInputError, match="is damaged: run_id"):
        Run(run.path).id  # noqa: B018 (read)
    assert store.readable() == []
    assert store.runs() == [Run(run.path)]


@pytest.mark.parametrize("run_id", ["../outside/x", "/outside/x", "a/b", ".."])
def test_a_draft_is_not_committed_elsewhere(run_id: str, store: Store, treasure: Path) -> None:
    with store.draft() as draft, pytest.raises(UnusableInputError, match="is not a run id"):
        draft.commit(make_meta(run_id=run_id))
    assert [path.name for path in treasure.iterdir()] == ["precious"]
    assert store.runs() == []


@pytest.mark.parametrize("label", ["..", "../x", "/", ".results", "latest", "a\0b", "<script>"])
def test_a_label_is_text_and_no_path(label: str, store: Store, treasure: Path) -> None:
    run = make_run(store, label=label)
    assert store.resolve(label) == run
    store.remove(store.resolve(label))
    assert store.runs() == []
    assert treasure.is_dir()


def test_a_run_that_is_a_link_is_let_go_and_what_it_leads_to_stays(store: Store, tmp_path: Path) -> None:
    outside = make_run(Store(tmp_path / "other"))
    make_run(store)
    link = store.path / outside.path.name
    link.symlink_to(outside.path)
    store.remove(Run(link))
    assert not link.is_symlink()
    assert (outside.path / FILE_NAME).is_file()
    assert list(store.path.glob(".tmp-*")) == []


def test_a_link_within_a_run_is_not_followed_when_it_is_deleted(store: Store, treasure: Path) -> None:
    run = make_run(store)
    (run.path / "link").symlink_to(treasure)
    store.remove(run)
    assert (treasure / "precious").read_text() == "kept"


def test_a_linked_folder_of_the_store_is_not_followed_when_a_run_is_deleted(
    store: Store, treasure: Path
) -> None:
    run = make_run(store)
    (treasure / run.path.name).mkdir()
    (store.path / ".results").symlink_to(treasure)
    store.remove(run)
    assert (treasure / run.path.name).is_dir()


def test_only_runs_of_the_store_are_deleted(store: Store, treasure: Path, tmp_path: Path) -> None:
    make_run(store)
    for path in (treasure, tmp_path, store.path, store.path / "..", store.path / ".." / "outside"):
        with pytest.raises(UnusableInputError, match="is not in the store"):
            store.remove(Run(path))
    assert (treasure / "precious").read_text() == "kept"


def test_a_path_that_is_no_run_is_told_so(tmp_path: Path, store: Store) -> None:
    with pytest.raises(RunNotFoundError):
        store.resolve(str(tmp_path / "no" / ".." / "where"))
