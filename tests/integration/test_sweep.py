"""`tracekit sweep`, for real: killed in the middle, out of memory, and asked again."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow.parquet as pq
import pytest

from tracekit.cli.main import run as tracekit
from tracekit.experiments.sweep_folder import find

pytest.importorskip("torch")

if TYPE_CHECKING:
    from tracekit.runs.store import Store

MAIN = "from tracekit.cli.main import main; main()"
PLAYED = Path(__file__).with_name("workload_played.py")
PLAYING = f"""
import sys
from tracekit.cli.main import main
from tracekit.collectors import workload_process
workload_process.COMMAND = (sys.executable, {str(PLAYED)!r}, "ends well")
main()
"""
LIMITED = "import resource; resource.setrlimit(resource.RLIMIT_AS, ({0}, {0})); " + MAIN
ADDRESSES = 12 << 30
TIMEOUT_S = 240
SWEEP = ["sweep", "--workload", "lennard_jones", "--steps", "1", "--warmup", "0", "--threads", "1"]


def started(store: Store, *words: str, program: str = MAIN) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-c", program, *SWEEP, "--device", "cpu", "--store", str(store.path), *words],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )


def kept(store: Store) -> dict[Path, float]:
    return {file: file.stat().st_mtime for file in store.path.glob(".sweeps/*/cells/*.json")}


def wait_for_a_cell(store: Store, child: subprocess.Popen[str]) -> None:
    """Wait until the first measurement is on disk; the sweep is then at the second."""
    until = time.monotonic() + TIMEOUT_S
    while not kept(store):
        assert child.poll() is None, child.communicate()[1]
        assert time.monotonic() < until
        time.sleep(0.05)


def rows(store: Store, capsys: pytest.CaptureFixture[str]) -> list[dict[str, Any]]:
    capsys.readouterr()
    assert tracekit(["sweep", "--show", "latest", "--format", "json", "--store", str(store.path)]) == 0
    found: list[dict[str, Any]] = json.loads(capsys.readouterr().out)["rows"]
    return found


@pytest.fixture(
    params=[
        (signal.SIGKILL, [8, 16], PLAYING),
        pytest.param((signal.SIGKILL, [8, 16], MAIN), marks=pytest.mark.slow),
        pytest.param((signal.SIGINT, [8, 16, 32], MAIN), marks=pytest.mark.slow),
    ]
)
def ended(request: pytest.FixtureRequest, store: Store) -> tuple[list[int], str]:
    """Batch sizes and program of a sweep that was ended in its second measurement."""
    number, sizes, program = request.param
    words = ["--batch-size", ",".join(map(str, sizes))]
    first = started(store, *words, program=program)
    wait_for_a_cell(store, first)
    os.killpg(first.pid, number)
    first.communicate()
    assert first.returncode == (-signal.SIGKILL if number is signal.SIGKILL else 130)
    return sizes, program


def test_a_sweep_that_is_ended_in_the_middle_goes_on(
    ended: tuple[list[int], str], store: Store, capsys: pytest.CaptureFixture[str]
) -> None:
    sizes, program = ended
    words = ["--batch-size", ",".join(map(str, sizes))]
    before = kept(store)
    assert 1 <= len(before) < len(sizes)
    found = find(store, "latest")
    pending = [row["outcome"] for row in rows(store, capsys)].count("pending")
    assert pending == len(sizes) - len(before)

    second = started(store, *words, program=program)
    _, reported = second.communicate(timeout=TIMEOUT_S)
    assert second.returncode == 0
    assert "resuming lennard_jones-" in reported
    done = rows(store, capsys)
    assert [(row["batch_size"], row["outcome"]) for row in done] == [(size, "ok") for size in sizes]
    after = kept(store)
    assert {file: after[file] for file in before} == before
    assert sorted(row["run_id"] for row in done) == sorted(run.id for run in store.runs())
    table = pq.read_table(found.table).to_pylist()
    assert [row["step_ns"] for row in table] == [row["step_ns"] for row in done]
    assert not list(store.path.glob(".tmp-*"))


@pytest.mark.slow
def test_what_does_not_fit_is_a_row_and_larger_sizes_are_skipped(
    store: Store, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["--workload", "mnist_cnn", "--mode", "infer", "--batch-size", "2,400000,800000"]
    child = started(store, *words, program=LIMITED.format(ADDRESSES))
    _, reported = child.communicate(timeout=TIMEOUT_S)
    assert child.returncode == 0, reported
    done = rows(store, capsys)
    assert [row["outcome"] for row in done] == ["ok", "out of memory", "skipped"]
    assert "ran out of memory" in done[1]["reason"]
    assert done[2]["reason"] == "batch size 400000 at resolution 28 ran out of memory"
    assert len(store.runs()) == 1


def test_a_sweep_of_what_cannot_be_measures_nothing(store: Store, capsys: pytest.CaptureFixture[str]) -> None:
    words = ["sweep", "--workload", "mnist_cnn", "--resolution", "2,3", "--store", str(store.path)]
    assert tracekit(words) == 5
    assert "6 or more" in capsys.readouterr().out
