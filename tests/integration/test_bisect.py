"""`tracekit bisect` with real repositories; values are planted, so that no timing decides.

One test measures in real processes as well, and so does the slow tier; the others measure in this process,
and those of decisions in plain folders.
"""

from __future__ import annotations

import json
import os
import re
import shlex
import signal
import subprocess
import sys
from collections.abc import Mapping
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from tests.environment import HANG_SECONDS
from tests.measured import run_here
from tests.repositories import add_commits
from tests.tiers import thinned
from tracekit.cli.main import run
from tracekit.experiments import process
from tracekit.experiments.checkouts import Worktrees

if TYPE_CHECKING:
    from tests.conftest import Git

PROGRAM = """
import random, sys
from pathlib import Path
counter = Path(sys.argv[1])
counter.write_text(counter.read_text() + ".")
noise = random.Random(len(counter.read_text())).gauss(0, 0.01)
print(f"step: {float(Path('level.txt').read_text()) * (1 + noise):.5f} ms")
"""
PYTHON = (sys.executable, "-ES")
"""Without the packages of the environment, which take longer to find than the program runs."""
COMMITS = 12
BROKEN = ["raise SystemExit('boom')", "raise SystemExit(125)", "print('no value')"]


@pytest.fixture
def _measured_here(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(process, "run", run_here)


@pytest.fixture
def _written_here(_measured_here: None, monkeypatch: pytest.MonkeyPatch) -> None:
    """Folders with the files of a commit stand in for its worktree."""

    def add(trees: Worktrees, revision: str) -> Path:
        tree = trees.folder / revision
        tree.mkdir()
        for name, text in CONTENTS[revision].items():
            (tree / name).write_text(text)
        return tree

    monkeypatch.setattr(Worktrees, "add", add)


measured_here = pytest.mark.usefixtures("_measured_here")
written_here = pytest.mark.usefixtures("_written_here")
CONTENTS: dict[str, Mapping[str, str]] = {}
"""Files of commits of histories."""


@pytest.fixture
def counter(tmp_path: Path) -> Path:
    """A file with a dot for each measurement that was made."""
    path = tmp_path / "counter"
    path.write_text("")
    return path


def history(
    git: Git, levels: Mapping[int, float], *, broken: Mapping[int, str] | None = None, commits: int = COMMITS
) -> list[str]:
    """Commits after a first one; from each number in `levels` on, a step takes that long."""
    level, made = 10.0, []
    for number in range(commits + 1):
        level = levels.get(number, level)
        files = {
            "level.txt": f"{level}\n",
            "number.txt": f"{number}\n",
            "bench.py": (broken or {}).get(number, PROGRAM),
        }
        made.append((f"change {number}", files))
    add_commits(git, made)
    shas = git("rev-list", "--reverse", f"--max-count={commits + 1}", "HEAD").splitlines()
    CONTENTS.update(zip(shas, (files for _, files in made), strict=True))
    return shas


def words(shas: list[str], counter: Path, *options: str) -> list[str]:
    """The arguments of a search over all commits."""
    store = counter.parent / "store"
    found = ["bisect", f"{shas[0]}..{shas[-1]}", "--store", str(store), "--value", "step: ([0-9.]+) ms"]
    found += ["--warmup", "0"]
    return [*found, "--format", "json", *options, "--", *PYTHON, "bench.py", str(counter)]


def search(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> tuple[int, dict[str, Any]]:
    code = run(arguments)
    out = capsys.readouterr().out
    return code, json.loads(out) if out else {}


def culprits(found: dict[str, Any], shas: list[str]) -> list[int]:
    return [shas.index(one["at"]["key"]) for one in found["culprits"]]


@pytest.mark.parametrize("planted", thinned([1, 8, 12], default=[8]))
def test_the_slow_commit_of_twelve_is_named_with_its_effect(
    git: Git, counter: Path, capsys: pytest.CaptureFixture[str], planted: int
) -> None:
    shas = history(git, {planted: 11.5})
    code, found = search(words(shas, counter), capsys)
    (culprit,) = found["culprits"]
    assert (code, found["schema"], found["exit_code"]) == (0, "tracekit.bisect/1", 0)
    assert (culprit["at"]["key"], culprit["before"]["key"]) == (shas[planted], shas[planted - 1])
    assert (culprit["at"]["title"], culprit["at"]["author"]) == (f"change {planted}", "Tester")
    assert culprit["at"]["date"] == git("show", "-s", "--format=%aI", shas[planted])
    assert culprit["ci95"][0] < 1.15 < culprit["ci95"][1]
    assert any(shas[planted][:12] in line for line in culprit["commands"])
    assert found["measured"] == len(counter.read_text()) < 3 * (COMMITS + 1)


@written_here
def test_each_measurement_is_a_line_with_value_number_and_what_is_left(
    git: Git, counter: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    shas = history(git, {2: 11.5}, commits=2)
    assert run(words(shas, counter)) == 0
    lines = capsys.readouterr().err.splitlines()
    assert len(lines) == len(counter.read_text())
    form = r"[0-2]/2 [0-9a-f]{12} change [0-2]: step_time [0-9.]+ ms \(n=[0-9]\), [0-9]+ s elapsed"
    assert all(re.fullmatch(form + "(, about [0-9]+ more in [0-9]+ s)?", line) for line in lines)
    assert "about 14 more" in lines[0]  # of both ends, a halving and the confirmation, three of each
    assert "more" not in lines[-1]


@pytest.mark.slow
def test_a_commit_that_got_faster_is_found_too(
    git: Git, counter: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    shas = history(git, {5: 8.0})
    assert culprits(search(words(shas, counter), capsys)[1], shas) == [5]


@pytest.mark.slow
def test_two_slow_commits_are_both_named(git: Git, counter: Path, capsys: pytest.CaptureFixture[str]) -> None:
    shas = history(git, {3: 11.5, 10: 13.0})
    assert culprits(search(words(shas, counter), capsys)[1], shas) == [3, 10]


@measured_here
def test_the_users_tree_is_as_it_was(git: Git, counter: Path, capsys: pytest.CaptureFixture[str]) -> None:
    shas = history(git, {2: 11.5}, commits=2)
    Path("level.txt").write_text("99\n")  # changes of the user's own
    assert culprits(search(words(shas, counter), capsys)[1], shas) == [2]
    assert (git("status", "--porcelain"), git("rev-parse", "HEAD")) == ("M level.txt", shas[-1])
    assert len(git("worktree", "list").splitlines()) == 1
    assert not list((counter.parent / "store").glob(".worktrees/*/*"))


@pytest.mark.slow
@pytest.mark.parametrize("program", BROKEN)
def test_a_broken_commit_is_left_out_and_named(
    git: Git, counter: Path, capsys: pytest.CaptureFixture[str], program: str
) -> None:
    shas = history(git, {9: 11.5}, broken={6: program})
    code, found = search(words(shas, counter), capsys)
    assert (code, culprits(found, shas)) == (0, [9])
    assert [one["key"] for one in found["broken"]] == [shas[6]]


@pytest.mark.slow
def test_a_culprit_among_broken_commits_is_one_of_several_suspects(
    git: Git, counter: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    shas = history(git, {6: 11.5}, broken={5: "raise SystemExit(1)", 6: "raise SystemExit(1)"})
    _, found = search(words(shas, counter), capsys)
    (culprit,) = found["culprits"]
    assert [one["key"] for one in culprit["suspects"]] == shas[5:8]


@pytest.mark.slow
def test_a_skipped_commit_is_not_measured(
    git: Git, counter: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    shas = history(git, {9: 11.5})
    _, found = search(words(shas, counter, "--skip", shas[6]), capsys)
    assert culprits(found, shas) == [9]
    assert [one["problem"] for one in found["log"] if one["key"] == shas[6]] == ["skipped by --skip"]


@written_here
def test_ends_that_do_not_differ_cannot_be_told_apart(
    git: Git, counter: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    code, found = search(words(history(git, {}), counter), capsys)
    assert (code, found["culprits"], found["found"]) == (3, [], False)
    assert found["ends"]["ratio"] == pytest.approx(1.0, abs=0.03)
    assert found["ends"]["mde"] > 0
    assert found["reason"]


@written_here
def test_a_change_below_the_threshold_is_not_searched(
    git: Git, counter: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    shas = history(git, {8: 11.5})
    code, found = search(words(shas, counter, "--threshold", "40%"), capsys)
    assert (code, found["measured"]) == (3, 6)
    assert found["reason"] == "the ends differ by less than the threshold of 40%"


@written_here
def test_an_end_that_cannot_be_measured_is_nothing_measured(
    git: Git, counter: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    shas = history(git, {8: 11.5}, broken={0: "raise SystemExit('it does not build')"})
    assert run(words(shas, counter)) == 5
    assert "it does not build" in capsys.readouterr().err


def test_no_ancestor_is_unusable(git: Git, counter: Path, capsys: pytest.CaptureFixture[str]) -> None:
    shas = history(git, {}, commits=1)
    assert run(words(shas[::-1], counter)) == 2
    assert "is not an ancestor of" in capsys.readouterr().err


@written_here
def test_a_second_call_takes_what_the_first_measured_and_measures_ends_and_jump(
    git: Git, counter: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    shas = history(git, {8: 11.5}, broken={6: "raise SystemExit(1)"})
    _, first = search(words(shas, counter), capsys)
    _, second = search(words(shas, counter), capsys)
    assert (second["measured"], second["cached"]) == (12, first["measured"] - 6)
    assert culprits(first, shas) == culprits(second, shas) == [8]
    assert [one["key"] for one in first["broken"]] == [shas[6]]


@pytest.mark.slow
def test_a_fresh_call_takes_nothing_of_the_first(
    git: Git, counter: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    shas = history(git, {8: 11.5}, broken={6: "raise SystemExit(1)"})
    _, first = search(words(shas, counter), capsys)
    _, fresh = search(words(shas, counter, "--fresh"), capsys)
    assert (fresh["measured"], fresh["cached"]) == (first["measured"], 0)


@pytest.mark.slow
def test_measurements_of_a_machine_that_changed_since_are_left_out(
    git: Git, counter: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    shas = history(git, {8: 11.5})
    search(words(shas, counter), capsys)
    (cache,) = (counter.parent / "store" / ".bisect").glob("*.jsonl")
    records = [json.loads(line) for line in cache.read_text().splitlines()]
    for record in records:  # as if the machine had been twice as fast
        record["values"]["step_time"] /= 2
    cache.write_text("".join(json.dumps(record) + "\n" for record in records))
    _, found = search(words(shas, counter), capsys)
    assert (found["cached"], culprits(found, shas)) == (0, [8])
    assert any("measurements of earlier calls were ignored" in note for note in found["notes"])


@pytest.mark.slow
def test_an_interrupted_search_goes_on_where_it_stopped(
    git: Git, counter: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The process is interrupted when it has measured the ends and one commit."""
    shas = history(git, {8: 11.5})
    child = subprocess.Popen(
        [sys.executable, "-c", "from tracekit.cli.main import main; main()", *words(shas, counter)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert child.stderr is not None
    for line in child.stderr:
        if "6/12" in line:
            os.kill(child.pid, signal.SIGINT)
            break
    out, err = child.communicate(timeout=HANG_SECONDS)
    assert (child.returncode, out) == (130, "")
    assert "run the same command to resume" in err
    assert len(git("worktree", "list").splitlines()) == 1
    _, found = search(words(shas, counter), capsys)
    assert culprits(found, shas) == [8]
    assert found["cached"] > 0


@written_here
def test_measurements_that_fill_caches_do_not_count(
    git: Git, counter: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    shas = history(git, {1: 11.5}, commits=1)
    _, found = search(words(shas, counter, "--warmup", "2"), capsys)
    assert (culprits(found, shas), found["measured"], len(counter.read_text())) == ([1], 6, 6 + 2 * 2)


@written_here
def test_only_commits_that_change_a_path_are_searched(
    git: Git, counter: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    shas = history(git, {4: 11.5})
    _, found = search(words(shas, counter, "--path", "level.txt"), capsys)
    assert (found["steps"], [one["at"]["key"] for one in found["culprits"]]) == (2, [shas[4]])
    assert "only commits that change level.txt were searched" in found["notes"][0]


@measured_here
def test_versions_of_a_package_are_prepared_and_searched(
    git: Git, counter: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    history(git, {}, commits=0)
    names = ["1.0", "1.1", "1.2", "2.0", "2.1"]
    prepare = "test {version} != 1.1 && case {version} in 1*) echo 10;; *) echo 12;; esac > level.txt"
    arguments = ["bisect", "--dep", "thing", "--versions", ",".join(names), "--prepare", prepare]
    arguments += ["--store", str(counter.parent / "store"), "--value", "step: (.+) ms", "--format", "json"]
    arguments += ["--warmup", "0"]
    code, found = search([*arguments, "--", *PYTHON, "bench.py", str(counter)], capsys)
    assert (code, [one["at"]["key"] for one in found["culprits"]]) == (0, ["2.0"])
    assert found["culprits"][0]["before"]["title"] == "thing 1.2"
    assert any("--prepare installed the version" in note for note in found["notes"])


@written_here
@pytest.mark.parametrize("output_format", thinned(["table", "markdown"], default=["table"]))
def test_people_read_culprit_effect_and_how_to_go_on(
    git: Git, counter: Path, capsys: pytest.CaptureFixture[str], output_format: str
) -> None:
    shas = history(git, {2: 11.5}, commits=3)
    arguments = words(shas, counter)
    arguments[arguments.index("json")] = output_format
    assert run(arguments) == 0
    out = capsys.readouterr().out
    for reported in (shas[2][:12], "change 2", "Tester", "tracekit ab", "interval"):
        assert reported in out


@written_here
def test_the_command_to_reproduce_is_pasted_into_a_shell_and_asks_the_same(
    git: Git, counter: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    shas = history(git, {2: 11.5}, commits=3)
    arguments = words(shas, counter, "--threshold", "7.3%", "--skip", shas[1])
    arguments[1] = f"{shas[0]}.."
    _, found = search(arguments, capsys)
    again = found["reproduce"]
    assert again[again.index("--") - 1] == f"{shas[0][:12]}..{shas[-1][:12]}"  # HEAD moves on
    assert (
        subprocess.run(
            ["/bin/sh", "-c", f"printf '%s\\0' {shlex.join(again)}"],
            capture_output=True,
            check=True,
            text=True,
        ).stdout.split("\0")[:-1]
        == again
    )
    _, second = search(
        [*again[1 : again.index("--")], "--format", "json", *again[again.index("--") :]], capsys
    )
    assert second["reproduce"] == again
    assert second["cached"] > 0  # the same command, of the same store
    options = dict(pairwise(again))
    assert (options["--warmup"], options["--threshold"], options["--skip"]) == ("0", "7.3%", shas[1])
    assert "--repeat" not in again


@measured_here
def test_subjects_hold_whatever_a_message_holds(
    git: Git, counter: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    subject = "a\x1fb\x0cc\u2028<script> | `x`"
    shas = history(git, {1: 11.5}, commits=1)
    git("commit", "--quiet", "--amend", f"--message={subject}")
    _, found = search(words([shas[0], "HEAD"], counter), capsys)
    assert found["culprits"][0]["at"]["title"] == subject


def test_ends_that_hold_no_range_say_what_to_name(
    git: Git, counter: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    shas = history(git, {}, commits=2)
    git("checkout", "--quiet", "-b", "side", shas[1])
    git("commit", "--quiet", "--allow-empty", "--message=aside")
    side = git("rev-parse", "HEAD")
    for good, bad, says in (
        (shas[2], shas[0], f"the ends are reversed: use {shas[0][:12]}..{shas[2][:12]}"),
        (shas[1], shas[1], "both ends are"),
        (side, shas[2], f"their branches diverged at {shas[1][:12]}"),
    ):
        assert run(words([good, bad], counter)) == 2
        assert says in capsys.readouterr().err
