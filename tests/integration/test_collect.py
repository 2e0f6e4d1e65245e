"""`tracekit collect`, for real: a child process, torch's profiler, and a run in the store."""

from __future__ import annotations

import gzip
import json
import signal
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import psutil
import pytest
from tracekit.collectors import workload_process

from tests.environment import HANG_SECONDS
from tests.tiers import thinned
from tests.traces import table
from tracekit import analyze
from tracekit.cli.main import run as tracekit
from tracekit.errors import CollectionError, MissingDependencyError, PluginError, UnusableInputError
from tracekit.recording import logs
from tracekit.recording.collect import collect
from tracekit.recording.collector import Request
from tracekit.recording.store_run import RAW_TRACE
from tracekit.runs import compilation
from tracekit.runs.store import Store
from tracekit.schema import C, Phase

pytest.importorskip("torch")

if TYPE_CHECKING:
    from collections.abc import Callable

    from tracekit.runs.run import Run

pytestmark = pytest.mark.usefixtures("outside_repositories")

SMALL: dict[str, Any] = {
    "workload": "mnist_cnn",
    "batch_size": 4,
    "steps": 2,
    "warmup": 1,
    "threads": 1,
    "device": "cpu",
}
WORDS = ("collect", "--workload", "mnist_cnn", "--device", "cpu", "--threads", "1")
SHORT = (*WORDS, "--batch-size", "2", "--steps", "1", "--warmup", "0")
ENDLESS = 1_000_000
MAIN = "from tracekit.cli.main import main; main()"
PLAYED = (sys.executable, str(Path(__file__).with_name("workload_played.py")))
PLAYING = """
import sys
from tracekit.cli.main import main
from tracekit.collectors import workload_process
workload_process.COMMAND = (sys.executable, *sys.argv[1:3])
main(sys.argv[3:])
"""
played_or_real = pytest.mark.parametrize("played", [True, pytest.param(False, marks=pytest.mark.slow)])
"""The process of the workload is played, or runs torch."""


def left_in(store: Store) -> list[str]:
    """What is in a store beside what every store holds."""
    found = store.path.iterdir() if store.path.exists() else ()
    return sorted(path.name for path in found if path.name != ".gitignore")


def host_rows(run: Run) -> list[dict[str, Any]]:
    return run.arrow("host_intervals", columns=[C.NAME, C.PHASE]).to_pylist()


def zeroed(run: Run) -> list[str]:
    """What ran while gradients were cleared."""
    return [str(row[C.NAME]) for row in host_rows(run) if row[C.PHASE] == Phase.ZERO_GRAD]


