"""`tracekit collect --level libtorch`, for real: the C++ program, Kineto, and a run in the store."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from typing import TYPE_CHECKING, Any

import psutil
import pytest
from tracekit.collectors.libtorch.prepare import ensure_built

from tests.cpp import cache, needs_toolchain
from tests.environment import HANG_SECONDS
from tests.traces import table
from tests.unit.workloads.building import BUILT_INS, built
from tracekit.errors import CollectionError, UnusableInputError
from tracekit.recording.collect import collect
from tracekit.recording.collector import Request
from tracekit.recording.store_run import RAW_TRACE
from tracekit.runs.store import Store
from tracekit.schema import C
from tracekit.workloads.base import LIBTORCH

torch = pytest.importorskip("torch")

if TYPE_CHECKING:
    from pathlib import Path

    from tracekit.runs.run import Run

__all__ = ["cache"]
SMALL = {"workload": "mnist_cnn", "batch_size": 4, "steps": 2, "warmup": 2, "threads": 1, "device": "cpu"}
LISTED = [
    pytest.param(name, mode, id=f"{name}-{mode}")
    for name, workload in BUILT_INS.items()
    if LIBTORCH in workload.levels
    for mode in workload.modes
]
MAIN = "from tracekit.cli.main import main; main()"
TOLERANCE = 1e-4


@pytest.fixture
def cached(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(cache))


@pytest.fixture(scope="module")
def collected(cache: Path, tmp_path_factory: pytest.TempPathFactory) -> Run:
    """One run that several tests look at from different sides."""
    place = Store(tmp_path_factory.mktemp("collected") / "store")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_CACHE_HOME", str(cache))
        # a batch of 64, so that the steps last for several samples
        return collect(
            place, Request(**{**SMALL, "batch_size": 64}, level=LIBTORCH, stacks=True, keep_trace=True)
        )


class Exported:
    """A small workload that is exported to a folder, for the C++ program alone."""

    def __init__(self, name: str, mode: str, folder: Path, **options: Any) -> None:
        from tracekit.collectors.libtorch.export import export

        self.folder, self.program = folder, built(BUILT_INS[name], mode=mode, level=LIBTORCH, **options)
        request = Request(workload=name, mode=mode, steps=1, warmup=0, threads=1, **options)
        self.job = export(self.program, request, device="cpu", folder=folder)

    def run(self, cache: Path) -> subprocess.CompletedProcess[str]:
        folder = cache / "tracekit" / "libtorch"
        cpp = ensure_built(on_build=lambda: None, folder=folder)
        command = [cpp, self.job, self.folder / "trace", self.folder / "output"]
        return subprocess.run(command, capture_output=True, text=True, check=False)


@pytest.mark.slow
@pytest.mark.parametrize(("name", "mode"), LISTED)
def test_it_computes_what_eager_computes(name: str, mode: str, cache: Path, tmp_path: Path) -> None:
    exported = Exported(name, mode, tmp_path)
    done = exported.run(cache)
    assert done.returncode == 0, done.stderr
    steps = [exported.program.step() for _ in range(3)]  # timed, for the profiler to warm up, profiled
    found = torch.load(tmp_path / "output")
    torch.testing.assert_close(found, steps[-1], rtol=TOLERANCE, atol=TOLERANCE)
    if mode == "train":
        learned = abs(float(steps[-1] - steps[0]) / float(steps[0]))
        assert learned > 3 * TOLERANCE, "a program that does not learn would agree as well"
    for path in tmp_path.iterdir():
        path.unlink()  # an exported model has up to 0.6 GB


@pytest.mark.slow
def test_a_run_knows_what_ran_and_how(collected: Run) -> None:
    meta = collected.meta
    assert meta.workload is not None
    assert [meta.workload[name] for name in ("level", "threads", "device")] == ["libtorch", 1, "cpu"]
    assert meta.fingerprint["level"] == "libtorch"
    assert meta.timings is not None
    assert (len(meta.timings.step_ns), len(meta.timings.warmup_ns)) == (2, 3)
    assert min(meta.timings.step_ns) > 0
    assert meta.timings.clock == "perf_counter"
    assert meta.environment["torch"] == torch.__version__ == meta.collector.version
    assert "libtorch" in meta.command
    assert (collected.path / RAW_TRACE).is_file()


@pytest.mark.slow
def test_its_tables_hold_the_profile(collected: Run) -> None:
    assert table(collected, "steps")[C.NAME].tolist() == ["ProfilerStep#1", "ProfilerStep#2"]
    host = table(collected, "host_intervals")
    inside = host[host[C.STEP].notna()]
    assert set(inside[C.PHASE].dropna()) >= {"forward", "backward", "optimizer", "zero_grad", "dataload"}
    convolutions = host[host[C.NAME] == "aten::_convolution"]
    assert json.loads(convolutions[C.INPUT_SHAPES].iloc[0])[0] == [64, 1, 28, 28]
    assert collected.rows("allocations") > 0
    assert [one.code for one in collected.meta.diagnostics] == ["stacks_ignored"]


@pytest.mark.slow
def test_memory_is_that_of_the_c_program_and_sampled(collected: Run) -> None:
    rows = table(collected, "counters")
    (peak,) = rows[rows[C.METRIC] == "host_peak_bytes"].to_dict("records")
    assert peak[C.SOURCE] == "process"
    assert 20e6 < peak[C.VALUE] < 8e9
    resident = rows[rows[C.METRIC] == "rss_bytes"]
    assert len(resident)
    assert resident[C.VALUE].between(20e6, 8e9).all()


@pytest.mark.slow
@pytest.mark.parametrize(("zero_grad", "fills"), [("zero", 8), ("foreach", 8), ("default", 0)])
def test_gradients_are_zeroed_as_asked(zero_grad: str, fills: int, cache: Path, tmp_path: Path) -> None:
    exported = Exported("mnist_cnn", "train", tmp_path, zero_grad=zero_grad)
    assert exported.run(cache).returncode == 0
    names = [event.get("name") for event in json.loads((tmp_path / "trace").read_text())["traceEvents"]]
    assert names.count("Optimizer.zero_grad#SGD.zero_grad") == 1
    assert names.count("aten::zero_") == fills + 2, "two belong to the backward pass"
    assert names.count("aten::_foreach_zero_") == (zero_grad == "foreach")


@pytest.mark.slow
def test_without_a_compiler_it_says_what_to_install(tmp_path: Path) -> None:
    home, store = tmp_path / "home", tmp_path / "store"
    words = ["collect", "--workload", "mnist_cnn", "--level", LIBTORCH, "--store", str(store)]
    environment = {**os.environ, "PATH": str(tmp_path), "XDG_CACHE_HOME": str(home)}
    environment.pop("CXX", None)
    done = subprocess.run(
        [sys.executable, "-c", MAIN, *words], capture_output=True, text=True, env=environment
    )
    assert done.returncode == 5
    assert "no CMake and no C++ compiler" in done.stderr
    assert "apt-get install" in done.stderr
    assert "Traceback" not in done.stderr
    assert not home.exists()


@pytest.mark.slow
def test_any_seed_reaches_the_program(cache: Path, tmp_path: Path) -> None:
    exported = Exported("mnist_cnn", "infer", tmp_path, seed=(1 << 64) - 1)
    assert exported.run(cache).returncode == 0
    steps = [exported.program.step() for _ in range(3)]
    torch.testing.assert_close(torch.load(tmp_path / "output"), steps[-1], rtol=TOLERANCE, atol=TOLERANCE)


@pytest.mark.slow
def test_memory_that_runs_out_is_one_line(cache: Path, tmp_path: Path) -> None:
    exported = Exported("mnist_cnn", "infer", tmp_path)
    content = torch.load(exported.job)
    content["inputs"] = [torch.zeros(1).expand(1 << 20, 1 << 20, 28, 28)]
    torch.save(content, exported.job)
    done = exported.run(cache)
    assert done.returncode == 5
    last = json.loads(done.stdout.splitlines()[-1])
    assert (last["event"], last["kind"]) == ("error", "CollectionError")
    assert "out of memory" in last["message"]
    assert "--batch-size" in last["hint"]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"workload": "sac"}, r"no level 'libtorch'.*--level eager"),
        ({"offload": "parameters"}, r"does not support --offload for mnist_cnn.*--offload none"),
    ],
)
def test_what_the_program_cannot_do_is_refused(options: dict[str, str], message: str, store: Store) -> None:
    with pytest.raises(UnusableInputError, match=message):
        collect(store, Request(**{**SMALL, "level": LIBTORCH, **options}))


def test_nsys_does_not_watch_it(store: Store) -> None:
    with pytest.raises(UnusableInputError, match="use --collector torch"):
        collect(store, Request(**SMALL, level=LIBTORCH, collector="nsys"))


@pytest.mark.slow
@pytest.mark.usefixtures("cached")
def test_a_killed_program_is_an_error_and_leaves_nothing(store: Store) -> None:
    def kill(part: str, done: int, _total: int) -> None:
        if part == "measure" and done == 1:
            for child in psutil.Process().children(recursive=True):
                if child.name() == "tracekit_libtorch":
                    child.kill()

    with pytest.raises(CollectionError, match=r"killed by SIGKILL"):
        collect(store, Request(**{**SMALL, "steps": 1_000_000}, level=LIBTORCH), progress=kill)
    assert [path.name for path in store.path.iterdir() if path.name != ".gitignore"] == []


@pytest.mark.slow
@pytest.mark.usefixtures("cached")
def test_an_interrupt_ends_the_program_and_leaves_nothing(store: Store) -> None:
    words = ["--workload", "mnist_cnn", "--device", "cpu", "--threads", "1", "--steps", "1000000"]
    collecting = subprocess.Popen(
        [sys.executable, "-c", MAIN, "collect", *words, "--level", LIBTORCH, "--store", str(store.path)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert collecting.stderr
    while not (line := collecting.stderr.readline()).startswith("measure"):
        assert line, "it ended before it measured"
    children = psutil.Process(collecting.pid).children(recursive=True)
    assert "tracekit_libtorch" in {child.name() for child in children}
    collecting.send_signal(signal.SIGINT)
    out, err = collecting.communicate(timeout=HANG_SECONDS)
    assert collecting.returncode == 130
    assert out == ""
    assert "Traceback" not in err
    assert psutil.wait_procs(children, timeout=HANG_SECONDS)[1] == []
    assert [path.name for path in store.path.iterdir() if path.name != ".gitignore"] == []


@pytest.mark.slow
def test_an_interrupt_while_it_is_compiled_leaves_nothing(store: Store, tmp_path: Path) -> None:
    needs_toolchain()
    gate, compiler, home = tmp_path / "gate", tmp_path / "c++", tmp_path / "home"
    os.mkfifo(gate)
    compiler.write_text(f"#!/bin/sh\ncat '{gate}'\nexit 1\n")
    compiler.chmod(0o755)
    words = ["--workload", "mnist_cnn", "--level", LIBTORCH, "--store", str(store.path)]
    collecting = subprocess.Popen(
        [sys.executable, "-c", MAIN, "collect", *words],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "CXX": str(compiler), "XDG_CACHE_HOME": str(home)},
    )
    with gate.open("w"):  # the compiler runs
        children = psutil.Process(collecting.pid).children(recursive=True)
        assert "cmake" in {child.name() for child in children}
        collecting.send_signal(signal.SIGINT)
        _, err = collecting.communicate(timeout=HANG_SECONDS)
    assert collecting.returncode == 130
    assert "build: compiling the C++ program, once" in err
    assert psutil.wait_procs(children, timeout=HANG_SECONDS)[1] == []
    assert [path for path in home.rglob("*") if path.is_dir() and path.parent.name == "libtorch"] == []
