from __future__ import annotations

import gzip
import itertools
import json
from pathlib import Path

import pytest

from samples.simulator import Program, write
from tests.traces import kernels_text
from tracekit.errors import UnusableInputError
from tracekit.ingest.importer import import_each
from tracekit.ingest.jobs.survey import plan, survey
from tracekit.runs.store import Store


def rank_file(path: Path, *, rank: int = 0, world_size: int = 1) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    program = Program(rank=rank, world_size=world_size)
    with program.op("aten::relu"):
        program.kernel("relu", 1000)
    return write(program, path)


def planned(*paths: Path) -> list[tuple[str, list[tuple[str, int | None]]]]:
    return [(job.name, [(s.path.name, s.rank) for s in job.sources]) for job in plan(paths)]


def test_unrelated_files_become_separate_runs(tmp_path: Path) -> None:
    a, b = rank_file(tmp_path / "a.json"), rank_file(tmp_path / "b.pt.trace.json.gz")
    assert planned(a, b) == [("a", [("a.json", None)]), ("b", [("b.pt.trace.json.gz", None)])]


def test_ranks_of_a_job_become_one_run(tmp_path: Path) -> None:
    named = (("x.json", 1), ("y.json", 0))
    files = [rank_file(tmp_path / name, rank=rank, world_size=2) for name, rank in named]
    assert planned(*files) == [("y", [("y.json", 0), ("x.json", 1)])]


def test_a_folder_becomes_one_run_named_after_it(tmp_path: Path) -> None:
    for rank in range(3):
        rank_file(tmp_path / "job" / f"r{rank}.json", rank=rank, world_size=3)
    (tmp_path / "job" / "notes.txt").write_text("not a trace")
    assert planned(tmp_path / "job") == [("job", [("r0.json", 0), ("r1.json", 1), ("r2.json", 2)])]


def test_a_repeated_rank_starts_another_run(tmp_path: Path) -> None:
    for cycle in "ab":
        for rank in range(2):
            rank_file(tmp_path / "job" / f"{cycle}{rank}.json", rank=rank, world_size=2)
    assert planned(tmp_path / "job") == [
        ("job", [("a0.json", 0), ("a1.json", 1)]),
        ("job", [("b0.json", 0), ("b1.json", 1)]),
    ]


def test_undeclared_ranks_come_from_file_names(tmp_path: Path) -> None:
    for worker in (3, 10):
        rank_file(tmp_path / "log" / f"worker{worker}.pt.trace.json")
    assert planned(tmp_path / "log") == [
        ("log", [("worker3.pt.trace.json", 3), ("worker10.pt.trace.json", 10)])
    ]


def test_ranks_without_numbered_names_are_assumed_in_order(tmp_path: Path) -> None:
    for name in ("left", "right"):
        rank_file(tmp_path / "log" / f"{name}.json")
    (job,) = plan([tmp_path / "log"])
    assert [(source.rank, source.assumed) for source in job.sources] == [(0, True), (1, True)]


def test_a_folder_without_traces_is_refused(tmp_path: Path) -> None:
    (tmp_path / "notes.json").write_text('{"a": 1}')
    with pytest.raises(UnusableInputError, match=r"has no traces of .*Nsight Systems \("):
        plan([tmp_path])
    (tmp_path / "nccl_trace_rank_0").write_bytes(b"\x80\x05}q\x00.")
    with pytest.raises(UnusableInputError, match=r"left out nccl_trace_rank_0: .* a pickle"):
        plan([tmp_path])


def declared_after(path: Path, rank: int, *, world_size: int = 2, pad: int = 0) -> Path:
    """Write a trace that declares its rank after its events."""
    path.parent.mkdir(parents=True, exist_ok=True)
    info = {"backend": "nccl", "rank": rank, "world_size": world_size, "pg_config": [{"ranks": [0, 1]}]}
    known = {**json.loads(kernels_text()), "pad": "x" * pad, "distributedInfo": info}
    text = json.dumps(known).encode()
    path.write_bytes(gzip.compress(text) if path.suffix == ".gz" else text)
    return path


def test_ranks_declared_after_the_events_are_read(tmp_path: Path) -> None:
    files = (
        declared_after(tmp_path / "n" / "a.json", 1),
        declared_after(tmp_path / "n" / "b.json", 0, pad=2 << 20),
    )
    expected = [("b.json", 0), ("a.json", 1)]
    assert planned(*files) == [("b", expected)]
    assert planned(tmp_path / "n") == [("n", expected)]


@pytest.mark.parametrize("info", ['"x"', "[1]", '{"rank": "a"}', '{"rank": ', "{" * 100_000])
def test_invalid_declared_ranks_are_ignored(tmp_path: Path, info: str) -> None:
    (tmp_path / "a.json").write_text(kernels_text()[:-1] + f', "distributedInfo": {info}}}')
    assert planned(tmp_path / "a.json") == [("a", [("a.json", None)])]


@pytest.mark.parametrize("rank", [-1, 2**31, 2**40])
def test_ranks_out_of_range_are_ignored(tmp_path: Path, rank: int) -> None:
    assert planned(declared_after(tmp_path / "a.json", rank)) == [("a", [("a.json", None)])]
    assert planned(rank_file(tmp_path / "b.json", rank=rank, world_size=2)) == [("b", [("b.json", None)])]


