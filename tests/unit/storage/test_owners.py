from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

import psutil

from tracekit.storage import owners

ROOT = Path(__file__).parents[3]
HOLD = """
import sys
from pathlib import Path
from tracekit.storage import owners
with owners.holding(Path(sys.argv[1])):
    print("held", flush=True)
    sys.stdin.read()
"""


def ended() -> int:
    """The id of a process that has ended."""
    process = subprocess.Popen([sys.executable, "-c", ""])
    process.wait()
    return process.pid


def test_what_this_process_made_is_not_dead() -> None:
    assert not owners.is_dead(owners.mark())
    assert owners.mark() != owners.mark()


def test_what_an_ended_process_made_is_dead() -> None:
    assert owners.is_dead(f"{ended()}.17-0a")
    assert owners.is_dead(f"{ended()}-0a")


def test_a_process_that_got_the_same_id_later_is_not_the_owner() -> None:
    began = int(owners.mark().partition(".")[2].partition("-")[0])
    assert owners.is_dead(f"{os.getpid()}.{began - 1}-0a")
    assert not owners.is_dead(f"{os.getpid()}.{began}-0a")
    assert not owners.is_dead(f"{os.getpid()}-0a")


def test_a_process_nobody_has_taken_leave_of_is_dead() -> None:
    with subprocess.Popen([sys.executable, "-c", ""], stdout=subprocess.PIPE) as process:
        assert process.stdout
        process.stdout.read()  # it closes its output when it ends
        give_up = time.monotonic() + 60
        while psutil.Process(process.pid).status() != psutil.STATUS_ZOMBIE:
            assert time.monotonic() < give_up
        assert owners.is_dead(f"{process.pid}-0a")


def test_other_names_are_nobodys() -> None:
    for name in ("", "x", "12", "12-", "-0a", "12.3", "12.3-0a/..", "12.3-0a\n"):
        assert not owners.is_dead(name)


def test_a_folder_that_is_held_is_not_abandoned_whatever_its_name_says(tmp_path: Path) -> None:
    name = f"{ended()}.17-0a"
    folder = tmp_path / name
    folder.mkdir()
    assert owners.is_abandoned(folder, name)
    with subprocess.Popen(
        [sys.executable, "-c", HOLD, str(folder)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, cwd=ROOT
    ) as holder:
        assert holder.stdout
        assert holder.stdout.readline() == b"held\n"
        assert not owners.is_abandoned(folder, name)
        holder.kill()
    assert owners.is_abandoned(folder, name)


def test_a_link_is_held_by_nobody(tmp_path: Path) -> None:
    name = f"{ended()}.17-0a"
    (tmp_path / "there").mkdir()
    (tmp_path / name).symlink_to(tmp_path / "there")
    with owners.holding(tmp_path / "there"):
        assert owners.is_abandoned(tmp_path / name, name)
