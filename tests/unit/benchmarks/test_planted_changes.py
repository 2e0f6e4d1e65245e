"""Planted programs of the evaluation of `tracekit try`: what mends them, and what is concluded."""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING, Any

from benchmarks.planted_changes import (
    TURNS,
    Planted,
    Results,
    clean,
    describe,
    mend,
    planted,
    summarize,
    take_turns,
    time_pair,
)
from tracekit.recording.changes import available

if TYPE_CHECKING:
    from pathlib import Path

    import pytest


def test_each_right_change_exists_and_mends_one_place() -> None:
    programs = [*planted(), *clean()]
    assert len({program.name for program in programs}) == 50
    for program in programs:
        assert program.right <= available().keys()
        for change in program.right:
            assert mend(program, change) != program.source
            compile(mend(program, change), program.name, "exec")


def test_two_programs_run_ten_steps_each_in_turn(tmp_path: Path) -> None:
    source = """
import time
for step in range({steps}):
    if step == 1:
        began = time.perf_counter()
    with open("order", "a") as order:
        order.write("{name}")
print("step:", (time.perf_counter() - began) / step)
"""
    (tmp_path / "turns.py").write_text(TURNS)
    for name in ("a", "b"):
        (tmp_path / f"{name}.py").write_text(take_turns(source.format(name=name, steps=35)))
    commands = [[sys.executable, f"{name}.py"] for name in ("a", "b")]
    times = time_pair(commands, str(tmp_path), sorted(os.sched_getaffinity(0))[:1])
    assert all(time > 0 for time in times)
    assert (tmp_path / "order").read_text() == 3 * (10 * "a" + 10 * "b") + 5 * "a" + 5 * "b"


def _result(change: str, status: str, **more: Any) -> dict[str, Any]:
    outcome = {"status": status, "ratio": 0.5, "ci95": [0.4, 0.6], "predicted": None}
    return {"outcomes": {change: outcome}, "error": "", "seconds": 1.0, **more}


def test_results_are_kept_and_judged(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    right = Planted("slow", "", frozenset({"foreach"}))
    sound = Planted("sound", "")
    results = Results(tmp_path / "results")
    results.add(right, _result("foreach", "helps"))
    assert summarize([right, sound], results) == 0  # not complete
    results.add(sound, _result("foreach", "no effect"))
    again = Results(tmp_path / "results")
    assert summarize([right, sound], again) == 0
    again.add(right, _result("foreach", "helps", truth=["foreach", 0.7, [0.6, 0.8], False]))
    assert summarize([right, sound], again) == 1
    again.add(right, _result("fused", "helps"))
    assert summarize([right, sound], again) == 1
    again.add(right, _result("foreach", "helps"))
    again.add(sound, _result("foreach", "helps"))
    assert summarize([right, sound], again) == 1
    assert "NOT FOUND" in describe(right, _result("foreach", "cannot tell"))
    assert "FALSE" in capsys.readouterr().out
