"""Real collections, each in a real process."""

from __future__ import annotations

import gzip
import json
import os
import signal
import subprocess
import sys
from typing import TYPE_CHECKING, Any

import psutil
import pytest

from tracekit.collecting import KEPT_TRACE, Request, collect
from tracekit.errors import CollectionError, UnusableInputError
from tracekit.schema import C, Phase

if TYPE_CHECKING:
    from tracekit.run import Run
    from tracekit.store import Store

pytest.importorskip("torch")
ENDLESS = 1_000_000
MAIN = "from tracekit.cli.main import main; main()"


def request(workload: str = "mnist_cnn", **options: Any) -> Request:
    chosen = {"device": "cpu", "batch_size": 4, "steps": 2, "warmup": 1, "threads": 1} | options
    return Request(workload=workload, **chosen)


def names(run: Run) -> list[str]:
    return [str(name) for name in run.arrow("host_intervals", columns=[C.NAME])[C.NAME].to_pylist()]


def left_over(store: Store) -> list[str]:
    return sorted(path.name for path in store.path.iterdir() if path.name != ".gitignore")


def test_resnet50_shows_every_part_of_a_training_step(store: Store) -> None:
    run = collect(store, request("resnet50", resolution=32), label="small", keep_trace=True)
    assert run.meta.label == "small"
    assert run.meta.timings is not None
    assert len(run.meta.timings.step_ns) == 2
    assert run.meta.timings.clock == "perf_counter"
    assert run.rows("steps") == 2
    phases = run.arrow("host_intervals", columns=[C.PHASE])[C.PHASE].to_pylist()
    assert set(Phase) <= set(phases)
    assert run.meta.fingerprint["threads"] == 1
    assert left_over(store) == [run.id]
    with gzip.open(run.path / KEPT_TRACE) as kept:
        content = json.load(kept)
    assert content["traceEvents"]
    assert "host_name" not in content


def test_host_memory_is_that_of_the_unprofiled_steps(store: Store) -> None:
    run = collect(store, request(mode="infer"))
    counters = run.arrow("counters").to_pylist()
    [sample] = [row for row in counters if row[C.METRIC] == "host_peak_bytes"]
    assert (sample[C.SOURCE], sample[C.UNIT]) == ("process", "bytes")
    assert 50e6 < sample[C.VALUE] < 8e9
    assert sample[C.T_NS] < 0, "measured before the profiler started"
    assert not any(name.startswith(("Optimizer", "autograd::engine")) for name in names(run))


@pytest.mark.parametrize(
    ("zero_grad", "fills", "foreach"), [("default", 0, 0), ("zero", 8, 0), ("foreach", 8, 1)]
)
def test_gradients_are_zeroed_as_asked(zero_grad: str, fills: int, foreach: int, store: Store) -> None:
    run = collect(store, request(zero_grad=zero_grad))
    rows = run.arrow("host_intervals", columns=[C.NAME, C.PHASE, C.STEP]).to_pylist()
    inside = [str(row[C.NAME]) for row in rows if row[C.PHASE] == Phase.ZERO_GRAD]
    assert sum(name.startswith("Optimizer.zero_grad#") for name in inside) == 2
    assert inside.count("aten::zero_") == 2 * fills
    assert inside.count("aten::_foreach_zero_") == 2 * foreach


def test_a_gpu_that_is_not_there_is_one_line(store: Store) -> None:
    import torch

    if torch.cuda.is_available():
        pytest.skip("this machine has one")
    with pytest.raises(UnusableInputError, match="no CUDA device"):
        collect(store, request(device="cuda"))
    assert left_over(store) == []


def test_a_killed_program_is_an_error_and_leaves_nothing(store: Store) -> None:
    killed: list[int] = []
    before = psutil.Process().children()  # of other tests

    def kill(part: str, done: int, _total: int) -> None:
        if part == "measure" and done == 1 and not killed:
            [child] = set(psutil.Process().children()) - set(before)
            killed.append(child.pid)
            os.kill(child.pid, signal.SIGKILL)

    with pytest.raises(CollectionError, match=r"killed by SIGKILL.*--batch-size"):
        collect(store, request(steps=ENDLESS), progress=kill)
    assert left_over(store) == []
    assert not psutil.pid_exists(killed[0])


def test_a_program_that_fails_says_why(store: Store) -> None:
    with pytest.raises(CollectionError, match=r"(memory|allocate)"):
        collect(store, request(batch_size=1 << 40))
    assert left_over(store) == []


def test_an_interrupt_ends_the_program_and_leaves_nothing(store: Store) -> None:
    arguments = ["--workload", "mnist_cnn", "--device", "cpu", "--threads", "1", "--steps", str(ENDLESS)]
    collecting = subprocess.Popen(
        [sys.executable, "-c", MAIN, "collect", *arguments, "--store", str(store.path)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert collecting.stderr
    while not (line := collecting.stderr.readline()).startswith("measure"):
        assert line, "it ended before it measured"
    children = psutil.Process(collecting.pid).children(recursive=True)
    assert children
    collecting.send_signal(signal.SIGINT)
    out, err = collecting.communicate(timeout=60)
    assert collecting.returncode == 130
    assert out == ""
    assert "Traceback" not in err
    assert psutil.wait_procs(children, timeout=10)[1] == []
    assert left_over(store) == []


def test_every_repetition_is_a_run_of_its_own(store: Store, capfd: pytest.CaptureFixture[str]) -> None:
    from tracekit.cli.main import run

    sizes = ["--batch-size", "2", "--steps", "1", "--warmup", "0", "--threads", "1", "--device", "cpu"]
    place = ["--store", str(store.path), "--format", "json"]
    assert run(["collect", "--workload", "mnist_cnn", "--repeat", "2", *sizes, *place]) == 0
    out = capfd.readouterr().out
    assert json.loads(out) == {"schema": "tracekit.collect/1", "runs": [one.id for one in store.runs()]}
    assert len(store.runs()) == 2
