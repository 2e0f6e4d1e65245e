from __future__ import annotations

import errno
import os
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest

from tests.environment import HANG_SECONDS
from tracekit.storage import locks

ROOT = Path(__file__).parents[3]
HOLD = """
import sys
from pathlib import Path
from tracekit.storage import locks
with locks.hold(Path(sys.argv[1])):
    print("held", flush=True)
    sys.stdin.read()
"""


def ended() -> int:
    """The id of a process that has ended."""
    process = subprocess.Popen([sys.executable, "-c", ""])
    process.wait()
    return process.pid


def test_what_this_process_made_is_not_dead() -> None:
    assert not locks.is_dead(locks.new_mark())
    assert locks.new_mark() != locks.new_mark()


def test_what_an_ended_process_made_is_dead() -> None:
    assert locks.is_dead(f"{ended()}.17-0a")
    assert locks.is_dead(f"{ended()}-0a")


def test_a_process_that_got_the_same_id_later_is_not_the_owner() -> None:
    began = int(locks.new_mark().partition(".")[2].partition("-")[0])
    assert locks.is_dead(f"{os.getpid()}.{began - 1}-0a")
    assert not locks.is_dead(f"{os.getpid()}.{began}-0a")
    assert not locks.is_dead(f"{os.getpid()}-0a")


def test_a_process_nobody_has_taken_leave_of_is_dead() -> None:
    with subprocess.Popen([sys.executable, "-c", ""], stdout=subprocess.PIPE) as process:
        assert process.stdout
        process.stdout.read()  # it closes its output when it ends
        give_up = time.monotonic() + HANG_SECONDS
        while psutil.Process(process.pid).status() != psutil.STATUS_ZOMBIE:
            assert time.monotonic() < give_up
        assert locks.is_dead(f"{process.pid}-0a")


def test_other_names_are_nobodys() -> None:
    for name in ("", "x", "12", "12-", "-0a", "12.3", "12.3-0a/..", "12.3-0a\n"):
        assert not locks.is_dead(name)


def test_a_folder_that_is_held_is_not_abandoned_whatever_its_name_says(tmp_path: Path) -> None:
    name = f"{ended()}.17-0a"
    folder = tmp_path / name
    folder.mkdir()
    assert locks.is_abandoned(folder, name)
    with subprocess.Popen(
        [sys.executable, "-c", HOLD, str(folder)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, cwd=ROOT
    ) as holder:
        assert holder.stdout
        assert holder.stdout.readline() == b"held\n"
        assert not locks.is_abandoned(folder, name)
        holder.kill()
    assert locks.is_abandoned(folder, name)


def test_a_link_is_held_by_nobody(tmp_path: Path) -> None:
    name = f"{ended()}.17-0a"
    (tmp_path / "there").mkdir()
    (tmp_path / name).symlink_to(tmp_path / "there")
    with locks.hold(tmp_path / "there"):
        assert locks.is_abandoned(tmp_path / name, name)


def test_a_lock_is_held_once_and_free_after_its_holder(tmp_path: Path) -> None:
    with locks.hold(tmp_path / "lock") as first:
        assert first is True
        with locks.hold(tmp_path / "lock", blocking=False) as second:
            assert second is False
        with locks.hold_abandoned(tmp_path / "lock") as free:
            assert not free
    with locks.hold_abandoned(tmp_path / "lock") as free:
        assert free


def test_a_file_system_without_locks_is_told_from_a_held_lock(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(_descriptor: int, _operation: int) -> None:
        raise OSError(errno.ENOLCK, "No locks available")

    monkeypatch.setattr(locks.fcntl, "flock", refuse)
    with locks.hold(tmp_path / "lock") as held:
        assert held is None
    with locks.hold_abandoned(tmp_path / "lock") as free:
        assert not free
