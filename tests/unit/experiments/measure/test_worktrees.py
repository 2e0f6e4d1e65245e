"""Worktrees: beside the user's tree, which stays as it is bit by bit, and gone whatever happens."""

from __future__ import annotations

import hashlib
import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.repositories import add_submodule
from tracekit.errors import RunNotFoundError, UnusableInputError
from tracekit.experiments.checkouts import FOLDER, changes, copy, find_missing_submodules, worktrees
from tracekit.storage import locks

if TYPE_CHECKING:
    from tests.conftest import Git
    from tracekit.runs.store import Store

HOLD = """
import sys, time
from pathlib import Path
from tracekit.cli.main import main
from tracekit.experiments.checkouts import worktrees
from tracekit.runs.store import Store
import tracekit.cli.main as cli

def hold(_arguments):
    with worktrees(Store(Path(sys.argv[1]))) as trees:
        trees.add("HEAD", name="base")
        print("ready", flush=True)
        time.sleep(600)

cli.run = hold
main()
"""


def everything(folder: Path) -> dict[str, str]:
    """Every file below a folder with its mode, time and content, `.git` with its index included."""
    return {
        str(path.relative_to(folder)): f"{path.stat().st_mode} {path.stat().st_mtime_ns}"
        + hashlib.sha256(path.read_bytes()).hexdigest()
        for path in sorted(folder.rglob("*"))
        if path.is_file()
    }


def left(store: Store) -> list[str]:
    return [path.name for path in (store.path / FOLDER).iterdir()]


def dirty() -> Path:
    """The repository with changes of every kind."""
    root = Path.cwd()
    for name in ("deleted.txt", "staged.txt", "tool.sh"):
        (root / name).write_text("before\n")
    (root / ".gitignore").write_text("ignored\n")
    subprocess.run(["git", "add", "."], check=True)
    subprocess.run(["git", "commit", "--quiet", "--message=second"], check=True)
    (root / "file.txt").write_bytes(b"two\r\n\0")
    (root / "staged.txt").write_text("after\n")
    subprocess.run(["git", "add", "staged.txt"], check=True)
    (root / "deleted.txt").unlink()
    (root / "tool.sh").chmod(0o755)
    (root / "ignored").write_text("no\n")
    (root / "new folder").mkdir()
    (root / "new folder" / "nëw\n.txt").write_text("new\n")
    (root / "link").symlink_to("file.txt")
    return root


def test_commits_lie_side_by_side_and_vanish(git: Git, store: Store) -> None:
    Path("file.txt").write_text("two\n")
    git("commit", "--quiet", "--all", "--message=second")
    with worktrees(store) as trees:
        base, head = trees.add("HEAD~1", name="base"), trees.add("HEAD")
        assert [(tree / "file.txt").read_text() for tree in (base, head)] == ["one\n", "two\n"]
        assert head.name == git("rev-parse", "HEAD")
    assert left(store) == []
    assert git("worktree", "list").count("\n") == 0


def test_the_users_tree_and_index_stay_as_they_are(git: Git, store: Store) -> None:
    root = dirty()
    git("stash", "list")
    before = everything(root)
    with worktrees(store) as trees:
        (trees.add("HEAD~1", name="base") / "file.txt").write_text("changed by the program\n")
        copy(trees, changes(root), name="head")
    assert everything(root) == before


def test_submodules_come_from_the_users_clones(git: Git, store: Store, tmp_path: Path) -> None:
    first = add_submodule(git, tmp_path, "one\n")
    Path("deep lib/inner.py").write_text("two\n")
    git("-C", "deep lib", "commit", "--quiet", "--all", "--message=two")
    git("commit", "--quiet", "--all", "--message=moved")
    git("rm", "--quiet", "deep lib")
    git("commit", "--quiet", "--message=removed")
    before = everything(Path.cwd())
    with worktrees(store) as trees:
        found = [trees.add(name, name=name[-1]) for name in ("HEAD", "HEAD~1", "HEAD~2")]
        texts = [(tree / "deep lib/inner.py") for tree in found]
        assert [path.read_text() if path.exists() else None for path in texts] == [None, "two\n", "one\n"]
        assert [find_missing_submodules(tree) for tree in found] == [[], [], []]
        assert git("-C", str(found[2] / "deep lib"), "rev-parse", "HEAD") == first
        assert not git("-C", str(found[2]), "status", "--porcelain")
    assert everything(Path.cwd()) == before
    assert left(store) == []


