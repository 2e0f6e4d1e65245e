"""The supervisor finds hangs, crashes, exceptions and excessive memory, and continues."""

from __future__ import annotations

import json
import os
import sys
from dataclasses import asdict
from typing import TYPE_CHECKING, NoReturn

import pytest

from fuzz import __main__ as command
from fuzz.case import Case, unpack
from fuzz.readers import READERS
from fuzz.supervisor import fuzz
from fuzz.worker import Task

if TYPE_CHECKING:
    from pathlib import Path
    from random import Random

STAND_IN = "stand_in"
HANGS, DIES, RAISES, GROWS, STOP = 2, 4, 5, 7, 9


def make(random: Random) -> Case:
    return Case(files={"n": random.randbytes(4)}, main="n")


def read(case: Case, folder: Path) -> bool:
    number = int((folder.parent / "number").read_text().split()[0])
    match number:
        case 2:
            _hang()
        case 4:
            os.abort()
        case 5:
            raise KeyError("a defect")
        case 7:
            bytearray(b"x" * (200 << 20))
    return case.write(folder).exists()


def _hang() -> NoReturn:
    while True:
        pass


@pytest.fixture
def stand_in(monkeypatch: pytest.MonkeyPatch) -> None:
    """Use this module as a reader."""
    monkeypatch.setitem(sys.modules, f"fuzz.readers.{STAND_IN}", sys.modules[__name__])
    loaded = f"import sys, tests.fuzz.test_supervisor as m; sys.modules['fuzz.readers.{STAND_IN}'] = m; "
    code = loaded + "import json, fuzz.worker as w; w.work(w.Task(**json.loads(sys.argv[1])))"
    monkeypatch.setattr(
        "fuzz.supervisor.command", lambda task: [sys.executable, "-c", code, json.dumps(asdict(task))]
    )


@pytest.mark.usefixtures("stand_in")
@pytest.mark.slow
def test_a_session_continues_after_defects(tmp_path: Path) -> None:
    task = Task(
        reader=STAND_IN, seed=0, first=0, stop=STOP, memory=100 << 20, work="", found=str(tmp_path / "found")
    )
    large = bytearray(b"x" * (400 << 20))  # memory of the supervisor does not count
    outcome = fuzz(task, seconds=3)
    del large
    assert outcome.inputs == STOP
    assert outcome.found == {
        "hang": 1,
        "died with exit code -6": 1,
        "KeyError in test_supervisor.py, read": 1,
        "memory": 1,
    }
    saved = {path.stem: unpack(path.read_bytes()) for path in (tmp_path / "found").glob("*.zip")}
    assert set(saved) == {f"{STAND_IN}-0-{number}" for number in (HANGS, DIES, RAISES, GROWS)}


def test_the_command_prints_a_summary(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert command.main(["nsys", "--inputs", "20", "--found", str(tmp_path)]) == 0
    out = capsys.readouterr().out
    assert out.startswith("20 inputs, ")
    assert out.endswith("no defect\n")


def test_help_lists_every_reader(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        command.main(["--help"])
    out = capsys.readouterr().out
    assert all(f"just fuzz {name}" in out for name in READERS)