def test_a_folder_per_rank_becomes_one_run(tmp_path: Path) -> None:
    for rank in range(2):
        rank_file(tmp_path / "job" / f"rank_{rank}" / "trace.json", rank=rank, world_size=2)
        rank_file(tmp_path / "silent" / f"rank_{rank}" / "trace.json")
        rank_file(tmp_path / "deep" / f"{rank}" / "profile" / "trace.json", rank=rank, world_size=2)
    for name in ("job", "silent", "deep"):
        assert planned(tmp_path / name) == [(name, [("trace.json", 0), ("trace.json", 1)])]


def test_jobs_in_sibling_folders_stay_separate(tmp_path: Path) -> None:
    for job, rank in itertools.product("ab", range(2)):
        rank_file(tmp_path / "all" / job / f"{rank}" / f"{job}.json", rank=rank, world_size=2)
        rank_file(tmp_path / "partial" / job / f"{rank}.json", rank=rank, world_size=4)
        rank_file(tmp_path / "alone" / job / "t.json")
    assert [job[0] for job in planned(tmp_path / "all")] == ["a", "b"]
    assert [job[0] for job in planned(tmp_path / "partial")] == ["a", "b"]
    assert planned(tmp_path / "alone") == [("t", [("t.json", None)])] * 2


def test_folders_per_node_become_one_run(tmp_path: Path) -> None:
    for rank in range(4):
        rank_file(tmp_path / "job" / f"node{rank // 2}" / f"{rank}.json", rank=rank, world_size=4)
    assert planned(tmp_path / "job") == [("job", [(f"{rank}.json", rank) for rank in range(4)])]


def test_skipped_traces_in_a_folder_are_reported(tmp_path: Path) -> None:
    rank_file(tmp_path / "mix" / "r0.json", world_size=2)
    others = {"config.json": '{"a": 1}', "list.json": "[3]", "notes.txt": "x"}
    damaged = {"r1.json": '{"traceEve', "r2.json.gz": "", "r3.pt.trace.json": "\0\0", "r4.pt.trace": "{"}
    for name, text in {**others, **damaged}.items():
        (tmp_path / "mix" / name).write_text(text)
    (job,) = plan([tmp_path / "mix"])
    assert {(note.level, note.code) for note in job.notes} == {("warn", "skipped_file")}
    assert [note.message.split(": ")[0] for note in job.notes] == [f"left out {name}" for name in damaged]
    assert not any(str(tmp_path) in note.message for note in job.notes)


def test_a_skipped_trace_is_reported_by_the_nearest_job(tmp_path: Path) -> None:
    for name in ("a/r0.json", "b/r0.json", "c/rank_0/t.json"):
        rank_file(tmp_path / name)
    for name in ("a/r1.json", "c/rank_1/t.json"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text("")
    jobs = {job.sources[0].path.relative_to(tmp_path).parts[0]: job for job in plan([tmp_path])}
    assert {name: len(job.notes) for name, job in jobs.items()} == {"a": 1, "b": 0, "c": 1}


def test_a_folder_of_damaged_traces_is_refused_with_a_reason(tmp_path: Path) -> None:
    (tmp_path / "r1.json").write_text('{"traceEve')
    with pytest.raises(
        UnusableInputError,
        match=r"has no traces of .*: left out r1\.json: .* at byte 10, before its events",
    ):
        plan([tmp_path])


def test_unusable_paths_do_not_block_others(tmp_path: Path) -> None:
    good = rank_file(tmp_path / "a.json")
    found = survey([tmp_path / "gone", good, Path("x" * 5_000)])
    assert [job.name for job in found.jobs] == ["a"]
    assert ["gone" in found.errors[0].message, "too long" in found.errors[1].message] == [True, True]


def test_ranges_of_a_name_become_steps(tmp_path: Path) -> None:
    program = Program()
    for name in ("warm up", "measured|x", "measured|x"):
        with program.annotation(name), program.op("aten::relu"):
            program.kernel("relu", 1000)
            with program.annotation("measured|x"):  # inside another one, or alone in the warm-up
                program.wait(10)
    traces = [write(program, tmp_path / "trace.json")]
    run, *none = import_each(Store(tmp_path / "store"), traces, steps="measured|x")
    assert none == []
    steps = run.table("steps")
    assert (steps["step"].tolist(), set(steps["name"])) == ([0, 1, 2], {"measured|x"})
    kernels = run.table("device_intervals").query("kind == 'kernel'")
    assert kernels["step"].astype(object).where(kernels["step"].notna(), None).tolist() == [None, 1, 2]


def test_a_range_that_is_not_there_is_named_with_those_that_are(tmp_path: Path) -> None:
    program = Program()
    with program.annotation("forward"), program.op("aten::relu"):
        program.kernel("relu", 1000)
    run, error = import_each(
        Store(tmp_path / "store"), [write(program, tmp_path / "t.json")], steps="forwards"
    )
    assert isinstance(error, UnusableInputError)
    assert str(error).startswith(f"run {run.id} has no range named 'forwards'")
    assert error.hint == "its most frequent ranges are 'forward'"
