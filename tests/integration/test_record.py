"""`tracekit.record` around real torch code."""

from __future__ import annotations

import json
import os
import pty
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

import tracekit
from tracekit.errors import CollectionError, MissingDependencyError, UnusableInputError
from tracekit.recording import api
from tracekit.render.facts import describe_timed_steps
from tracekit.runs.meta import Timings
from tracekit.schema import C

if TYPE_CHECKING:
    from tracekit.recording.api import Record
    from tracekit.runs.run import Run
    from tracekit.runs.store import Store

pytestmark = pytest.mark.usefixtures("outside_repositories")

torch = pytest.importorskip("torch")


def work() -> None:
    torch.ones(8, 8) @ torch.ones(8, 8)


def left_over(store: Store) -> list[str]:
    return sorted(path.name for path in store.path.iterdir() if path.name != ".gitignore")


def matmuls(run: Run | None) -> int:
    assert run is not None
    names = run.arrow("host_intervals", columns=[C.NAME])[C.NAME].to_pylist()
    return [str(name) for name in names].count("aten::mm")


def test_a_window_of_marked_steps_is_recorded_and_those_before_it_are_timed(store: Store) -> None:
    with tracekit.record("mine", start_step=3, steps=2, store=str(store.path)) as rec:
        for _ in range(8):
            work()
            tracekit.step()
    assert rec.run is not None
    assert rec.run.arrow("steps")[C.NAME].to_pylist() == ["ProfilerStep#3", "ProfilerStep#4"]
    assert matmuls(rec.run) == 2
    timings = rec.run.meta.timings
    assert timings is not None
    assert len(timings.step_ns) - timings.later == 3  # later steps are timed if the machine is slow
    assert rec.run.meta.label == "mine"
    assert left_over(store) == [rec.run.id]


SHOWN = """
import sys
import torch
import tracekit

with tracekit.record(start_step=1, steps=2, store=sys.argv[1]) as recording:
    for _ in range(4):
        torch.ones(8, 8) @ torch.ones(8, 8)
        tracekit.step()
print(recording.run.id)
"""


def test_a_terminal_shows_progress_and_no_noise(store: Store) -> None:
    terminal, inside = pty.openpty()
    command = [sys.executable, "-c", SHOWN, str(store.path)]
    done = subprocess.run(command, stdout=subprocess.PIPE, stderr=inside, text=True, check=True)
    shown = os.read(terminal, 10_000).decode()
    os.close(inside)
    os.close(terminal)
    assert shown.splitlines() == [
        "tracekit: profiling 2 steps after 1 step",
        "tracekit: profiled 2 steps",
        "tracekit: importing the profile",
        f"tracekit: stored {done.stdout.strip()}",
    ]


def test_steps_after_the_window_are_timed_once_the_profiler_has_ended(store: Store) -> None:
    with tracekit.record(start_step=3, steps=2, store=str(store.path)) as rec:
        while rec._state == "recording" and len(rec._recorder._later) < 5:
            work()
            tracekit.step()
    assert rec.run is not None
    timings = rec.run.meta.timings
    assert timings is not None
    assert (len(timings.step_ns), timings.later) == (7, 4)
    assert timings.left_out >= 1
    assert all(duration > 0 for duration in timings.step_ns)
    assert matmuls(rec.run) == 2
    assert describe_timed_steps(timings).startswith("7 steps: 3 before and 4 after the profiled ones; the ")
    assert describe_timed_steps(Timings([5, 6, 7], [], "perf_counter", later=1, left_out=2)) == (
        "3 steps: 2 before and 1 after the profiled ones; the 2 right after them are left out"
    )


def test_a_block_without_a_mark_is_one_step(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "argv", [""])  # as in an interactive session
    with tracekit.record(store=str(store.path), keep_trace=True) as rec:
        work()
        work()
    assert rec.run is not None
    assert rec.run.rows("steps") == 1
    assert (rec.run.meta.workload or {})["name"].startswith("test_record::test_a_block")
    assert rec.run.meta.command == []
    assert matmuls(rec.run) == 2
    assert (rec.run.path / "trace.json.gz").is_file()


