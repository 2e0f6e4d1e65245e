"""Kill `tracekit ab`, `bisect`, `sweep` and `try` at a stage, look at what is left, and let them go on.

    python -m tests.integration.experiment_kills 200

kills them so often, by random signals at random operations on files, and prints how often each was hit.
"""

from __future__ import annotations

import atexit
import io
import json
import os
import random
import re
import shutil
import signal
import subprocess
import sys
import threading
from collections import Counter
from contextlib import chdir, suppress
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any
from unittest.mock import patch

import psutil

from tests.environment import HANG_SECONDS
from tests.integration.killed_child import NAMES as OPERATIONS
from tests.integration.killed_child import WRITES
from tests.repositories import add_commits
from tests.unit.experiments.measure.test_worktrees import everything
from tracekit.cli.leftovers import free, leftovers
from tracekit.runs.store import Store
from tracekit.runs.verify import verify

ROOT = Path(__file__).parents[2]
MARK = "TRACEKIT_TESTS_EXPERIMENT"
"""Variable by which the processes of an experiment are known: its folder."""
NEVER = -1
SIGNALS = (signal.SIGKILL, signal.SIGTERM, signal.SIGINT)
EXPERIMENTS = ("ab", "bisect", "sweep", "try")
SOME_RUNS = {"ab": 3, "bisect": 9, "sweep": 3, "try": 3}
"""Number of a run from which on an interrupted call has something to go on from."""
LAUNCH = r"^subprocess.Popen .*(?:launcher|played)\.py"
STATE = r"^os\.rename \S*/(?:\.ab|cells)/|^open \S*/\.(?:bisect|try)/\S*\.jsonl?$"
STAGES = {
    "before the first run": (LAUNCH, lambda _: 1),
    "between runs": (LAUNCH, SOME_RUNS.get),
    "inside a run": ("", SOME_RUNS.get),
    "while writing the state": (STATE, {"ab": 2, "bisect": 9, "sweep": 2, "try": 2}.get),
    "while reporting": (r"^tests\.report", lambda _: 1),
}
"""Operations at which a signal comes: a pattern, and which one of them; none for a run of the program."""
COUNTED = f"""
import os, sys, time
folder = os.environ["{MARK}"]
with open(folder + "/log", "a") as stream:
    stream.write("run\\n")
with open(folder + "/log") as stream:
    number = len(stream.read().splitlines())
with open(folder + "/inside") as stream:
    wanted, signal_number, pid = map(int, stream.read().split())
if number == wanted:
    os.kill(pid, signal_number)
    time.sleep(600)
"""
"""Beginning of each measured program: one of its runs signals tracekit and stays."""
BENCH = f"""{COUNTED}
import level
print("step: %.6f ms" % (level.MS * (1 + 0.002 * (number * 7 % 5 - 2))))
"""
PLAYED = f"""{COUNTED}
import runpy
sys.argv = ["workload_played.py", "ends well"]
runpy.run_path({str(ROOT / "tests/integration/workload_played.py")!r}, run_name="__main__")
"""
RECORDED = f"""{COUNTED}
sys.path.insert(0, {str(ROOT)!r})
from pathlib import Path
from tests.runs import make_run, step_rows
from tracekit.runs.meta import Timings
from tracekit.runs.store import Store
step_ns = 8_000_000 if "--change" in sys.argv else 10_000_000
make_run(
    Store(Path(os.environ["TRACEKIT_STORE"])),
    tables=dict(steps=step_rows(0, 20)),
    timings=Timings([step_ns + 10_000 * (number % 3)] * 3, [], "perf_counter"),
    environment={{"program": {{"changes": {{"foreach": 1}} if "--change" in sys.argv else {{}}}}}},
)
"""
"""Stores what `tracekit collect` would, without a profiler."""
VALUE = ("--value", r"^step: ([0-9.]+) ms$", "--warmup", "0", "--format", "json")


