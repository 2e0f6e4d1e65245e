"""Commits and their order: long histories, merges, messages of any characters, clones without history."""

from __future__ import annotations

import itertools
import random
import resource
import subprocess
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.unit.experiments.check.recorded import commit
from tracekit.errors import UnusableInputError
from tracekit.runs import revisions

if TYPE_CHECKING:
    from tests.conftest import Git


def counted(git: Git, commits: set[str], head: str) -> dict[str, int]:
    """The definition, asked of git once for each commit."""
    ancestors = set(git("rev-list", head).splitlines())
    return {sha: int(git("rev-list", "--count", f"{sha}..{head}")) for sha in commits & ancestors}


def test_distances_of_a_history_of_merges_are_those_that_git_counts(git: Git) -> None:
    tree, chance = git("rev-parse", "HEAD^{tree}"), random.Random(3)
    made = [git("rev-parse", "HEAD")]
    for number in range(15):
        parents = {chance.choice(made[-6:]), made[-1]} if number % 3 else {chance.choice(made[-6:])}
        words = itertools.chain.from_iterable(("-p", sha) for sha in sorted(parents))
        made.append(git("commit-tree", tree, *words, "-m", f"commit {number}"))
    wanted = {*made[::3], "0" * 40}
    for head in made[-2:]:
        found = revisions.nearest(wanted, head)
        assert dict(found) == counted(git, wanted, head)
        assert [far for _, far in found] == sorted(far for _, far in found)


@pytest.mark.slow
def test_more_commits_than_a_command_line_holds_are_described(git: Git) -> None:
    count, room = 13_500, 2 << 20
    limits = resource.getrlimit(resource.RLIMIT_STACK)  # a command line has a quarter of it
    resource.setrlimit(resource.RLIMIT_STACK, (room, limits[1]))
    try:
        with pytest.raises(OSError, match="Argument list too long"):
            subprocess.run(["true", *["0" * 40] * count], check=True)
        _described(git, count)
    finally:
        resource.setrlimit(resource.RLIMIT_STACK, limits)


def _described(git: Git, count: int) -> None:
    stream = "".join(
        f"commit refs/heads/long\ncommitter T <t@example.org> {number} +0000\ndata 3\nc{number % 10}\n\n"
        for number in range(1, count + 1)
    )
    subprocess.run(["git", "fast-import", "--quiet"], input=stream.encode(), check=True)
    first, last = git("rev-list", "--max-parents=0", "long"), git("rev-parse", "long")
    found = revisions.between(first, last)
    assert (len(found), found[-1].sha) == (count - 1, last)
    assert found[0].author_date.startswith("1970-01-01T00:00:02")
    assert revisions.nearest([first], last) == [(first, count - 1)]


@pytest.mark.parametrize("subject", ["a\x1fb", "a\x0cb", "a\x85b", "a\u2028b", "ä ö", "a | b `c` <d>"])
def test_a_subject_may_hold_any_character(git: Git, subject: str) -> None:
    sha = commit(git, subject)
    assert revisions.describe([sha])[0].subject == subject


def test_what_a_user_wants_of_git_log_does_not_enter(
    git: Git, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = tmp_path / "config"
    config.write_text(
        "[log]\nshowSignature = true\n[i18n]\nlogOutputEncoding = latin1\n[color]\nui = always\n"
    )
    monkeypatch.setenv("GIT_CONFIG_GLOBAL", str(config))
    assert revisions.describe([commit(git, "Ä")])[0].subject == "Ä"


def test_a_commit_that_was_rebased_away_is_not_a_matter_of_ancestors(git: Git) -> None:
    with pytest.raises(UnusableInputError, match="commit 111111111111 is not in this repository"):
        revisions.merge_base(git("rev-parse", "HEAD"), "1" * 40)


def test_a_shallow_clone_is_known_as_one(git: Git, tmp_path: Path) -> None:
    commit(git, "second")
    clone = tmp_path / "clone"
    git("clone", "--quiet", "--depth=1", f"file://{Path.cwd()}", str(clone))
    assert not revisions.is_shallow()
    assert revisions.is_shallow(cwd=clone)
