"""A store on object storage, with a server that speaks S3: the same as one on a disk."""

from __future__ import annotations

import json
import pickle
import subprocess
import sys
import threading
from collections import Counter
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest

from tests.runs import make_meta, make_run, step_rows, write_table
from tests.tiers import thinned
from tests.traces import kernels_text
from tracekit import analysis, storage
from tracekit.analysis.by_rank import is_worth_two_processes
from tracekit.analysis.cache import ResultCache
from tracekit.cli.main import run as tracekit
from tracekit.errors import RunNotFoundError
from tracekit.ingest.importer import import_traces
from tracekit.ingest.references import resolve
from tracekit.ingest.write import write_table as write_rows
from tracekit.runs.store import Store
from tracekit.runs.tables import move_to_draft
from tracekit.schema import DEVICE_INTERVALS, TABLES, C

if TYPE_CHECKING:
    from pathlib import Path

    from tests.object_storage import Server


def names(store: Store) -> list[str]:
    """What the store's place holds, folders' marks left out."""
    found = storage.inside(store.path, deep=True)
    return ["/".join(one.parts[len(store.path.parts) :]) for one in found if one.is_file()]


@pytest.fixture
def trace(tmp_path: Path) -> Path:
    path = tmp_path / "trace.json"
    path.write_text(kernels_text(2_000))
    return path


def test_a_run_is_there_as_it_is_on_a_disk(store: Store, remote: Store, trace: Path) -> None:
    (here,), (there,) = import_traces(store, [trace], label="x"), import_traces(remote, [trace], label="x")
    assert {name: one.sha256 for name, one in here.meta.tables.items()} == {
        name: one.sha256 for name, one in there.meta.tables.items()
    }
    for name in TABLES:
        assert there.arrow(name).equals(here.arrow(name))
        assert [file.read_bytes() for file in here.files(name)] == [
            file.read_bytes() for file in there.files(name)
        ]
    window = (0, there.arrow("device_intervals")[C.START_NS][500].as_py())
    assert there.arrow("device_intervals", window=window).equals(
        here.arrow("device_intervals", window=window)
    )


@pytest.mark.slow
def test_every_analysis_says_the_same(store: Store, remote: Store, trace: Path) -> None:
    (here,), (there,) = import_traces(store, [trace]), import_traces(remote, [trace])
    for one in analysis.available():
        a, b = analysis.analyze(here, one.name), analysis.analyze(there, one.name)
        assert a.tables.keys() == b.tables.keys()
        assert all(a.tables[name].equals(b.tables[name]) for name in a.tables), one.name
        assert (a.findings, a.notes) == (b.findings, b.notes)


def test_the_later_of_one_second_is_the_latest(remote: Store) -> None:
    runs = [make_run(remote, name=name) for name in ("zebra", "ant", "mole")]
    assert [run.id for run in Store(remote.path).runs()] == [run.id for run in runs]
    assert Store(remote.path).resolve("latest").id == runs[-1].id


def test_references(remote: Store) -> None:
    old, new = make_run(remote, label="first"), make_run(remote, after_s=5)
    assert [run.id for run in remote.runs()] == [old.id, new.id]
    for reference in ("latest~1", "first", old.id, old.id[:-2], str(old.path)):
        assert remote.resolve(reference).path == old.path
    assert remote.resolve("latest").meta == new.meta
    with pytest.raises(RunNotFoundError):
        remote.resolve("nothing")
    with pytest.raises(RunNotFoundError):
        remote.resolve(f"{remote.path}/nothing")


def test_a_trace_there_is_imported_once(s3: Server, remote: Store, trace: Path) -> None:
    place = storage.parse("s3://bucket/traces/rank 0.json")
    with storage.put(place) as file:
        file.write_bytes(trace.read_bytes())
    run = resolve(remote, str(place))
    assert resolve(remote, str(place)).id == run.id
    assert [one.id for one in remote.runs()] == [run.id]