@dataclass(frozen=True)
class Ended:
    """How a call ended: its exit code, what it printed, how often the program ran, and where it was hit."""

    code: int
    out: str
    err: str
    runs: int
    hit: str = ""


@dataclass
class Experiment:
    """A repository in a folder, and a command that measures in it."""

    folder: Path
    name: str
    repository: Path = field(init=False)
    store: Store = field(init=False)
    was_killed: bool = field(default=False, init=False)

    def __post_init__(self) -> None:
        """Make the repository."""
        self.repository, self.store = self.folder / "repository", Store(self.folder / "store")
        for name in ("temporary", "cache", "repository"):
            (self.folder / name).mkdir()
        (self.folder / "log").write_text("")
        (self.folder / "played.py").write_text(PLAYED)
        self._git("init", "--quiet", "--initial-branch=main", "--template=", ".")
        for key, value in {"core.checkStat": "minimal", "maintenance.auto": "false"}.items():
            self._git("config", key, value)
        self._git("commit", "--quiet", "--allow-empty", "--message=empty")
        levels = (10, 10, 10, 20, 20)
        with patch.dict(os.environ, self.environment), chdir(self.repository):
            add_commits(
                self._git,
                [
                    (f"change {number}", {"level.py": f"MS = {level}\n", "bench.py": BENCH, "n": f"{number}"})
                    for number, level in enumerate(levels)
                ],
            )
        (self.repository / "level.py").write_text("MS = 99  # not committed\n")
        (self.repository / "new.txt").write_text("not tracked\n")
        self.before = everything(self.repository)

    def _git(self, *words: str) -> str:
        done = subprocess.run(
            ["git", *words],
            cwd=self.repository,
            env=self.environment,
            capture_output=True,
            text=True,
            check=True,
        )
        return done.stdout.strip()

    @cached_property
    def environment(self) -> dict[str, str]:
        """The variables of all calls, which are the same: they are part of what is measured."""
        variables = {
            MARK: str(self.folder),
            "TMPDIR": str(self.folder / "temporary"),
            "XDG_CACHE_HOME": str(self.folder / "cache"),
            "PYTHONPATH": str(ROOT),
            "PYTHONDONTWRITEBYTECODE": "1",
            "OMP_NUM_THREADS": "1",
            "GIT_CONFIG_GLOBAL": "/dev/null",
            "GIT_CEILING_DIRECTORIES": str(self.folder),
        }
        for role in ("AUTHOR", "COMMITTER"):
            variables |= {f"GIT_{role}_NAME": "Tester", f"GIT_{role}_EMAIL": "tester@example.org"}
        return {**os.environ, **variables}

    @property
    def words(self) -> list[str]:
        """The arguments of tracekit."""
        store = ["--store", str(self.store.path)]
        bench = ["--", sys.executable, "-ES", "bench.py"]
        match self.name:
            case "ab":
                design = ["--metric", "step_time", "--repeat", "3", "--max-repeat", "3"]
                return ["ab", "HEAD~4", "HEAD", *store, *VALUE, *design, *bench]
            case "bisect":
                return ["bisect", "HEAD~4..HEAD", *store, *VALUE, *bench]
            case "sweep":
                sizes = ["--batch-size", "8,16,32", "--device", "cpu", "--steps", "1", "--warmup", "0"]
                workload = ["--workload", "lennard_jones", "--threads", "1", "--format", "json"]
                return ["sweep", *workload, *sizes, *store]
        design = ["--change", "foreach", "--repeat", "2", "--max-repeat", "2", "--format", "json"]
        return ["try", *design, *store, "--", sys.executable, "x.py"]

    def call(
        self, number: int = signal.SIGKILL, pattern: str = "", count: int = NEVER, *, inside: int = NEVER
    ) -> Ended:
        """Measure, until it ends or is ended.

        Args:
            number: A signal.
            pattern: Operations at which it may come.
            count: At which of them it comes.
            inside: Run of the program in which it comes instead.
        """
        before = self.runs
        (self.folder / "hit").write_bytes(b"")
        command = [sys.executable, "-m", "tests.integration.experiment_kills", "child"]
        wanted = before + inside if inside > 0 else NEVER
        child = subprocess.Popen(
            [*command, str(int(number)), pattern, str(count), str(wanted), *self.words],
            cwd=self.repository,
            env=self.environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        out, err = child.communicate(timeout=HANG_SECONDS)
        hit = (self.folder / "hit").read_text() or ("in the program" if child.returncode < 0 else "")
        return Ended(child.returncode, out, err, self.runs - before, hit)

    @property
    def runs(self) -> int:
        """How often the program ran."""
        return len((self.folder / "log").read_text().splitlines())

    @property
    def operations(self) -> int:
        """Operations on files of the last call, if it ended by itself."""
        return int((self.folder / "operations").read_text())

    def forget(self) -> None:
        """Begin again with an empty store."""
        shutil.rmtree(self.store.path, ignore_errors=True)

    @cached_property
    def whole(self) -> Ended:
        """A call that nothing ends."""
        self.forget()
        ended = self.call()
        self.check(ended, NEVER)
        return ended

    def check(self, ended: Ended, number: int) -> None:
        """After a call, maybe ended by a signal: nothing runs on, and nothing of the user's is touched."""
        expected = {signal.SIGKILL: -9, signal.SIGTERM: 143, signal.SIGINT: 130}.get(number, ended.code)
        assert ended.code == expected, (ended.code, ended.hit, ended.err)
        assert "Traceback" not in ended.err, (ended.hit, ended.err)
        self._wait_for_others()
        now = everything(self.repository)
        self.was_killed = number == signal.SIGKILL or (self.was_killed and number != NEVER)
        if self.was_killed:  # the next call that ends by itself removes what git notes of worktrees
            now = {path: state for path, state in now.items() if not path.startswith(".git/worktrees/")}
        assert now == self.before, ended.hit
        for run in self.store.runs():
            assert verify(run).damage == (), (run.path, ended.hit)

    def _wait_for_others(self) -> None:
        found = []
        for process in psutil.process_iter():
            with suppress(psutil.Error):
                if process.environ().get(MARK) == str(self.folder):
                    found.append(process)
        _, left = psutil.wait_procs(found, timeout=HANG_SECONDS / 4)
        assert [process for process in left if process.status() != psutil.STATUS_ZOMBIE] == []

    def check_resumed(self, ended: Ended, most: int) -> None:
        """After a call that went on: the answer is that of an uninterrupted one, and nothing is left.

        Args:
            ended: The call.
            most: Runs that it may have taken.
        """
        self.check(ended, NEVER)
        assert ended.code == self.whole.code, ended.err
        assert self.conclude(ended) == self.conclude(self.whole)
        assert ended.runs <= most, (ended.runs, most)
        here = {"XDG_CACHE_HOME": str(self.folder / "cache"), "TMPDIR": str(self.folder / "temporary")}
        with patch.dict(os.environ, here), patch("tempfile.tempdir", None):
            for one in list(leftovers(self.store)):
                assert free(one).complete, one
        if self.name in {"ab", "try"}:
            kept = {path.name for path in (self.store.path / f".{self.name}").iterdir()}
            assert kept <= {"lock", "measured.jsonl"}, kept
        assert list(self.store.path.glob(".tmp-*")) == []
        assert list((self.store.path / ".worktrees").glob("*")) == []
        assert len(self._git("worktree", "list").splitlines()) == 1

    def conclude(self, ended: Ended) -> Any:
        """What a call found."""
        answer = json.loads(ended.out)
        match self.name:
            case "ab":
                return answer["verdict"], answer["design"]["order"]
            case "bisect":
                return [culprit["at"]["key"] for culprit in answer["culprits"]]
            case "sweep":
                return [(row["batch_size"], row["outcome"]) for row in answer["rows"]]
        return [(outcome["changes"], outcome["status"]) for outcome in answer["outcomes"]]


class Hook:
    """Counts the operations on files that match a pattern, and sends this process a signal at one of them."""

    def __init__(self, number: int, pattern: str, at: int, folder: Path) -> None:
        self._number, self._pattern, self._at = number, re.compile(pattern), at
        self._hit = os.open(folder / "hit", os.O_WRONLY)
        self._lock = threading.RLock()
        self.count = 0

    def __call__(self, name: str, arguments: tuple[Any, ...]) -> None:
        """Note an operation."""
        if name == "open":
            path, _, flags = arguments
            if not isinstance(path, (str, bytes, os.PathLike)) or not flags & WRITES or path == os.devnull:
                return
            what = f"open {os.fsdecode(path)}"
        elif name == "subprocess.Popen":
            words = arguments[1] if isinstance(arguments[1], (list, tuple)) else [arguments[1]]
            what = f"{name} {' '.join(map(str, words))}"
        elif name in OPERATIONS or name == "tests.report":
            what = " ".join(map(str, (name, *arguments)))
        else:
            return
        if not self._pattern.search(what):
            return
        with self._lock:
            self.count += 1
            hit = self.count == self._at
        if hit:
            os.pwrite(self._hit, what[:200].encode(errors="replace"), 0)
            os.kill(os.getpid(), self._number)


class _Stdout(io.TextIOWrapper):
    """Standard output, of which each text is an operation."""

    def write(self, text: str) -> int:
        sys.audit("tests.report")
        return super().write(text)


def child(number: str, pattern: str, count: str, inside: str, *words: str) -> None:
    """Be the process of a call; its arguments are those of `Experiment.call`."""
    folder = Path(os.environ[MARK])
    signal.signal(signal.SIGINT, signal.default_int_handler)  # which a shell's background jobs ignore
    from tracekit.cli.main import main as tracekit

    (folder / "inside").write_text(f"{inside} {number} {os.getpid()}")
    if words[0] == "sweep":
        from tracekit.collectors import workload_process

        workload_process.COMMAND = (sys.executable, str(folder / "played.py"))
    if words[0] == "try":
        from tracekit.experiments import measure

        measure.MAIN = RECORDED
    sys.stdout = _Stdout(open(1, "wb", buffering=0, closefd=False), write_through=True)  # type: ignore[arg-type]  # noqa: SIM115
    hook = Hook(int(number), pattern, int(count), folder)
    sys.addaudithook(hook)
    atexit.register(lambda: (folder / "operations").write_text(str(hook.count)))
    tracekit(list(words))


def kill_at_random(experiment: Experiment, times: int, *, seed: int) -> list[Ended]:
    """Kill it so often at random operations; each call goes on from the one before, and some may end."""
    chosen, kills, since = random.Random(f"{experiment.name} {seed}"), [], 0
    whole, operations = experiment.whole, experiment.operations
    experiment.forget()
    while len(kills) < times:
        number = chosen.choice(SIGNALS)
        ended = experiment.call(number, "", chosen.randint(1, operations))
        if ended.hit:
            experiment.check(ended, number)
            kills.append(ended)
            since += 1
        if since == 5 or not ended.hit:
            experiment.check_resumed(experiment.call() if ended.hit else ended, whole.runs)
            experiment.forget()
            since = 0
    return kills


def main(times: int, names: list[str]) -> None:
    """Kill each equally often, and print at which operations it was hit."""
    for name in names:
        with TemporaryDirectory() as folder:
            kills = kill_at_random(Experiment(Path(folder).resolve(), name), times // len(names), seed=1)
        hit = Counter(kill.hit.split()[0] for kill in kills)
        sys.stdout.write(f"{name}: {len(kills)} kills, all resumed: {dict(hit.most_common())}\n")
        sys.stdout.flush()


if __name__ == "__main__":
    if sys.argv[1] == "child":
        child(*sys.argv[2:])
    else:
        main(int(sys.argv[1]), sys.argv[2:] or list(EXPERIMENTS))
