"""What the stand-in for nsys has in common with the real one; the collector's tests rely on it."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.environment import HANG_SECONDS
from tests.nsys import install, recorded
from tests.nsys_help import CURRENT

if TYPE_CHECKING:
    from collections.abc import Callable

    Run = Callable[..., subprocess.CompletedProcess[str]]

RUNTIME = Path(__file__).parents[2] / "nsys_runtime.py"
PROGRAM = f"""
import runpy, subprocess, sys, time
report = runpy.run_path({str(RUNTIME)!r})["report"]
for line in ("range before", "start", "range inside", "stop", "range after", "start", "range again", "stop"):
    report(line)
"""
SLOWLY = "time.sleep(60)"
CHILD = "subprocess.Popen([sys.executable, '-c', 'import time; time.sleep(1); print(\"child\")'])"
BY_RANGE = "--capture-range=cudaProfilerApi"
QUIET = ("--sample=none", "--cpuctxsw=none")


@pytest.fixture
def run(tmp_path: Path) -> Run:
    """Runs `nsys profile` with options and a Python program."""

    def profiled(
        *options: str, code: str = PROGRAM, version: str = CURRENT
    ) -> subprocess.CompletedProcess[str]:
        nsys = install(tmp_path / "bin", version=version)
        command = [nsys, "profile", *options, f"--output={tmp_path / 'run'}", sys.executable, "-c", code]
        return subprocess.run(
            command, capture_output=True, text=True, timeout=HANG_SECONDS, stdin=subprocess.DEVNULL
        )

    return profiled


def ranges(report: Path) -> list[str]:
    export = report.with_suffix(".sqlite")
    words = ["--type=sqlite", f"--output={export}", report]
    subprocess.run([report.parent / "bin" / "nsys", "export", *words], check=True)
    return recorded(export).get("NVTX_EVENTS", [])


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ((), ["before", "inside", "after", "again"]),
        ((BY_RANGE, "--capture-range-end=stop"), ["inside"]),
        ((BY_RANGE, "--capture-range-end=none"), ["inside", "after", "again"]),
    ],
)
def test_only_the_capture_range_is_recorded(
    options: tuple[str, ...], expected: list[str], run: Run, tmp_path: Path
) -> None:
    done = run(*QUIET, *options)
    assert ("Capture range started in the application." in done.stdout) == bool(options)
    assert ranges(tmp_path / "run.nsys-rep") == expected


def test_the_end_of_a_range_ends_the_program_by_default(run: Run, tmp_path: Path) -> None:
    assert run(BY_RANGE, code=PROGRAM + SLOWLY).returncode == 128 + 15
    assert ranges(tmp_path / "run.nsys-rep") == ["inside"]


@pytest.mark.parametrize(("option", "killed"), [("--stop-on-range-end=true", True), ("--kill=none", False)])
def test_old_versions_end_at_the_end_of_a_range_if_asked_to(option: str, killed: bool, run: Run) -> None:
    done = run(BY_RANGE, option, version="2021.2.1.58", code=PROGRAM + (SLOWLY if killed else ""))
    assert done.returncode == (143 if killed else 0)


def test_a_range_that_never_begins_leaves_no_report(run: Run, tmp_path: Path) -> None:
    done = run(BY_RANGE, code="raise SystemExit(3)")
    assert done.returncode == 3
    assert done.stdout.endswith("Generated:\n\tNo reports were generated\n")
    assert not (tmp_path / "run.nsys-rep").exists()


def test_a_report_is_overwritten_only_if_asked_to(run: Run, tmp_path: Path) -> None:
    report = tmp_path / "run.nsys-rep"
    report.write_text("earlier")
    done = run()
    assert f"Failed to create '{report}': File exists.\nUse `--force-overwrite true`" in done.stderr
    assert report.read_text() == "earlier"
    run("--force-overwrite=true")
    assert ranges(report)[0] == "before"


def test_processes_that_the_program_leaves_are_waited_for_by_default(run: Run) -> None:
    done = run(*QUIET, code=PROGRAM + CHILD)
    assert "Waiting for termination of re-parented processes." in done.stdout
    assert "child" in done.stdout
    done = run(*QUIET, "--wait=primary", code=PROGRAM + CHILD)
    assert "re-parented" not in done.stdout


def test_without_permission_samples_are_left_out(run: Run) -> None:
    assert "WARNING: CPU IP/backtrace sampling not supported, disabling." in run().stdout
    assert "not supported" not in run(*QUIET).stdout


@pytest.mark.parametrize(
    ("version", "options", "message"),
    [
        ("2022.1.1.61", ["--cuda-graph-trace=node"], "unrecognised option '--cuda-graph-trace=node'"),
        (CURRENT, ["--gpu-metrics-device=all"], "unrecognised option '--gpu-metrics-device=all'"),
        (
            CURRENT,
            ["--trace=cuda,dx12"],
            "Illegal --trace argument 'cuda,dx12'\nPossible --trace values are one or more of 'cuda",
        ),
        (CURRENT, ["--stats=true", "--stats=true"], "option '--stats' cannot be specified more than once"),
        ("2022.4.2.1", ["--output=x", "--"], "option is ambiguous and matches 'capture-range-end'"),
    ],
)
def test_what_a_version_refuses(version: str, options: list[str], message: str, tmp_path: Path) -> None:
    words = [install(tmp_path, version=version), "profile", *options, "true"]
    done = subprocess.run(words, capture_output=True, text=True, timeout=HANG_SECONDS)
    assert done.returncode == 1
    assert done.stderr.startswith(message)
