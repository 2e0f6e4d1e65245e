"""What is reported of the processes of a program: warnings of recordings, and why nothing was recorded."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest
from tracekit.collectors.program import diagnostics, failure, make_recording, read_jobs
from tracekit.collectors.sampling import SampleBuffer

from tracekit.errors import ProgramFailedError
from tracekit.recording.collector import Program, Recording

if TYPE_CHECKING:
    from pathlib import Path

PROGRAM = Program(command=("python", "train.py"))
FACTS: dict[str, Any] = {
    "rank": 0,
    "device": "cpu",
    "threads": 2,
    "version": "2.13",
    "environment": {},
    "options": {},
    "world_size": 1,
    "source": "optimizer",
    "requested_steps": 5,
    "recorded_steps": 5,
    "step_ns": [5, 6],
    "clock": "cuda_event",
    "peaks": [["torch", 0, "device_peak_allocated_bytes", 4.0]],
    "program": {},
    "host_samples": {"samples": [], "stacks": []},
    "began_unix_ns": 7,
    "notes": [],
    "job": "j",
    "window": 1,
}
UNREAD = ("steps_not_timed", "1 of 3 steps before profiling could not be timed: CUDA error: x")


def write(folder: Path, name: str, **given: Any) -> None:
    (folder / f"{name}.facts").write_text(json.dumps({**FACTS, **given}))


def recorded(folder: Path) -> Recording:
    return make_recording(PROGRAM, folder, read_jobs(folder)[0], code=0, sampled=SampleBuffer())


def codes(folder: Path, code: int = 0) -> list[str]:
    return [one.code for one in diagnostics(folder, read_jobs(folder)[0], code)]


def test_warnings_of_all_ranks_keep_their_codes(tmp_path: Path) -> None:
    write(tmp_path, "rank-0", notes=[UNREAD])
    write(tmp_path, "rank-1", notes=[UNREAD, ("captured_steps", "steps were captured")], world_size=3)
    [ranks] = read_jobs(tmp_path)
    assert [rank.number for rank in ranks] == [0, 1]
    assert codes(tmp_path) == ["ranks_missing", "captured_steps", "steps_not_timed"]
    recording = recorded(tmp_path)
    times = recording.timings
    assert times is not None
    assert (times.step_ns, times.clock) == ([5, 6], "cuda_event")
    assert [(one.metric, one.t_unix_ns, one.device) for one in recording.samples] == [
        ("device_peak_allocated_bytes", 7, 0)
    ]


def test_steps_after_the_window_follow_those_before_it(tmp_path: Path) -> None:
    write(tmp_path, "rank-0", later_ns=[7, 8, 9], left_out=2)
    times = recorded(tmp_path).timings
    assert times is not None
    assert (times.step_ns, times.later, times.left_out) == ([5, 6, 7, 8, 9], 3, 2)


def test_steps_that_could_not_be_timed_leave_no_timings(tmp_path: Path) -> None:
    write(tmp_path, "rank-0", step_ns=[], notes=[UNREAD])
    assert recorded(tmp_path).timings is None


@pytest.mark.parametrize(
    ("name", "given", "code", "expected"),
    [
        ("rank-0", {"recorded_steps": 3}, 0, ["window_cut_short"]),
        ("rank-0.first", {}, 0, ["first_call_only"]),
        ("rank-0", {"source": "call"}, 3, ["program_failed", "steps_are_calls"]),
        ("rank-0", {}, 0, []),
    ],
)
def test_incomplete_recordings(
    name: str, given: dict[str, Any], code: int, expected: list[str], tmp_path: Path
) -> None:
    write(tmp_path, name, **given)
    assert codes(tmp_path, code) == expected


def test_a_recorded_window_is_used_instead_of_a_first_call(tmp_path: Path) -> None:
    write(tmp_path, "rank-0.first")
    write(tmp_path, "rank-0")
    assert [[rank.first_call for rank in ranks] for ranks in read_jobs(tmp_path)] == [[False]]


def test_processes_that_are_no_ranks_of_one_job_are_apart_and_others_are_named(tmp_path: Path) -> None:
    write(tmp_path, "rank-1-of-2", rank=1, world_size=2, began_unix_ns=9)
    write(tmp_path, "rank-0-of-2", world_size=2, began_unix_ns=9)
    write(tmp_path, "rank-0.1", began_unix_ns=8)
    write(tmp_path, "rank-0", began_unix_ns=7)
    write(tmp_path, "rank-0.2.first", program={"script": "once"})
    jobs = read_jobs(tmp_path)
    assert [[rank.trace.name for rank in ranks] for ranks in jobs] == [
        ["rank-0.json"],
        ["rank-0.1.json"],
        ["rank-0-of-2.json", "rank-1-of-2.json"],
    ]
    notes = [
        {"script": "short"},
        {"script": "late", "left_out": True},
        {"script": "rank", "world_size": 2},
        {"script": "launcher", "source": "", "steps_done": 0},
    ]
    for number, note in enumerate(notes):
        content = {**NOTE, "world_size": 1, "left_out": False, **note}
        (tmp_path / f"process-{number}.note").write_text(json.dumps(content))
    said = [one.message for one in diagnostics(tmp_path, jobs[0], 0) if one.code == "process_not_recorded"]
    assert said == [
        "another process (late) was not recorded: others were recorded before it",
        "another process (once) was not recorded: it ended before profiling started",
        "another process (short) was not recorded: it ended after 3 steps",
    ]


NOTE: dict[str, Any] = {"source": "optimizer", "steps_done": 3, "error": "", "codes": [], "window": 1}


def test_ranks_of_two_jobs_of_one_size_are_not_mixed(tmp_path: Path) -> None:
    # The second job began while the first ran, and claimed the name of a rank before it.
    of_job = {
        "a": [("rank-0-of-2", 0), ("rank-1-of-2.1", 1)],
        "b": [("rank-0-of-2.1", 0), ("rank-1-of-2", 1)],
    }
    for job, ranks in of_job.items():
        for name, rank in ranks:
            write(tmp_path, name, rank=rank, world_size=2, job=job, began_unix_ns=7 + (job == "b"))
    names = [[rank.trace.name for rank in ranks] for ranks in read_jobs(tmp_path)]
    assert names == [[f"{name}.json" for name, _ in ranks] for ranks in of_job.values()]


def test_a_rank_that_recorded_nothing_is_not_taken_from_the_next_job(tmp_path: Path) -> None:
    write(tmp_path, "rank-0-of-2", world_size=2, began_unix_ns=7)
    write(tmp_path, "rank-0-of-2.1", world_size=2, began_unix_ns=9)
    write(tmp_path, "rank-1-of-2", rank=1, world_size=2, began_unix_ns=9)
    assert [len(ranks) for ranks in read_jobs(tmp_path)] == [1, 2]


def test_an_error_in_a_later_window_is_said(tmp_path: Path) -> None:
    write(tmp_path, "rank-0")
    note = NOTE | {
        "script": "train",
        "world_size": 1,
        "left_out": False,
        "window": 3,
        "error": "OSError: full",
    }
    (tmp_path / "process-1.note").write_text(json.dumps(note))
    (said,) = diagnostics(tmp_path, read_jobs(tmp_path)[0], 0)
    assert said.message == "window 3 and later ones were not recorded: OSError: full"


@pytest.mark.parametrize(
    ("note", "said", "hint"),
    [
        (None, "no Python process that imported torch", "-I, -E and -S"),
        ({}, "ended after 3 steps; recording would have started after step 5", "--start-step 2 or less"),
        ({"steps_done": 1}, "ended after 1 step;", "--start-step 0"),
        ({"source": "none"}, "used no optimizer", "tracekit.step()"),
        (
            {"error": "RuntimeError: CUDA error: x"},
            "nothing was recorded: RuntimeError: CUDA error: x",
            "import",
        ),
        (
            {"error": "steps captured into a CUDA graph were not counted", "codes": ["captured_steps"]},
            "into a CUDA graph were not counted; 3 others ended before profiling started",
            "after each replay of the graph",
        ),
    ],
)
def test_why_nothing_was_recorded(note: Any, said: str, hint: str, tmp_path: Path) -> None:
    if note is not None:
        (tmp_path / "process-1.note").write_text(json.dumps({**NOTE, **note}))
        (tmp_path / "process-2.note").write_text(json.dumps({**NOTE, "source": "", "steps_done": 0}))
    error = failure(PROGRAM, tmp_path, 0)
    assert said in error.message
    assert hint in error.hint


@pytest.mark.parametrize(("code", "said"), [(3, "failed with exit code 3"), (139, "was ended by SIGSEGV")])
def test_a_program_that_failed_before_anything_was_recorded(code: int, said: str, tmp_path: Path) -> None:
    error = failure(PROGRAM, tmp_path, code)
    assert isinstance(error, ProgramFailedError)
    assert said in error.message
    assert error.program_code == code