def test_light_records_neither_shapes_nor_memory_and_labels_are_one_program(store: Store) -> None:
    runs = []
    for label in ("a", "b"):
        with tracekit.record(label, light=True, store=str(store.path)) as rec:
            work()
        runs.append(rec.run)
    first, second = filter(None, runs)
    assert not first.meta.fingerprint["profiler_record_shapes"]
    assert not first.meta.fingerprint["profiler_profile_memory"]
    assert first.meta.fingerprint == second.meta.fingerprint
    assert set(first.arrow("host_intervals")[C.INPUT_SHAPES].to_pylist()) == {None}


def test_what_follows_the_last_mark_is_no_step(store: Store) -> None:
    with tracekit.record(store=str(store.path)) as rec:
        work()
        rec.step()
        work()
    assert rec.run is not None
    assert rec.run.arrow("steps")[C.NAME].to_pylist() == ["ProfilerStep#0"]
    assert matmuls(rec.run) == 2


def fail_in(rec: Record, *, after: int) -> None:
    with rec:
        for number in range(3):
            work()
            1 // (after - number)
            rec.step()


def test_an_error_inside_passes_and_keeps_the_whole_steps(store: Store) -> None:
    rec = tracekit.record(store=str(store.path))
    with pytest.raises(ZeroDivisionError):
        fail_in(rec, after=1)
    assert rec.run is not None
    assert rec.run.rows("steps") == 1


def test_an_error_before_the_first_mark_keeps_nothing(store: Store) -> None:
    rec = tracekit.record(store=str(store.path))
    with pytest.raises(ZeroDivisionError):
        fail_in(rec, after=0)
    assert rec.run is None
    assert left_over(store) == []


def test_a_recording_that_cannot_be_stored_does_not_hide_the_error_of_the_program(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: object) -> None:
        raise OSError("disk full")

    monkeypatch.setattr(api.Record, "_make_recording", full)
    rec = tracekit.record(store=str(store.path))
    with pytest.raises(ZeroDivisionError) as raised:
        fail_in(rec, after=2)
    assert raised.value.__notes__ == ["tracekit: what was recorded is lost: disk full"]
    with pytest.raises(OSError, match="disk full"), tracekit.record(store=str(store.path)) as rec:
        rec.step()
    assert (repr(rec), left_over(store)) == ("<Record: ended without a run>", [])


def test_without_torch_the_error_says_how_to_install_it(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "torch", None)
    with pytest.raises(MissingDependencyError, match="torch is not installed"):
        tracekit.record(store=str(store.path)).__enter__()


def test_a_second_recording_inside_is_refused_and_the_first_goes_on(store: Store) -> None:
    with tracekit.record(store=str(store.path)) as rec:
        with pytest.raises(UnusableInputError, match="already running"), tracekit.record():
            pass
        work()
    assert matmuls(rec.run) == 1


def test_beside_a_profiler_of_the_program_it_is_refused(store: Store) -> None:
    with torch.profiler.profile(), pytest.raises(UnusableInputError, match="profiler is already running"):
        tracekit.record(store=str(store.path)).__enter__()
    assert not store.path.exists()


def test_a_block_that_ends_too_early_says_so(store: Store) -> None:
    with (
        pytest.raises(
            CollectionError, match=r"ended after 1 step; recording would have started after step 3"
        ),
        tracekit.record(start_step=3, store=str(store.path)) as rec,
    ):
        rec.step()
    assert left_over(store) == []


def test_a_window_that_cannot_be_is_refused() -> None:
    with pytest.raises(UnusableInputError, match="steps=0 is too low"):
        tracekit.record(steps=0)


def test_marking_a_step_where_nothing_records_does_nothing_and_costs_no_torch() -> None:
    code = "import sys, tracekit, json; tracekit.step(); print(json.dumps(sorted(sys.modules)))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert {"torch", "numpy", "pyarrow"} & set(json.loads(done.stdout)) == set()