def test_no_fork_uses_the_connections(remote: Store, trace: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("os.sched_getaffinity", lambda _: {0, 1})
    monkeypatch.setattr("tracekit.executors.local.call_in_fork", pytest.fail)
    run = resolve(remote, str(trace), meanwhile=lambda: pytest.fail("it is called in one process only"))
    assert not is_worth_two_processes(run)
    monkeypatch.setattr("tracekit.analysis.by_rank.MIN_ROWS_FOR_NEW", 1)
    assert is_worth_two_processes(run, forks=False)


def test_deleting_leaves_nothing(remote: Store) -> None:
    run, other = make_run(remote), make_run(remote, after_s=1)
    remote.remove(run)
    assert [one.id for one in remote.runs()] == [other.id]
    assert not any(run.id in name for name in names(remote))


def test_an_abandoned_draft_leaves_nothing(remote: Store) -> None:
    meta = make_meta()
    with remote.draft(meta.run_id) as draft:
        write_table(draft.path, "steps", step_rows(0))
        move_to_draft(draft.path, draft.address)
        assert f"{meta.run_id}/steps.parquet" in names(remote)
        assert remote.runs() == []
    assert names(remote) == []
    assert not draft.path.exists()


@pytest.mark.parametrize("place", thinned(["remote", "store"], default=["remote"]))
def test_files_are_delivered_by_other_processes(
    place: str, request: pytest.FixtureRequest, tmp_path: Path
) -> None:
    at, meta = request.getfixturevalue(place), make_meta()
    with at.draft(meta.run_id) as draft:
        address = pickle.loads(pickle.dumps(draft.address))  # noqa: S301 (our own)
        assert storage.parse(str(address)) == address
        reported = [*_delivered(tmp_path, address, 0), *_delivered(tmp_path, address, 1)]
        _delivered(tmp_path, address, 2)  # of a task that nobody waited for
        reported += _delivered(tmp_path, address, 1)  # a task that was done twice
        run = draft.commit(meta, reported)
    assert run.arrow("steps")[C.START_NS].to_pylist() == [0, 1, 10, 11]
    assert [file.name for file in run.files("steps")] == ["part-00000.parquet", "part-00001.parquet"]
    assert run.rows("steps") == 4
    assert at.resolve("latest").in_parts("steps")
    assert Store(at.path).runs()[0].meta.tables == run.meta.tables


DELIVER = """
import pickle, sys
from pathlib import Path
from tracekit import storage as places
from tracekit.runs.tables import move_to_draft
sys.stdout.buffer.write(pickle.dumps(move_to_draft(Path(sys.argv[1]), places.parse(sys.argv[2]))))
"""


def _delivered(folder: Path, address: storage.Place, rank: int) -> list:
    own = folder / f"rank{rank}"
    own.mkdir(exist_ok=True)
    write_table(own, "steps", step_rows(rank, 10 + rank), part=f"part-{rank:05d}.parquet")
    done = subprocess.run(
        [sys.executable, "-c", DELIVER, own, str(address)], check=True, stdout=subprocess.PIPE
    )
    return list(pickle.loads(done.stdout))  # noqa: S301 (our own)


KILLED = """
import os, signal, sys
from tests.runs import make_meta, step_rows, write_table
from tracekit import storage as places
from tracekit.runs.tables import move_to_draft
from tracekit.runs.store import Store
with Store(places.parse(sys.argv[1])).draft(sys.argv[2]) as draft:
    write_table(draft.path, "steps", step_rows(0))
    move_to_draft(draft.path, draft.address)
    os.kill(os.getpid(), signal.SIGKILL)
"""


def test_a_killed_writer_leaves_no_run_but_a_leftover(remote: Store) -> None:
    run_id, whole = make_meta().run_id, make_run(remote, after_s=1)
    subprocess.run([sys.executable, "-c", KILLED, str(remote.path), run_id], check=False)
    assert [run.id for run in remote.runs()] == [whole.id]
    with pytest.raises(RunNotFoundError):
        remote.resolve(run_id)
    found = {one.place.name: one for one in remote.leftovers()}
    assert found[run_id].alive is False
    assert found[run_id].bytes > 0
    assert "which has ended" in found[run_id].owner
    for one in found.values():
        remote.delete_leftover(one)
    assert remote.leftovers() == []
    assert not any(run_id in name for name in names(remote))
    assert [run.id for run in remote.runs()] == [whole.id]


def test_what_is_being_written_is_said_to_be(remote: Store) -> None:
    with remote.draft("20261121T031500Z-mine-abcdef"):
        (own,) = [one for one in remote.leftovers() if isinstance(one.place, storage.RemotePath)]
        assert own.alive
        assert own.age_s < 3600


def test_half_a_deletion_is_no_run(remote: Store) -> None:
    run = make_run(remote)
    for entry in (remote.path / ".index").glob(f"{run.id}*"):
        entry.unlink()
    assert [one.id for one in remote.runs()] == [run.id]  # it still is whole
    (run.path / "run.json").unlink()
    assert remote.runs() == []
    assert [one.place.name for one in remote.leftovers()] == [run.id]


def test_two_writers_at_once(remote: Store) -> None:
    threads = [threading.Thread(target=make_run, args=(remote,), kwargs={"after_s": s}) for s in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert [run.meta.created_at for run in remote.runs()] == sorted(
        run.meta.created_at for run in remote.runs()
    )
    assert [run.rows("steps") for run in remote.runs()] == [2] * 6


def test_a_store_that_another_tool_copied(store: Store, remote: Store) -> None:
    run = make_run(store, label="copied")
    for file in storage.inside(run.path, deep=True):
        with storage.put(remote.path / run.id / file.name) as target:
            target.write_bytes(file.read_bytes())
    assert remote.resolve("copied").arrow("steps").equals(run.arrow("steps"))


def test_listing_asks_little(remote: Store, s3: Server) -> None:
    made = [make_run(remote, after_s=s) for s in range(12)]
    first = Store(remote.path).runs()
    with s3.counting() as asked:
        again = Store(remote.path).runs()
        assert [run.meta for run in again] == [run.meta for run in first] == [run.meta for run in made]
    assert len(asked) <= 3, asked
    with s3.counting() as asked:
        remote.resolve("latest")
    assert len(asked) <= 3, asked


def test_only_what_is_asked_for_is_read(remote: Store, s3: Server) -> None:
    with remote.draft() as draft:
        write_rows(kernels(200_000), DEVICE_INTERVALS, draft.path / "device_intervals.parquet")
        run = draft.commit(make_meta())
    whole = run.meta.tables["device_intervals"].bytes
    with s3.counting() as asked:
        rows = run.arrow("device_intervals", columns=[C.START_NS])
    assert sum(one.bytes for one in asked) < whole / 3
    end = rows[C.START_NS][100].as_py()
    with s3.counting() as asked:
        assert run.arrow("device_intervals", window=(0, end)).num_rows >= 100
    assert sum(one.bytes for one in asked) < whole / 2
    with s3.counting() as asked:
        run.arrow("device_intervals", columns=[C.NAME], where=pc.field(C.START_NS) < end)
    assert sum(one.bytes for one in asked) < whole / 3


def test_parts_are_read_in_order_and_only_where_they_can_match(
    remote: Store, s3: Server, tmp_path: Path
) -> None:
    meta = make_meta()
    with remote.draft(meta.run_id) as draft:
        for rank in range(6):
            write_table(draft.path, "steps", step_rows(100 * rank, 50), part=f"part-{rank:05d}.parquet")
        run = draft.commit(meta)
    assert run.arrow("steps")[C.START_NS].to_pylist() == [0, *[50] * 6, *(100 * rank for rank in range(1, 6))]
    (unread,) = remote.runs()
    with s3.counting() as asked:
        assert unread.arrow("steps", window=(495, 600))[C.START_NS].to_pylist() == [500]
    read = Counter(one.path.rpartition("/")[2] for one in asked if one.method == "GET")
    matching = read.pop("part-00005.parquet")
    assert matching > 1
    assert list(read.values()) == [1] * 5  # nothing but the footers of the others


def kernels(count: int) -> pa.Table:
    """So many kernels one after the other, with names that do not compress."""
    schema, numbers = DEVICE_INTERVALS.arrow, np.arange(count)
    names = [f"{number * 2_654_435_761:x}" for number in range(count)]
    known = {C.START_NS: numbers * 10, C.DUR_NS: numbers % 7, C.NAME: names, C.KIND: ["kernel"] * count}
    columns = []
    for field in schema:
        nothing = pa.nulls(count) if field.nullable else np.zeros(count, np.int64)
        columns.append(pa.array(known.get(field.name, nothing)).cast(field.type))
    return pa.Table.from_arrays(columns, schema=schema)


def test_results_are_kept_here(remote: Store, trace: Path, s3: Server) -> None:
    (run,) = import_traces(remote, [trace])
    first = ResultCache(remote).analyze(run, "gpu_breakdown")
    with s3.counting() as asked:
        again = ResultCache(remote).analyze(run, "gpu_breakdown")
    assert not any("parquet" in one.path for one in asked)
    assert again.tables["total"].equals(first.tables["total"]) if "total" in first.tables else again.tables
    assert list(remote.local_folder.glob(".results/*/*.zip"))
    remote.remove(run)
    assert not list(remote.local_folder.glob(".results/*/*.zip"))


@pytest.mark.parametrize(
    "more", [[], pytest.param([["findings", "latest"], ["diff", "base", "head"]], marks=pytest.mark.slow)]
)
def test_the_commands(
    more: list[list[str]],
    remote: Store,
    trace: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("TRACEKIT_STORE", str(remote.path))
    assert tracekit(["import", str(trace), "--label", "base"]) == 0
    assert tracekit(["import", str(trace), "--label", "head"]) == 0
    first, second = capsys.readouterr().out.split()
    assert tracekit(["runs", "--format", "json"]) == 0
    assert [run["run_id"] for run in json.loads(capsys.readouterr().out)["runs"]] == [first, second]
    for words in (["show", "base"], ["analyze", "head", "kernels"], *more):
        assert tracekit([*words, "--format", "json"]) == 0, words
        assert json.loads(capsys.readouterr().out)
    assert tracekit(["rm", first, "--yes"]) == 0
    assert capsys.readouterr().out.split() == [first]
    assert [run.id for run in remote.runs()] == [second]


def test_verify_and_gc(remote: Store, capsys: pytest.CaptureFixture[str]) -> None:
    run_id, words = make_meta().run_id, ["--store", str(remote.path)]
    subprocess.run([sys.executable, "-c", KILLED, str(remote.path), run_id], check=False)
    meta = make_meta(after_s=1)
    with remote.draft(meta.run_id) as draft:
        for rank in range(2):
            write_table(draft.path, "steps", step_rows(rank), part=f"part-{rank:05d}.parquet")
        run = draft.commit(meta)
    assert tracekit(["gc", "--format", "json", *words]) == 0
    freed = json.loads(capsys.readouterr().out)["freed"]
    assert run_id in [one["path"] for one in freed]
    assert remote.leftovers() == []
    assert tracekit(["verify", *words]) == 0
    file = run.files("steps")[1]
    file.write_bytes(file.read_bytes()[:-1] + b"x")
    capsys.readouterr()
    assert tracekit(["verify", "--format", "json", *words]) == 2
    assert run.id in capsys.readouterr().out
