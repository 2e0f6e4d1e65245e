"""`tracekit ab` on real repositories; planted values decide.

Processes are real where the test is about them, and killed for real; other tests measure in this process.
"""

from __future__ import annotations

import json
import shlex
import shutil
import signal
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any
from xml.etree import ElementTree as ET

import pytest

from tests.measured import run_here
from tests.repositories import add_submodule
from tests.runs import make_run
from tests.tiers import thinned
from tests.unit.experiments.measure.test_worktrees import everything
from tracekit.cli.main import run
from tracekit.errors import UnusableInputError
from tracekit.experiments import process
from tracekit.experiments.ab import resolve_commit
from tracekit.runs.meta import Timings

if TYPE_CHECKING:
    from tests.conftest import Git
    from tracekit.runs.store import Store

ROOT = Path(__file__).parents[2]
MAIN = "from tracekit.cli.main import main; main()"
PROGRAM = """
import math, os, random
from pathlib import Path
import level

log = Path(os.environ["BENCH_LOG"])
number = log.read_text().count("\\n") if log.exists() else 0
with log.open("a") as stream:
    stream.write(f"{level.MS} {Path.cwd()}\\n")
noise = random.Random(f"{os.environ['BENCH_SEED']}-{number}").gauss(0, 0.01)
print("starting")
print(f"step: {level.MS * math.exp(noise):.6f} ms")
"""
RECORD = """
import os, sys
sys.path.insert(0, {!r})
from pathlib import Path
from tests.runs import make_run, step_rows
from tracekit.runs import revisions as gitinfo
from tracekit.runs.meta import Timings
from tracekit.runs.store import Store

peak = dict(t_ns=0, source="process", metric="host_peak_bytes", unit="bytes", value=60e6)
make_run(
    Store(Path(os.environ["TRACEKIT_STORE"])),
    tables=dict(counters=[peak], steps=step_rows(0, 20)),
    timings=Timings([9_000_000, 10_000_000, 11_000_000], [], "perf_counter"),
    git=gitinfo.state(),
)
"""
"""Stores what `tracekit collect` would, without a profiler."""
VALUE = ["--value", r"^step: ([0-9.]+) ms$", "--metric", "step_time"]
WARMUP = ["10", "12"]
PYTHON = [sys.executable, "-ES", "bench.py"]
"""Without the packages of the environment, which take longer to find than the program runs."""


@dataclass
class Repository:
    """A repository whose commits say how slow they are."""

    git: Git
    log: Path

    def commit(self, text: str) -> str:
        Path("level.py").write_text(text)
        self.git("add", ".")
        self.git("commit", "--quiet", "--allow-empty", "--message=level")
        return self.git("rev-parse", "HEAD")

    @property
    def measured(self) -> list[str]:
        """Level of each process that ran, in order."""
        return [line.split()[0] for line in self.log.read_text().splitlines()] if self.log.exists() else []

    @property
    def folders(self) -> set[str]:
        return {line.split(maxsplit=1)[1] for line in self.log.read_text().splitlines()}


