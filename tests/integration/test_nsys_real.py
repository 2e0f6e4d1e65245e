"""The real Nsight Systems, as `.ci/get-nsys` unpacks it, without a GPU: recordings, ends, refusals, help.

`TRACEKIT_TEST_NSYS` names the folder of its versions; without it, or on a system without them, all are
skipped.
"""

from __future__ import annotations

import csv
import io
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from tracekit.collectors.nsys import tool

from tests.integration.programs import MAIN
from tests.nsys import install
from tests.nsys_help import export_help, profile_help
from tests.traces import imported
from tracekit.runs.run import Run
from tracekit.schema import C

if TYPE_CHECKING:
    from tracekit.runs.store import Store

pytest.importorskip("torch")
FOLDER = Path(os.environ.get("TRACEKIT_TEST_NSYS") or "no such folder")
SUITES = {"bookworm": "2022.4.2.1", "trixie": "2023.4.4.54"}
pytestmark = [
    pytest.mark.slow,
    pytest.mark.parametrize("suite", SUITES),
    pytest.mark.skipif(not FOLDER.is_dir(), reason="no real nsys: TRACEKIT_TEST_NSYS, see .ci/get-nsys"),
]
LIMIT_S = 240
TRAIN = """
import sys, time, torch
model = torch.nn.Linear(64, 64)
optimizer = torch.optim.SGD(model.parameters(), 0.1)
for step in range(12):
    optimizer.zero_grad()
    model(torch.randn(32, 64)).sum().backward()
    optimizer.step()
print("trained")
"""
RANGES = f"import nvtx\nwith nvtx.annotate('outer'):\n    exec({TRAIN!r})"
THREADS = f"""
import subprocess, sys, threading
threads = [threading.Thread(target=time.sleep, args=(0.2,)) for time in [__import__("time")] * 3]
[thread.start() for thread in threads]
print(subprocess.run([sys.executable, "-c", "print(7)"], capture_output=True, text=True).stdout.strip())
exec({TRAIN!r})
[thread.join() for thread in threads]
"""


@pytest.fixture
def home(suite: str, monkeypatch: pytest.MonkeyPatch) -> Path:
    path = FOLDER / suite
    if not path.is_dir():
        pytest.skip(f"no nsys of {suite} in {FOLDER}")
    monkeypatch.setenv("NSYS_HOME", str(path))
    return path


