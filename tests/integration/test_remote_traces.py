"""Importing traces that lie on object storage: the same runs as from a disk, read as they come."""

from __future__ import annotations

import gzip
import shutil
from typing import TYPE_CHECKING

import pytest

from samples.simulator import kineto, nsys
from tests.traces import busy_program, kernels_text
from tracekit import storage
from tracekit.cli.main import run as tracekit
from tracekit.ingest.importer import import_traces
from tracekit.schema import TABLES

if TYPE_CHECKING:
    from pathlib import Path

    from tests.object_storage import Server
    from tracekit.runs.run import Run
    from tracekit.runs.store import Store


def sent(folder: Path, address: str) -> None:
    """Put a folder's files where an address says."""
    for file in storage.inside(folder, deep=True):
        if file.is_file():
            with storage.put(storage.parse(address) / file.relative_to(folder)) as target:
                shutil.copyfile(file, target)


def same(one: Run, other: Run) -> bool:
    return all(one.arrow(name).equals(other.arrow(name)) for name in TABLES)


@pytest.fixture
def job(tmp_path: Path) -> Path:
    """A folder with the traces of four ranks, two of them gzipped."""
    folder = tmp_path / "job"
    folder.mkdir()
    for rank in range(4):
        path = kineto.write(busy_program(rank=rank, world_size=4), folder / f"rank{rank}.pt.trace.json")
        if rank % 2:
            path.with_name(f"{path.name}.gz").write_bytes(gzip.compress(path.read_bytes()))
            path.unlink()
    return folder


@pytest.mark.slow_except(1)
@pytest.mark.parametrize(
    "asked", ["s3://bucket/a job", "s3://bucket/a job/*.json*", "s3://bucket/**/rank[0-9]*"]
)
def test_ranks_become_one_run(
    asked: str, s3: Server, store: Store, job: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    sent(job, "s3://bucket/a job")
    (here,) = import_traces(store, [job])
    assert tracekit(["import", asked, "--store", str(store.path)]) == 0
    there = store.resolve(capsys.readouterr().out.strip())
    assert there.id != here.id
    assert same(here, there)
    assert digests(there) == digests(here)


def digests(run: Run) -> list[str]:
    return [source["sampled_sha256"] for source in run.meta.collector.options["sources"]]


def test_an_export_of_nsight_systems(s3: Server, store: Store, remote: Store, tmp_path: Path) -> None:
    export = tmp_path / "exports" / "report.sqlite"
    export.parent.mkdir()
    nsys.write(busy_program(), export)
    sent(export.parent, "s3://bucket/exports")
    (here,) = import_traces(store, [export])
    (there,) = import_traces(remote, [storage.parse("s3://bucket/exports")])
    assert same(here, there)


def test_a_long_trace_is_not_held(s3: Server, store: Store, tmp_path: Path) -> None:
    text = kernels_text(30_000).encode()
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "trace.json").write_bytes(text)
    sent(tmp_path / "in", "s3://bucket/in")
    with storage.parse("s3://bucket/in/trace.json").open() as stream:
        assert stream.read(100) == text[:100]
        assert stream.read() == text[100:]
        stream.seek(-5, 2)
        assert stream.read() == text[-5:]
    with s3.counting() as asked:
        (run,) = import_traces(store, [storage.parse("s3://bucket/in/trace.json")])
    assert run.rows("device_intervals") >= 30_000
    assert max(one.bytes for one in asked) <= 1 << 20
    looks = 12 << 20  # at the head, the middle and the tail, before
    assert sum(one.bytes for one in asked) < len(text) + looks


def test_a_look_brings_only_a_part(s3: Server, tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "large").write_bytes(bytes(8 << 20))
    sent(tmp_path / "in", "s3://bucket/in")
    with s3.counting() as asked, storage.parse("s3://bucket/in/large").open() as stream:
        stream.read(16)
        stream.seek(-100, 2)
        stream.read()
    assert sum(one.bytes for one in asked) < 1 << 20


def test_one_that_is_not_there_keeps_nothing_back(
    s3: Server, store: Store, job: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    sent(job, "s3://bucket/job")
    words = [
        "s3://bucket/none.json",
        "s3://bucket/none/*.json",
        "s3://bucket/job/rank0*",
        "s3://elsewhere/x.json",
    ]
    assert tracekit(["import", *words, "--store", str(store.path)]) == 2
    out, err = capsys.readouterr()
    assert [run.id for run in store.runs()] == out.split()
    assert len(out.split()) == 1
    lines = err.splitlines()
    assert [line for line in lines if "none.json" in line and "No such file" in line]
    assert [line for line in lines if "nothing matches s3://bucket/none/*.json" in line]
    assert "very-secret" not in err


def test_a_file_address_is_a_path(store: Store, job: Path, tmp_path: Path) -> None:
    (run,) = import_traces(store, storage.expand((job / "rank0.pt.trace.json").as_uri()))
    assert run.rows("device_intervals")
    assert storage.parse(tmp_path.as_uri()) == tmp_path