@pytest.fixture
def repository(git: Git, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Repository:
    log = tmp_path / "log.txt"
    monkeypatch.setenv("BENCH_LOG", str(log))
    monkeypatch.setenv("BENCH_SEED", "0")
    Path("bench.py").write_text(PROGRAM)
    made = Repository(git, log)
    made.commit("MS = 10\n")
    return made


@pytest.fixture
def _measured_here(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(process, "run", run_here)


measured_here = pytest.mark.usefixtures("_measured_here")


def ab(store: Store, *words: str, program: list[str] | None = None) -> list[str]:
    return ["ab", *words, "--store", str(store.path), "--", *(program or PYTHON)]


def answer(
    store: Store, capsys: pytest.CaptureFixture[str], *words: str, program: list[str] | None = None
) -> dict[str, Any]:
    capsys.readouterr()
    code = run(ab(store, *words, "--format", "json", program=program))
    found: dict[str, Any] = json.loads(capsys.readouterr().out)
    assert found["schema"] == "tracekit.ab/1"
    assert found["exit_code"] == code
    return found


def traces(store: Store, git: Git) -> list[str]:
    """What is left in the store and in git, besides the lock."""
    left = [path.name for name in (".worktrees", ".ab") for path in (store.path / name).iterdir()]
    return [*(name for name in left if name != "lock"), *git("worktree", "list").splitlines()[1:]]


def test_a_slower_commit_is_a_regression_and_the_tree_stays_as_it_is(
    repository: Repository, store: Store, capsys: pytest.CaptureFixture[str]
) -> None:
    base, head = repository.git("rev-parse", "HEAD"), repository.commit("MS = 12\n")
    Path("level.py").write_text("MS = 99\n")
    Path("bench.py").write_text("raise SystemExit('of the user')\n")
    repository.git("add", "bench.py")
    before = everything(Path.cwd())
    found = answer(store, capsys, "HEAD~1", "HEAD", *VALUE)
    assert everything(Path.cwd()) == before
    assert (found["verdict"], found["exit_code"]) == ("regression", 1)
    assert (found["base"]["commit"], found["head"]["commit"]) == (base, head)
    assert found["design"] | {"looks": None} == {
        "k": 5,
        "order": "ABBAABBAAB",
        "paired": True,
        "alpha": 0.05,
        "theta": 0.07,
        "looks": None,
        "warmup": 1,
    }
    [metric] = found["metrics"]
    assert (metric["name"], metric["unit"], metric["k"]) == ("step_time", "ns", 5)
    assert metric["ratio"] == pytest.approx(1.2, rel=0.03)
    assert metric["mde"] < 0.07
    assert repository.measured == [*WARMUP, *(str({"A": 10, "B": 12}[side]) for side in "ABBAABBAAB")]
    assert {Path(folder).name for folder in repository.folders} == {"base", "head"}
    assert not any(Path(folder).exists() for folder in repository.folders)
    assert traces(store, repository.git) == []


@measured_here
@pytest.mark.parametrize(
    "seeds", [range(1), pytest.param(range(1, 6), marks=pytest.mark.slow)], ids=["one", "several"]
)
def test_equal_commits_pass_or_cannot_be_told(
    seeds: range,
    repository: Repository,
    store: Store,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for seed in seeds:
        monkeypatch.setenv("BENCH_SEED", str(seed))
        found = answer(store, capsys, "HEAD", "main", "--max-k", "10", "--warmup", "0", *VALUE)
        assert found["verdict"] in {"pass", "cannot tell"}, f"seed {seed}"


@pytest.mark.slow
def test_a_faster_commit_is_an_improvement(
    repository: Repository, store: Store, capsys: pytest.CaptureFixture[str]
) -> None:
    repository.commit("MS = 8\n")
    found = answer(store, capsys, "HEAD~1", "HEAD", *VALUE)
    assert (found["verdict"], found["exit_code"]) == ("improvement", 0)


@pytest.mark.slow
def test_real_time_and_memory_of_equal_commits_are_no_regression(
    repository: Repository, store: Store, capsys: pytest.CaptureFixture[str]
) -> None:
    program = [sys.executable, "-c", "import time; time.sleep(0.1)"]
    found = answer(store, capsys, "HEAD", "HEAD", "-k", "4", "--max-k", "8", program=program)
    assert [one["name"] for one in found["metrics"]] == ["wall", "host_peak"]
    assert found["metrics"][0]["a"] > 100e6
    assert found["verdict"] in {"pass", "cannot tell"}, found["metrics"]


def test_memory_that_grows_is_a_regression(
    repository: Repository, store: Store, capsys: pytest.CaptureFixture[str]
) -> None:
    repository.commit("MS = 10\nleak = b'1' * (40 << 20)\n")
    words = ["HEAD~1", "HEAD", "--metric", "host_peak", "--max-k", "5"]
    [metric] = answer(store, capsys, *words)["metrics"]
    assert (metric["name"], metric["verdict"]) == ("host_peak", "regression")
    assert 30e6 < metric["b"] - metric["a"] < 50e6


@measured_here
def test_the_working_tree_is_measured_as_it_is_when_allowed(
    repository: Repository, store: Store, capsys: pytest.CaptureFixture[str]
) -> None:
    Path("level.py").write_text("from fresh import MS\n")
    Path("fresh.py").write_text("MS = 13\n")
    assert run(ab(store, "HEAD", ".", *VALUE)) == 2
    assert "uncommitted changes in 2 files" in capsys.readouterr().err
    before = everything(Path.cwd())
    found = answer(store, capsys, "HEAD", ".", "--allow-dirty", *VALUE)
    assert everything(Path.cwd()) == before
    assert found["verdict"] == "regression"
    head = found["head"]
    assert (head["dirty"], head["changed_files"], len(head["diff_sha256"])) == (True, 2, 64)
    assert found["reproduce"].split()[3] == "."
    assert "--allow-dirty" in found["reproduce"]


def test_a_clean_working_tree_is_its_commit(repository: Repository) -> None:
    side = resolve_commit(".", Path.cwd())
    assert (side.sha, side.dirty) == (repository.git("rev-parse", "HEAD"), False)
    Path("new.txt").write_text("")
    with pytest.raises(UnusableInputError, match="1 file"):
        resolve_commit(".", Path.cwd())


def test_a_program_that_fails_names_its_side_and_leaves_nothing(
    repository: Repository, store: Store, capsys: pytest.CaptureFixture[str]
) -> None:
    repository.commit("raise RuntimeError('no such kernel')\n")
    assert run(ab(store, "HEAD~1", "HEAD", *VALUE)) == 5
    said = capsys.readouterr().err
    assert "RuntimeError: no such kernel" in said
    assert "tracekit: head HEAD (" in said.splitlines()[-1]
    assert "warm-up: the program failed with exit code 1" in said.splitlines()[-1]
    assert traces(store, repository.git) == []


@measured_here
def test_a_value_that_is_not_printed_is_nothing_measured(
    repository: Repository, store: Store, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(ab(store, "HEAD", "HEAD", "--value", "speed: (.*)")) == 5
    assert "--value 'speed: (.*)' matches nothing" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["gone", "HEAD"], "no git revision 'gone'"),
        (["HEAD", "HEAD", "-k", "1"], "--repeat 1 and --max-repeat 20 do not fit"),
        (["HEAD", "HEAD", "--metric", "step_time"], "does not measure step_time"),
        (["HEAD", "HEAD", "--value", "step: .*"], "has no group"),
        (["HEAD", "HEAD", "--value", "("], "not a valid regular expression"),
        (["HEAD", "HEAD", "--value", "(.*)", "--higher-is-better"], "--unit count"),
    ],
)
def test_what_cannot_be_measured_is_said_before_anything_runs(
    words: list[str], message: str, repository: Repository, store: Store, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(ab(store, *words)) == 2
    assert message in capsys.readouterr().err
    assert repository.measured == []


@measured_here
def test_a_rate_that_falls_is_a_regression(
    repository: Repository, store: Store, capsys: pytest.CaptureFixture[str]
) -> None:
    repository.commit("MS = 8\n")
    words = ["--value", "step: (.*) ms", "--unit", "count", "--higher-is-better", "--metric", "value"]
    found = answer(store, capsys, "HEAD~1", "HEAD", *words)
    assert (found["verdict"], found["metrics"][0]["direction"]) == ("regression", "higher")


@measured_here
def test_a_setup_runs_once_in_each_worktree(
    repository: Repository, store: Store, capsys: pytest.CaptureFixture[str]
) -> None:
    repository.commit("from built import MS\n")
    setup = "cd . && echo MS = 10 > built.py && echo built in $PWD >> $BENCH_LOG"
    found = answer(store, capsys, "HEAD~1", "HEAD", "--setup", setup, *VALUE)
    assert found["verdict"] == "pass"
    assert repository.measured[:2] == ["built", "built"]
    assert repository.measured.count("built") == 2
    assert not Path("built.py").exists()


@pytest.mark.slow
@measured_here
def test_submodules_are_measured_as_the_commit_wants_them_and_missing_ones_are_said(
    repository: Repository, store: Store, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    add_submodule(repository.git, tmp_path, "MS = 10\n")
    Path("level.py").write_text("import sys; sys.path.insert(0, 'deep lib'); from inner import MS\n")
    repository.git("commit", "--quiet", "--all", "--message=from the submodule")
    Path("deep lib/inner.py").write_text("MS = 12\n")
    repository.git("-C", "deep lib", "commit", "--quiet", "--all", "--message=slower")
    repository.git("commit", "--quiet", "--all", "--message=moved")
    found = answer(store, capsys, "HEAD~1", "HEAD", *VALUE)
    assert (found["verdict"], [one for one in found["warnings"] if "submodule" in one]) == ("regression", [])
    shutil.rmtree(".git/modules")
    shutil.rmtree("deep lib")
    program = ["echo", "step: 1 ms"]
    found = answer(store, capsys, "HEAD", "HEAD", "-k", "2", "--max-k", "2", *VALUE, program=program)
    [said] = [one for one in found["warnings"] if "submodule" in one]
    assert "deep lib; run `git submodule update --init`" in said


def test_a_dirty_tree_is_no_base(
    repository: Repository, store: Store, capsys: pytest.CaptureFixture[str]
) -> None:
    Path("level.py").write_text("MS = 13\n")
    assert run(ab(store, ".", "HEAD", "--allow-dirty", *VALUE)) == 2
    assert "uncommitted changes; use a commit as the base" in capsys.readouterr().err


@measured_here
def test_a_folder_below_the_root_is_where_it_runs(
    repository: Repository, store: Store, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    Path("below").mkdir()
    Path("below/file.txt").write_text("")
    repository.commit("MS = 12\n")
    monkeypatch.chdir("below")
    words = ["-k", "2", "--max-k", "2", *VALUE]
    program = [*PYTHON[:-1], "../bench.py"]
    assert run(ab(store, "HEAD~1", "HEAD", *words, program=program)) == 2
    assert "the commit has no folder below" in capsys.readouterr().err
    answer(store, capsys, "HEAD", "HEAD", *words, program=program)
    assert {Path(folder).name for folder in repository.folders} == {"below"}


@pytest.mark.parametrize(
    "number", thinned([signal.SIGINT, signal.SIGTERM, signal.SIGKILL], default=[signal.SIGKILL])
)
def test_a_call_that_was_interrupted_goes_on_where_it_stopped(
    number: signal.Signals, repository: Repository, store: Store, capsys: pytest.CaptureFixture[str]
) -> None:
    repository.commit("MS = 12\n")
    before = everything(Path.cwd())
    cut = _interrupted(repository, store, number)
    assert cut.returncode == {signal.SIGINT: 130, signal.SIGTERM: 143, signal.SIGKILL: -9}[number]
    if number != signal.SIGKILL:
        assert [name for name in traces(store, repository.git) if not name.endswith(".json")] == []
        assert everything(Path.cwd()) == before
    made = len(repository.measured)
    found = answer(store, capsys, "HEAD~1", "HEAD", *VALUE)
    assert (found["verdict"], found["design"]["order"]) == ("regression", "ABBAABBAAB")
    assert len(repository.measured) - made < 12, "all was measured again"
    assert everything(Path.cwd()) == before
    assert traces(store, repository.git) == []


@pytest.mark.slow
def test_restart_forgets(repository: Repository, store: Store, capsys: pytest.CaptureFixture[str]) -> None:
    repository.commit("MS = 12\n")
    _interrupted(repository, store, signal.SIGKILL)
    made = len(repository.measured)
    answer(store, capsys, "HEAD~1", "HEAD", "--restart", *VALUE)
    assert len(repository.measured) - made == 12


@pytest.mark.slow
def test_another_program_or_commit_does_not_go_on_from_it(
    repository: Repository, store: Store, capsys: pytest.CaptureFixture[str]
) -> None:
    repository.commit("MS = 12\n")
    _interrupted(repository, store, signal.SIGINT)
    made = len(repository.measured)
    answer(store, capsys, "HEAD", "HEAD~1", *VALUE)
    answer(store, capsys, "HEAD~1", "HEAD", *VALUE, program=[*PYTHON, "--again"])
    assert len(repository.measured) - made == 24


@pytest.mark.slow
def test_other_variables_do_not_go_on_from_it(
    repository: Repository,
    store: Store,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    repository.commit("MS = 12\n")
    _interrupted(repository, store, signal.SIGINT)
    made = len(repository.measured)
    monkeypatch.setenv("OMP_NUM_THREADS", "7")
    answer(store, capsys, "HEAD~1", "HEAD", *VALUE)
    assert len(repository.measured) - made == 12


def test_two_at_once_are_refused(
    repository: Repository, store: Store, capsys: pytest.CaptureFixture[str]
) -> None:
    with subprocess.Popen(
        [sys.executable, "-c", MAIN, *ab(store, "HEAD", "HEAD", program=["sleep", "600"])],
        stderr=subprocess.PIPE,
        text=True,
    ) as other:
        assert other.stderr
        while "warm-up" not in other.stderr.readline():
            assert other.poll() is None
        assert run(ab(store, "HEAD", "HEAD", *VALUE)) == 2
        assert "another `tracekit ab` is measuring" in capsys.readouterr().err
        other.terminate()
        other.communicate()


@measured_here
@pytest.mark.parametrize("output_format", thinned(["table", "markdown"], default=["table"]))
def test_people_see_verdict_numbers_reasons_and_the_command(
    output_format: str, repository: Repository, store: Store, capsys: pytest.CaptureFixture[str]
) -> None:
    repository.commit("MS = 12\n")
    assert run(ab(store, "HEAD~1", "HEAD", "--format", output_format, *VALUE)) == 1
    captured = capsys.readouterr()
    text = " ".join(captured.out.replace("\\", "").split())
    for part in ("Regression: HEAD (", "ci95", "mde", "worse by at least", "ABBA order", "--repeat 5"):
        assert part in text
    assert "1 of 10: base HEAD~1 (" in captured.err
    assert "left" in captured.err


@pytest.mark.slow
@pytest.mark.parametrize("real", [False, True])
def test_collections_are_judged_by_their_unprofiled_steps_and_one_profile_a_side_is_kept(
    real: bool,
    repository: Repository,
    store: Store,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    pytest.importorskip("torch")
    if not real:
        monkeypatch.setattr("tracekit.experiments.measure.MAIN", RECORD.format(str(ROOT)))
    words = ["--workload", "mnist_cnn", "--device", "cpu", "--threads", "1", "--batch-size", "4"]
    program = ["tracekit", "collect", *words, "--steps", "2", "--warmup", "1"]
    options = ["-k", "2", "--max-k", "2", "--warmup", "0"]
    found = answer(store, capsys, "HEAD", "HEAD", *options, program=program)
    assert [one["name"] for one in found["metrics"]] == ["step_time", "host_peak"]
    assert found["metrics"][1]["a"] > 50e6
    assert real or (found["metrics"][0]["a"], found["metrics"][1]["a"]) == pytest.approx((1e7, 60e6))
    runs = {kept.meta.label: kept for kept in store.runs()}
    assert {f"ab-{side}": run_id for side, run_id in found["runs"].items()} == {
        label: kept.id for label, kept in runs.items()
    }
    kept = runs["ab-head"]
    assert kept.rows("host_intervals") > 100 if real else kept.rows("steps") == 2
    assert kept.meta.git is not None
    assert (kept.meta.git.sha, kept.meta.git.dirty) == (repository.git("rev-parse", "HEAD"), False)
    assert found["verdict"] == "cannot tell" or traces(store, repository.git) == []


def _interrupted(repository: Repository, store: Store, number: signal.Signals) -> subprocess.Popen[str]:
    """A call that got a signal once a block of it was kept."""
    words = ab(store, "HEAD~1", "HEAD", *VALUE)
    cut = subprocess.Popen(
        [sys.executable, "-c", MAIN, *words], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    assert cut.stderr
    while not cut.stderr.readline().startswith("4 of 10"):
        assert cut.poll() is None
    cut.send_signal(number)
    cut.communicate()
    assert any((store.path / ".ab").glob("*.json"))
    return cut


SETTING = """
import os, sys
levels = {"1": 10, "2": 20}
print(f"step: {levels[os.environ.get('N', '1')] + len(sys.argv) / 1_000:.6f} ms")
"""
FEW = ["--repeat", "3", "--max-repeat", "3", "--warmup", "0", "--value", r"^step: ([0-9.]+) ms$"]


@pytest.fixture
def setting(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder that is no repository, with a program that one variable makes slower."""
    folder = tmp_path / "plain"
    folder.mkdir()
    (folder / "w.py").write_text(SETTING)
    monkeypatch.chdir(folder)
    return folder


def test_variables_are_compared_for_one_command(
    setting: Path, store: Store, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["--a", "N=1", "--b", "N=2", *FEW]
    found = answer(store, capsys, *words, program=[sys.executable, "-ES", "w.py"])
    assert (found["verdict"], found["exit_code"]) == ("regression", 1)
    assert found["base"]["variables"] == {"N": "1"}
    assert found["metrics"][0]["ratio"] == pytest.approx(2, rel=0.01)
    assert found["reproduce"].startswith("tracekit ab --a N=1 --b N=2 --repeat 3 ")
    assert [path.name for path in (store.path / ".ab").iterdir()] == ["lock"]
    assert [path.name for path in setting.iterdir()] == ["w.py"]


@measured_here
def test_commands_are_compared_in_the_formats_of_gates(
    setting: Path, store: Store, capsys: pytest.CaptureFixture[str]
) -> None:
    sides = [shlex.join([sys.executable, "w.py", *more]) for more in ((), ("--workers", "4"))]
    words = [
        "ab",
        "--a",
        sides[0],
        "--b",
        sides[1],
        *FEW,
        "--metric",
        "step_time",
        "--store",
        str(store.path),
    ]
    outputs = {}
    for name in ("github", "junit", "html", "markdown"):
        assert run([*words, "--format", name]) == 0
        outputs[name] = capsys.readouterr().out
    assert outputs["github"].startswith("::notice title=tracekit::Pass: `")
    suite = ET.fromstring(outputs["junit"])  # noqa: S314 (ours)
    assert (suite.tag, suite.attrib["tests"], suite.attrib["failures"]) == ("testsuite", "1", "0")
    assert '<h1 class="good">Pass: ' in outputs["html"]
    assert outputs["markdown"].startswith("## ")
    file = setting / "result.html"
    assert run([*words, "--format", "html", "--output", str(file)]) == 0
    assert file.read_text().startswith("<!doctype html>")


UNSTEADY = """
import os
from pathlib import Path
log = Path("log")
number = len(log.read_text()) if log.exists() else 0
log.write_text("x" * (number + 1))
print(f"step: {10 * (1.06 if os.environ['N'] == '2' else 1) * (1.05 if number % 2 else 0.95):.6f} ms")
"""


def test_a_comparison_that_could_not_tell_goes_on_where_more_runs_are_allowed(
    setting: Path, store: Store, capsys: pytest.CaptureFixture[str]
) -> None:
    (setting / "w.py").write_text(UNSTEADY)
    words, program = ["--a", "N=1", "--b", "N=2", *FEW], [sys.executable, "-ES", "w.py"]
    counts, found = [], []
    for most in ("3", "6", "6"):  # the third asks the same again, and so measures anew
        found.append(answer(store, capsys, *words, "--max-repeat", most, program=program))
        counts.append(len((setting / "log").read_text()))
    assert [one["verdict"] for one in found] == ["cannot tell"] * 3
    assert counts == [6, 12, 24]
    assert found[1]["values"]["base"][:3] == found[0]["values"]["base"]
    assert found[1]["seconds"] > found[0]["seconds"]


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--a", "N=1"], "--a and --b are given together"),
        (["--a", "N=1", "--b", "N=2"], "'N=1' names no command"),
        (["--a", "python w.py", "--b", "N=2", "--", "python", "w.py"], "'python w.py' and -- both name"),
        (["--a", "label:x", "--b", "python w.py"], "A label is compared with a label"),
        (
            ["--a", "label:x", "--b", "label:y", "--repeat", "9", "--value", "x", "--restart"],
            "--repeat, --value, --restart do not apply to stored runs",
        ),
        (["--a", "python w.py", "--b", "tracekit collect"], "only one of the settings is `tracekit collect`"),
        (["--a", "python w.py", "--b", "python", "--setup", "make"], "settings have none"),
        ([], "Give two commits, or two settings"),
    ],
)
def test_settings_that_cannot_be_compared_are_refused(
    setting: Path, store: Store, capsys: pytest.CaptureFixture[str], words: list[str], message: str
) -> None:
    assert run(["ab", "--store", str(store.path), *words]) == 2
    assert message in " ".join(capsys.readouterr().err.split())


def test_stored_labels_are_compared_without_measuring(
    store: Store, capsys: pytest.CaptureFixture[str]
) -> None:
    for label, step_ns in (("before", 10_000_000), ("after", 20_000_000)):
        for number in range(3):
            timings = Timings([step_ns + number * 1_000] * 5, [], "perf_counter")
            make_run(store, label=label, timings=timings)
    sides = ["ab", "--a", "label:before", "--b", "label:after", "--metric", "step_time"]
    code = run([*sides, "--store", str(store.path), "--format", "json"])
    found = json.loads(capsys.readouterr().out)
    assert (found["schema"], found["exit_code"]) == ("tracekit.check/1", code)
    [metric] = found["configurations"][0]["metrics"]
    assert metric["ratio"] == pytest.approx(2, rel=0.01)


LOADER = """
import random, time
from level import MS
steps = []
for _ in range(4):
    began = time.perf_counter()
    for _ in range(20):  # samples of a batch
        time.sleep(MS / 1000 * random.gauss(1, 0.03))
    time.sleep(0.015)
    steps.append(time.perf_counter() - began)
print(f"step: {1000 * sum(steps) / len(steps):.3f} ms")
"""


@pytest.mark.slow
def test_a_loader_that_takes_twice_as_long_is_a_regression(
    repository: Repository, store: Store, capsys: pytest.CaptureFixture[str]
) -> None:
    """36 and 57 ms a step, up to ten real runs a side: a gate must not pass it."""
    Path("loader.py").write_text(LOADER)
    base, head = repository.commit("MS = 1\n"), repository.commit("MS = 2\n")
    program = [sys.executable, "-S", "loader.py"]
    found = answer(store, capsys, base, head, "--repeat", "5", "--max-repeat", "10", *VALUE, program=program)
    (step,) = found["metrics"]
    assert (found["verdict"], found["exit_code"]) == ("regression", 1)
    assert step["ratio"] > 1.2