def collect(folder: Path, *words: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-P", "-c", MAIN, "collect", "--collector", "nsys", *words]
    environment = {**os.environ, "TRACEKIT_STORE": str(folder / "store")}
    return subprocess.run(
        command, cwd=folder, env=environment, capture_output=True, text=True, timeout=LIMIT_S, check=False
    )


def run_of(folder: Path) -> Run:
    (path,) = (path for path in (folder / "store").iterdir() if path.name[0] != ".")
    run = Run(path)
    if "nothing_recorded" in said(run):  # on a busy machine, also without tracekit
        pytest.skip(said(run)["nothing_recorded"])
    return run


def names(run: Run, kind: str) -> list[str]:
    rows = run.table("host_intervals", columns=[C.KIND, C.NAME])
    return [str(name) for name in rows.loc[rows[C.KIND] == kind, C.NAME]]


def said(run: Run) -> dict[str, str]:
    return {note.code: note.message for note in run.meta.diagnostics}


@pytest.mark.usefixtures("home")
@pytest.mark.parametrize("workload", ["mnist_cnn", "mobilenet_v2"])
def test_a_workload_becomes_a_run(workload: str, suite: str, tmp_path: Path) -> None:
    done = collect(tmp_path, "--workload", workload, "--size", "test", "--steps", "2", "--format", "json")
    assert done.returncode == 0, done.stderr
    assert len(json.loads(done.stdout)["runs"]) == 1
    run = run_of(tmp_path)
    assert run.meta.collector.version == SUITES[suite]
    assert "read" in names(run, "runtime")
    assert len(run.meta.timings.step_ns) >= 2 if run.meta.timings else False


@pytest.mark.usefixtures("home")
@pytest.mark.parametrize(
    ("code", "printed", "ends"),
    [(THREADS, "7\ntrained\n", 0), (TRAIN + "sys.exit(3)", "trained\n", 3)],
    ids=["threads-and-processes", "fails"],
)
def test_a_program_prints_and_ends_as_it_does_alone(
    code: str, printed: str, ends: int, tmp_path: Path
) -> None:
    (tmp_path / "train.py").write_text(code)
    done = collect(tmp_path, "--steps", "2", "--", sys.executable, "train.py")
    assert done.returncode == ends, done.stderr
    assert done.stdout.startswith(printed)
    assert "\r" not in done.stdout + done.stderr
    assert "Generated" not in done.stdout
    run = run_of(tmp_path)
    assert len(names(run, "runtime")) > 100
    assert ("program_failed" in said(run)) == bool(ends)


@pytest.mark.usefixtures("home")
def test_steps_and_ranges_of_a_torch_for_the_cpu_are_marked_by_the_package_nvtx(tmp_path: Path) -> None:
    nvtx: Any = pytest.importorskip("nvtx", reason="needs nvtx 0.2.10")
    del nvtx
    from importlib.metadata import version

    if version("nvtx") != "0.2.10":
        pytest.skip("these versions of nsys do not record ranges of nvtx after 0.2.10")
    (tmp_path / "train.py").write_text(RANGES)
    done = collect(tmp_path, "--steps", "3", "--start-step", "2", "--", sys.executable, "train.py")
    assert done.returncode == 0, done.stderr
    run = run_of(tmp_path)
    assert run.table("steps")[C.STEP].tolist() == [2, 3, 4]
    assert "outer" in names(run, "annotation")
    assert names(run, "op").count("aten::addmm") == 3
    shapes = run.table("host_intervals", columns=[C.NAME, C.INPUT_SHAPES]).set_index(C.NAME)[C.INPUT_SHAPES]
    assert set(shapes.loc["aten::addmm"]) == {"[[64],[32,64],[64,64]]"}


EXPORTS = Path(__file__).parents[2] / ".." / "shared" / "nsys"
STATISTICS = {
    "gpukernsum": ("device_intervals", ("kernel",)),
    "cudaapisum": ("host_intervals", ("runtime", "sync")),
    "osrtsum": ("host_intervals", ("runtime", "sync")),
    "gpumemtimesum": ("device_intervals", ("memcpy", "memset")),
}


@pytest.mark.parametrize("report", STATISTICS)
@pytest.mark.parametrize(
    "export",
    [
        *("0x822a5b87__test-cuda/report1", "extra-p__extrap/profile1", "ynan1__aws_gpu/report2"),
        "nevakrien__python_c_nvidia/report1_osrt_only",
    ],
)
def test_numbers_are_those_of_nsys_stats(
    export: str, report: str, home: Path, suite: str, store: Store, tmp_path: Path
) -> None:
    if suite != "bookworm":
        pytest.skip("Debian's 2023.4.4 has no reports")
    if not (path := EXPORTS / f"{export}.sqlite").is_file():
        pytest.skip(f"no export {path}")
    shutil.copyfile(path, tmp_path / "run.sqlite")
    words = ["stats", "--report", report, "--format", "csv", "--force-export=false", tmp_path / "run.sqlite"]
    printed = subprocess.run(
        [home / "bin" / "nsys", *words], capture_output=True, text=True, check=False, timeout=LIMIT_S
    ).stdout
    _, header, lines = printed.partition("Time (%)")
    if not header:
        pytest.skip(f"nsys has no {report} of it")
    theirs: dict[str, list[int]] = {}
    for row in csv.DictReader(io.StringIO(header + lines)):
        total = theirs.setdefault(row.get("Name") or row["Operation"], [0, 0])
        total[0] += int(row.get("Instances") or row.get("Num Calls") or row["Count"])
        total[1] += round(float(row["Total Time (ns)"]))
    table, kinds = STATISTICS[report]
    run = imported(store, tmp_path / "run.sqlite")
    rows = run.table(table)
    rows = rows[rows[C.KIND].isin(kinds)]
    names = rows[C.NAME].astype(str)
    if report == "gpumemtimesum":
        assert len(names) == sum(count for count, _ in theirs.values())
        assert int(rows[C.DUR_NS].sum()) == sum(total for _, total in theirs.values())
        return
    ours = rows.groupby(names)[C.DUR_NS].agg(["size", "sum"])
    assert {name: ours.loc[name].tolist() for name in theirs} == theirs


@pytest.mark.usefixtures("home")
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_an_interrupt_leaves_nothing_running(number: signal.Signals, suite: str, tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(TRAIN + "open('ready', 'w').close(); time.sleep(60)")
    command = [sys.executable, "-P", "-c", MAIN, "collect", "--collector", "nsys", "--"]
    environment = {**os.environ, "TRACEKIT_STORE": str(tmp_path / "store")}
    process = subprocess.Popen(
        [*command, sys.executable, "train.py"],
        cwd=tmp_path,
        env=environment,
        start_new_session=True,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    deadline = time.monotonic() + LIMIT_S
    while not (tmp_path / "ready").exists() and process.poll() is None and time.monotonic() < deadline:
        os.sched_yield()
    os.killpg(process.pid, number)
    code = process.wait(LIMIT_S)
    assert code != 0 or suite == "bookworm"  # which ends with 0 after Ctrl-C
    listed = subprocess.run(["ps", "-eo", "args"], capture_output=True, text=True, check=True).stdout
    assert not [line for line in listed.splitlines() if f"{tmp_path}/" in line and "pytest" not in line]


def test_what_is_refused_is_refused_by_the_stand_in_in_the_same_words(
    home: Path, suite: str, tmp_path: Path
) -> None:
    stand_in = install(tmp_path / "bin", version=SUITES[suite])
    there = tmp_path / "there.nsys-rep"
    there.touch()
    for words in (
        ["profile", "--no-such=1", "true"],
        ["profile", "--stats=true", "--stats=true", "true"],
        ["profile", "--trace=foo", "true"],
        ["profile", "--trace=nvtx", "--output=x", "--", "true"],
        ["profile", "--trace=nvtx", "--output=x", "/no/such/program"],
        ["export", "--type=foo", str(there)],
        ["export", "--type=sqlite", str(tmp_path / "none.nsys-rep")],
    ):
        lines = []
        for program in (home / "bin" / "nsys", stand_in):
            done = subprocess.run(
                [program, *words], capture_output=True, text=True, stdin=subprocess.DEVNULL, timeout=LIMIT_S
            )
            assert done.returncode == 1, (program, words)
            lines.append(re.sub(r"'capture-range-end'.*|of '.*", "", done.stderr.strip().splitlines()[0]))
        assert lines[0] == lines[1], words


def test_the_stand_in_has_the_options_of_the_real_help(home: Path, suite: str) -> None:
    version, real = SUITES[suite], str(home / "bin" / "nsys")
    for command, text in (("profile", profile_help(version)), ("export", export_help(version))):
        printed = subprocess.run(
            [real, command, "--help"], capture_output=True, text=True, check=True, timeout=LIMIT_S
        ).stdout
        known, played = (tool._help_by_option(page) for page in (printed, text))
        used = {
            word.partition("=")[0].removeprefix("--")
            for setting in (*tool.WINDOW, *tool.ALWAYS, *tool.EXPORT)
            for word in (setting.option, *setting.former)
        }
        assert used & known.keys() == used & played.keys()
        assert played.keys() <= known.keys()
