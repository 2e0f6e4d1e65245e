"""Running and measuring commands that succeed, fail, or exceed a limit."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

from benchmarks.runner import Contender, Cost, Failure, Limits, interleaved, measure

if TYPE_CHECKING:
    from pathlib import Path


def python(program: str) -> list[str]:
    return [sys.executable, "-c", program]


def test_numbers_of_the_last_line_are_reported() -> None:
    done = measure(python("import json; print('hello'); print(json.dumps({'a_s': 1.5, 'b': 2, 'c': 'no'}))"))
    assert isinstance(done, Cost)
    assert done.reported == {"a_s": 1.5, "b": 2}


def test_a_command_without_a_report_is_measured() -> None:
    done = measure(python("print('nothing')"))
    assert isinstance(done, Cost)
    assert done.reported == {}
    assert done.wall_s > 0


def test_cpu_time_includes_children() -> None:
    child = "import time\nwhile time.process_time() < 0.5: pass"
    done = measure(python(f"import subprocess, sys; subprocess.run([sys.executable, '-c', {child!r}])"))
    assert isinstance(done, Cost)
    assert done.cpu_s >= 0.5


def test_memory_is_the_peak_of_the_process() -> None:
    done = measure(python("import time; b'x' * 300_000_000; time.sleep(0.5)"))
    assert isinstance(done, Cost)
    assert 300 < done.peak_mb < 600


def test_a_failure_has_the_last_line_as_reason() -> None:
    done = measure(python("raise ValueError('it broke')"))
    assert done == Failure(reason="ValueError: it broke (exit code 1)")


def test_time_is_limited() -> None:
    done = measure(python("import time; time.sleep(600)"), limits=Limits(wall_s=0.2))
    assert done == Failure(reason="over the time limit of 0.2 s")


def test_the_memory_limit_covers_all_processes() -> None:
    program = "x = b'x' * 200_000_000; import subprocess, sys, time\n"
    child = f"{program}time.sleep(600)"
    parent = f"{program}subprocess.run([sys.executable, '-c', {child!r}])"
    done = measure(python(parent), limits=Limits(wall_s=120, memory_mb=300))
    assert isinstance(done, Failure)
    assert done.reason.startswith("over the memory limit of 0.3 GB")


def test_contenders_alternate_and_failed_ones_are_not_run_again(tmp_path: Path) -> None:
    log = tmp_path / "log"

    def contender(name: str, program: str = "") -> Contender:
        write = f"open({str(log)!r}, 'a').write({name!r})\n{program}"
        return Contender(name=name, does="", command=lambda _: python(write))

    rows = interleaved(
        [contender("a"), contender("b", "raise SystemExit('no')"), contender("c")],
        rounds=2,
        scratch=tmp_path / "scratch",
    )
    assert log.read_text() == "abcac"
    assert [len(row.costs) for row in rows] == [2, 0, 2]
    assert [row.failed for row in rows] == ["", "no (exit code 1)", ""]


def test_missing_contenders_are_not_run(tmp_path: Path) -> None:
    gone = Contender(name="gone", does="", command=lambda _: python("1 / 0"), missing="not installed")
    (row,) = interleaved([gone], rounds=3, scratch=tmp_path / "scratch")
    assert (row.costs, row.failed) == ((), "not installed")


def test_each_run_has_an_empty_prepared_folder(tmp_path: Path) -> None:
    def prepare(scratch: Path) -> None:
        assert not list(scratch.iterdir())
        (scratch / "input").write_text("7")

    reads = Contender(
        name="reads",
        does="",
        prepare=prepare,
        command=lambda scratch: python(f"print(open({str(scratch / 'input')!r}).read() and '{{\"x\": 7}}')"),
    )
    (row,) = interleaved([reads], rounds=2, scratch=tmp_path / "scratch")
    assert [cost.reported for cost in row.costs] == [{"x": 7}] * 2
    assert not (tmp_path / "scratch").exists()