def test_a_submodule_without_a_clone_is_left_out_and_one_without_the_commit_is_said(
    git: Git, store: Store, tmp_path: Path
) -> None:
    add_submodule(git, tmp_path, "one\n")
    git("update-index", "--cacheinfo", f"160000,{'1' * 40},deep lib")
    git("commit", "--quiet", "--message=elsewhere")
    with worktrees(store) as trees, pytest.raises(UnusableInputError, match="has no commit 111111111"):
        trees.add("HEAD")
    shutil.rmtree(".git/modules")
    shutil.rmtree("deep lib")
    with worktrees(store) as trees:
        assert find_missing_submodules(trees.add("HEAD")) == ["deep lib"]


def test_a_lock_that_goes_while_it_is_asked_for_is_not_taken(tmp_path: Path) -> None:
    with locks.new_lock(tmp_path) as lock:
        pass
    with locks.hold_abandoned(lock) as free:
        assert not free
    swept, taken = tmp_path / "swept", locks._lock
    swept.write_text("")

    def taken_and_gone(descriptor: int, *, blocking: bool) -> bool | None:
        swept.unlink()
        return taken(descriptor, blocking=blocking)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(locks, "_lock", taken_and_gone)
        with locks.hold_abandoned(swept) as free:
            assert not free


def test_no_hook_of_the_user_runs(git: Git, store: Store) -> None:
    hook = Path(git("rev-parse", "--git-path", "hooks")) / "post-checkout"
    hook.parent.mkdir(exist_ok=True)
    hook.write_text("#!/bin/sh\necho ran > hooked\n")
    hook.chmod(0o755)
    with worktrees(store) as trees:
        assert not (trees.add("HEAD") / "hooked").exists()
    assert not Path("hooked").exists()


def test_an_error_leaves_nothing(git: Git, store: Store) -> None:
    def fail() -> None:
        with worktrees(store) as trees:
            trees.add("HEAD")
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        fail()
    assert left(store) == []
    assert git("worktree", "list").count("\n") == 0


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_a_signal_leaves_nothing(number: signal.Signals, git: Git, store: Store) -> None:
    held = _held(store)
    held.send_signal(number)
    held.communicate()
    assert held.returncode != 0
    assert left(store) == []
    assert git("worktree", "list").count("\n") == 0


def test_what_a_killed_process_left_is_swept_and_a_living_ones_is_not(git: Git, store: Store) -> None:
    killed, living = _held(store), _held(store)
    killed.kill()
    killed.communicate()
    assert git("worktree", "list").count("\n") == 2
    with worktrees(store):
        pass
    assert {name.partition("-")[0] for name in left(store)} == {str(living.pid)}
    assert git("worktree", "list").count("\n") == 1
    living.kill()
    living.communicate()


def test_a_worktree_of_the_user_that_is_away_is_kept(git: Git, store: Store, tmp_path: Path) -> None:
    git("worktree", "add", "--quiet", "--detach", str(tmp_path / "own"))
    (tmp_path / "own").rename(tmp_path / "away")
    with worktrees(store) as trees:
        trees.add("HEAD")
    (tmp_path / "away").rename(tmp_path / "own")
    assert str(tmp_path / "own") in git("worktree", "list")


def test_what_cannot_be_checked_out_says_why(git: Git, store: Store, tmp_path: Path) -> None:
    with worktrees(store) as trees, pytest.raises(RunNotFoundError, match="no git revision 'gone'"):
        trees.add("gone")
    with pytest.raises(UnusableInputError, match="not in a git repository"), worktrees(store, tmp_path):
        pass


def test_a_snapshot_holds_every_change_and_nothing_ignored(git: Git, store: Store) -> None:
    root = dirty()
    found = changes(root)
    assert found.paths == ("deleted.txt", "file.txt", "link", "new folder/nëw\n.txt", "staged.txt", "tool.sh")
    with worktrees(store) as trees:
        tree = copy(trees, found, name="head")
        assert (tree / "file.txt").read_bytes() == b"two\r\n\0"
        assert (tree / "staged.txt").read_text() == "after\n"
        assert (tree / "new folder" / "nëw\n.txt").read_text() == "new\n"
        assert (tree / "link").readlink() == Path("file.txt")
        assert os.access(tree / "tool.sh", os.X_OK)
        assert not (tree / "deleted.txt").exists()
        assert not (tree / "ignored").exists()
        assert changes(tree) == found


def test_the_hash_of_changes_follows_their_content(git: Git) -> None:
    assert changes(Path.cwd()).sha256 is None
    Path("new.txt").write_text("one\n")
    first = changes(Path.cwd()).sha256
    Path("new.txt").write_text("two\n")
    assert None is not first != changes(Path.cwd()).sha256
    assert git("status", "--porcelain") == "?? new.txt"


def _held(store: Store) -> subprocess.Popen[str]:
    held = subprocess.Popen(
        [sys.executable, "-c", HOLD, str(store.path)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert held.stdout
    assert held.stdout.readline() == "ready\n"
    return held
