from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from samples.simulator import Program, write
from tracekit.errors import UnusableInputError
from tracekit.ingest.jobs import plan

if TYPE_CHECKING:
    from pathlib import Path


def rank_file(path: Path, *, rank: int = 0, world_size: int = 1) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    program = Program(rank=rank, world_size=world_size)
    with program.op("aten::relu"):
        program.kernel("relu", 1000)
    return write(program, path)


def planned(*paths: Path) -> list[tuple[str, list[tuple[str, int | None]]]]:
    return [(job.name, [(s.path.name, s.rank) for s in job.sources]) for job in plan(paths)]


def test_unrelated_files_are_runs_of_their_own(tmp_path: Path) -> None:
    a, b = rank_file(tmp_path / "a.json"), rank_file(tmp_path / "b.pt.trace.json.gz")
    assert planned(a, b) == [("a", [("a.json", None)]), ("b", [("b.pt.trace.json.gz", None)])]


def test_ranks_of_one_job_are_one_run(tmp_path: Path) -> None:
    named = (("x.json", 1), ("y.json", 0))
    files = [rank_file(tmp_path / name, rank=rank, world_size=2) for name, rank in named]
    assert planned(*files) == [("y", [("y.json", 0), ("x.json", 1)])]


def test_a_folder_is_one_run_named_after_it(tmp_path: Path) -> None:
    for rank in range(3):
        rank_file(tmp_path / "job" / f"r{rank}.json", rank=rank, world_size=3)
    (tmp_path / "job" / "notes.txt").write_text("not a trace")
    assert planned(tmp_path / "job") == [("job", [("r0.json", 0), ("r1.json", 1), ("r2.json", 2)])]


def test_a_rank_that_comes_again_starts_another_run(tmp_path: Path) -> None:
    for cycle in "ab":
        for rank in range(2):
            rank_file(tmp_path / "job" / f"{cycle}{rank}.json", rank=rank, world_size=2)
    assert planned(tmp_path / "job") == [
        ("job", [("a0.json", 0), ("a1.json", 1)]),
        ("job", [("b0.json", 0), ("b1.json", 1)]),
    ]


def test_ranks_are_told_by_name_where_traces_do_not_say(tmp_path: Path) -> None:
    for worker in (3, 10):
        rank_file(tmp_path / "log" / f"worker{worker}.pt.trace.json")
    assert planned(tmp_path / "log") == [
        ("log", [("worker3.pt.trace.json", 3), ("worker10.pt.trace.json", 10)])
    ]


def test_ranks_are_counted_where_nothing_says(tmp_path: Path) -> None:
    for name in ("left", "right"):
        rank_file(tmp_path / "log" / f"{name}.json")
    (job,) = plan([tmp_path / "log"])
    assert [(source.rank, source.assumed) for source in job.sources] == [(0, True), (1, True)]


def test_a_folder_without_traces_is_refused(tmp_path: Path) -> None:
    (tmp_path / "notes.json").write_text('{"a": 1}')
    with pytest.raises(UnusableInputError, match="holds no Kineto trace"):
        plan([tmp_path])