@pytest.fixture(scope="module")
def repository(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A git repository with one commit."""
    folder = tmp_path_factory.mktemp("repository")
    own = ["-c", "user.name=Tester", "-c", "user.email=tester@example.org"]
    for words in (
        ["init", "--quiet", "--initial-branch=main"],
        ["commit", "--quiet", "--allow-empty", "-m1"],
    ):
        subprocess.run(["git", *own, *words], cwd=folder, check=True)
    return folder


@pytest.fixture(scope="module")
def collected(repository: Path, tmp_path_factory: pytest.TempPathFactory) -> Run:
    """One run that several tests look at from different sides."""
    place = Store(tmp_path_factory.mktemp("collected") / "store")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(repository)
        return collect(place, Request(**SMALL, zero_grad="zero", label="mine", keep_trace=True))


@pytest.fixture(scope="module")
def with_stacks(tmp_path_factory: pytest.TempPathFactory) -> Run:
    """Another one, with what is not recorded unless it is asked for."""
    place = Store(tmp_path_factory.mktemp("stacks") / "store")
    return collect(place, Request(**SMALL, zero_grad="foreach", stacks=True))


def test_a_run_knows_what_ran_and_how(collected: Run) -> None:
    meta = collected.meta
    assert meta.workload is not None
    assert meta.workload["name"] == "mnist_cnn"
    assert (meta.workload["batch_size"], meta.workload["threads"], meta.workload["device"]) == (4, 1, "cpu")
    assert meta.timings is not None
    assert (len(meta.timings.step_ns), len(meta.timings.warmup_ns)) == (2, 1)
    assert min(meta.timings.step_ns) > 0
    assert meta.timings.clock == "perf_counter"
    assert meta.label == "mine"
    assert meta.environment["torch"]
    assert (meta.fingerprint["workload"], meta.fingerprint["threads"]) == ("mnist_cnn", 1)
    assert meta.command[:4] == ["tracekit", "collect", "--workload", "mnist_cnn"]
    assert "--zero-grad" in meta.command


def test_its_tables_hold_the_profile(collected: Run) -> None:
    assert table(collected, "steps")[C.NAME].tolist() == ["ProfilerStep#1", "ProfilerStep#2"]
    host = table(collected, "host_intervals")
    inside = host[host[C.STEP].notna()]
    assert set(inside[C.PHASE].dropna()) >= {"forward", "backward", "optimizer", "zero_grad", "dataload"}
    convolutions = host[host[C.NAME] == "aten::convolution"]
    assert json.loads(convolutions[C.INPUT_SHAPES].iloc[0])[0] == [4, 1, 28, 28]
    assert collected.rows("allocations") > 0
    assert collected.rows("device_intervals") == 0


def test_the_peak_of_the_host_is_a_counter(collected: Run) -> None:
    rows = table(collected, "counters")
    (row,) = rows[rows[C.METRIC] == "host_peak_bytes"].to_dict("records")
    assert (row[C.SOURCE], row[C.UNIT]) == ("process", "bytes")
    assert 50e6 < row[C.VALUE] < 50e9


def test_the_process_is_sampled_until_the_last_step_has_ended(collected: Run) -> None:
    rows = table(collected, "counters")
    resident, steps = rows[rows[C.METRIC] == "rss_bytes"], table(collected, "steps")
    assert resident[C.VALUE].between(50e6, 50e9).all()
    assert resident[C.T_NS].max() >= int((steps[C.START_NS] + steps[C.DUR_NS]).max())
    scopes = [*analyze(collected, "utilization").tables["host"]["scope"]]
    assert scopes[-1] == "whole run"
    assert scopes[:-1] in ([], ["steps"])  # a sample in the short steps is a matter of luck


def test_its_breakdown_is_of_the_host_and_never_idle(collected: Run) -> None:
    result = analyze(collected, "gpu_breakdown")
    assert list(result.tables) == ["host"]
    assert result.tables["host"]["self_ns"].sum() > 0
    assert "no device" in result.notes[0]


def test_the_kept_trace_is_torch_s_own(collected: Run) -> None:
    kept = json.loads(gzip.decompress((collected.path / RAW_TRACE).read_bytes()))
    assert any(event.get("name") == "aten::convolution" for event in kept["traceEvents"])
    assert str(collected.path.parent) not in json.dumps(kept)
    assert "host_name" not in kept


def test_the_commit_is_recorded(collected: Run, repository: Path) -> None:
    words = ["git", "rev-parse", "HEAD"]
    head = subprocess.run(words, cwd=repository, check=True, capture_output=True, text=True).stdout.strip()
    git = collected.meta.git
    assert git is not None
    assert (git.sha, git.branch, git.dirty) == (head, "main", False)


@pytest.mark.slow
def test_stacks_are_recorded_when_asked_for(with_stacks: Run, collected: Run) -> None:
    host = table(with_stacks, "host_intervals")
    assert "python" in set(host[C.KIND])
    assert host[C.MODULE].str.startswith("nn.Module: ").any()
    assert "python" not in set(table(collected, "host_intervals")[C.KIND])


@pytest.mark.parametrize(
    ("recorded", "foreach"), [("collected", 0), pytest.param("with_stacks", 1, marks=pytest.mark.slow)]
)
def test_gradients_are_zeroed_as_asked(recorded: str, foreach: int, request: pytest.FixtureRequest) -> None:
    inside = zeroed(request.getfixturevalue(recorded))
    assert sum(name.startswith("Optimizer.zero_grad#") for name in inside) == 2
    assert inside.count("aten::zero_") == 2 * 8
    assert inside.count("aten::_foreach_zero_") == 2 * foreach


def test_what_was_compiled_and_how_it_ran_is_kept(store: Store, play: Callable[[str], None]) -> None:
    play("compiles")
    run = collect(store, Request(**SMALL, level="compile", backend="aot_eager"))
    found = compilation.read(run.meta)
    assert found is not None
    assert (found.graphs, found.first_call_ns) == (2, 9_000)
    assert run.meta.workload is not None
    assert (run.meta.workload["level"], run.meta.workload["backend"]) == ("compile", "aot_eager")
    assert run.meta.fingerprint["backend"] == "aot_eager"
    assert "--backend aot_eager" in " ".join(run.meta.command)


@pytest.mark.slow
def test_resnet50_shows_every_part_of_a_training_step(store: Store) -> None:
    run = collect(store, Request(**{**SMALL, "workload": "resnet50", "resolution": 32}))
    rows = host_rows(run)
    assert set(Phase) <= {row[C.PHASE] for row in rows}
    assert {str(row[C.NAME]) for row in rows} >= {
        "aten::convolution",
        "aten::batch_norm",
        "aten::max_pool2d",
        "aten::linear",
    }
    assert left_in(store) == [run.id]


@pytest.fixture
def play(monkeypatch: pytest.MonkeyPatch) -> Callable[[str], None]:
    """Replaces the process of the workload by one that plays it; see `workload_played.py`."""
    return lambda how: monkeypatch.setattr(workload_process, "COMMAND", (*PLAYED, how))


@played_or_real
def test_the_command_prints_ids_and_where_the_time_went(
    store: Store, capsys: pytest.CaptureFixture[str], play: Callable[[str], None], *, played: bool
) -> None:
    if played:
        play("ends well")
    where = ("--store", str(store.path))
    assert tracekit([*SHORT, "--pin-memory", "--repeat", "2", *where]) == 0
    out, err = capsys.readouterr()
    runs = store.runs()
    assert len(runs) == 2
    assert out.splitlines()[:2] == [run.id for run in runs]
    assert "without the profiler" in out
    assert "Self time of the driving thread by op" in out
    assert "profile" in err
    assert {d.code for d in runs[0].meta.diagnostics} >= {"pin_memory_ignored"}
    inside = zeroed(runs[0])
    assert sum(name.startswith("Optimizer.zero_grad#") for name in inside) == (3 if played else 1)
    assert not {"aten::zero_", "aten::_foreach_zero_"} & set(inside), "by default gradients are dropped"


@pytest.mark.slow
def test_an_inference_trains_nothing_and_its_memory_is_that_of_the_unprofiled_steps(
    store: Store, capsys: pytest.CaptureFixture[str]
) -> None:
    assert tracekit([*SHORT, "--mode", "infer", "--format", "json", "--store", str(store.path)]) == 0
    [run] = store.runs()
    assert json.loads(capsys.readouterr().out) == {"schema": "tracekit.collect/1", "runs": [run.id]}
    names = [str(row[C.NAME]) for row in host_rows(run)]
    assert not any(name.startswith(("Optimizer", "autograd::engine")) for name in names)
    [sample] = [row for row in run.arrow("counters").to_pylist() if row[C.METRIC] == "host_peak_bytes"]
    assert 50e6 < sample[C.VALUE] < 8e9
    assert sample[C.T_NS] < 0, "measured before the profiler started"


@played_or_real
def test_too_much_memory_says_what_to_lower(
    store: Store, play: Callable[[str], None], *, played: bool
) -> None:
    if played:
        play("lacks memory")
    with pytest.raises(CollectionError, match="ran out of memory") as caught:
        collect(store, Request(**{**SMALL, "batch_size": 10**12}))
    assert "--batch-size" in caught.value.hint
    assert left_in(store) == [logs.FOLDER]
    assert caught.value.log is not None
    assert str(caught.value.log) in caught.value.hint
    assert "allocate" in caught.value.log.read_text()


@played_or_real
def test_a_gpu_that_is_not_there_is_one_line(
    store: Store, play: Callable[[str], None], *, played: bool
) -> None:
    import torch

    if played:
        play("has no gpu")
    elif torch.cuda.is_available():
        pytest.skip("this machine has one")
    with pytest.raises(UnusableInputError, match="torch can use no GPU"):
        collect(store, Request(**{**SMALL, "device": "cuda"}))
    assert left_in(store) == []


@pytest.mark.parametrize(
    ("change", "error"),
    [
        ({"workload": "nothing"}, PluginError),
        ({"level": "warp"}, UnusableInputError),
        ({"steps": 0}, UnusableInputError),
        ({"device": "tpu"}, UnusableInputError),
    ],
)
def test_what_cannot_be_collected_leaves_nothing(
    change: dict[str, object], error: type[Exception], store: Store
) -> None:
    with pytest.raises(error):
        collect(store, Request(**{**SMALL, **change}))
    assert left_in(store) == []


@pytest.mark.parametrize(
    ("number", "code"),
    thinned(
        [(signal.SIGINT, 130), (signal.SIGTERM, 143), (signal.SIGKILL, -9)], default=[(signal.SIGINT, 130)]
    ),
)
@played_or_real
def test_a_collector_that_ends_early_takes_the_workload_with_it(
    number: signal.Signals, code: int, store: Store, *, played: bool
) -> None:
    program = (PLAYING, PLAYED[1], "runs on") if played else (MAIN,)
    collecting = subprocess.Popen(
        [sys.executable, "-c", *program, *WORDS, "--steps", str(ENDLESS), "--store", str(store.path)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert collecting.stderr
    while not (line := collecting.stderr.readline()).startswith("measure"):
        assert line, "it ended before it measured"
    children = psutil.Process(collecting.pid).children(recursive=True)
    assert children
    collecting.send_signal(number)
    out, err = collecting.communicate(timeout=HANG_SECONDS)
    assert collecting.returncode == code
    assert out == ""
    assert "Traceback" not in err
    assert psutil.wait_procs(children, timeout=HANG_SECONDS)[1] == []
    with store.draft():
        pass  # sweeps what a killed process could not
    assert left_in(store) == []


@played_or_real
def test_a_killed_workload_is_an_error_and_leaves_nothing(
    store: Store, play: Callable[[str], None], *, played: bool
) -> None:
    if played:
        play("runs on")
    before = psutil.Process().children()  # of other tests
    killed: list[psutil.Process] = []

    def kill(part: str, done: int, _total: int) -> None:
        if part == "measure" and done == 1 and not killed:
            [guard] = set(psutil.Process().children()) - set(before)
            [program] = guard.children()
            killed.append(program)
            program.kill()

    with pytest.raises(CollectionError, match=r"killed by SIGKILL.*--batch-size"):
        collect(store, Request(**{**SMALL, "steps": ENDLESS}), progress=kill)
    assert left_in(store) == []
    assert [process.is_running() for process in killed] == [False]


def test_without_torch_it_says_what_to_install(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "tracekit.collectors.torch_profiler", None)
    with pytest.raises((MissingDependencyError, PluginError)):
        collect(store, Request(**SMALL))
