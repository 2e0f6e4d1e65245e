"""Which calls of a named function are steps."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from types import ModuleType
from typing import TYPE_CHECKING, Any

import pytest

from tracekit.recording.agent.step_hooks import StepFunction

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

SOURCE = """
class Trainer:
    def update(self, depth=0):
        return self.update(depth - 1) if depth else "updated"
    @staticmethod
    def evaluate():
        return "evaluated"
async def handle():
    return "handled"
def fail():
    raise ValueError("no step")
number = 1
"""


def wrapped(name: str) -> tuple[ModuleType, list[str], bool]:
    """A module whose function is wrapped, its reports, and whether the function was found."""
    module, reports = ModuleType("train"), list[str]()
    exec(SOURCE, vars(module))  # noqa: S102
    function = StepFunction(
        f"train:{name}", began=lambda: reports.append("began"), ended=lambda: reports.append("ended")
    )
    return module, reports, function.replace_in(module)


def test_a_nested_call_is_part_of_its_step() -> None:
    module, reports, _ = wrapped("Trainer.update")
    assert module.Trainer().update(depth=3) == "updated"
    assert module.Trainer().update() == "updated"
    assert reports == ["began", "ended"] * 2


@pytest.mark.parametrize("name", ["Trainer.evaluate", "handle"])
def test_static_methods_and_coroutines_keep_what_they_are(name: str) -> None:
    module, reports, found = wrapped(name)
    assert found
    result = module.Trainer.evaluate() if name == "Trainer.evaluate" else asyncio.run(module.handle())
    assert result in {"evaluated", "handled"}
    assert reports == ["began", "ended"]


def test_a_call_that_fails_ends_no_step_and_the_next_one_begins_anew() -> None:
    module, reports, _ = wrapped("fail")
    for _ in range(2):
        with pytest.raises(ValueError, match="no step"):
            module.fail()
    assert reports == ["began", "began"]


@pytest.mark.parametrize("name", ["missing", "Missing.update", "Trainer.missing", "number"])
def test_what_is_no_function_is_not_found(name: str) -> None:
    assert not wrapped(name)[2]


@pytest.mark.parametrize(
    ("watch", "watcher"),
    [(sys.settrace, sys.gettrace), (sys.setprofile, sys.getprofile)],
    ids=["alone", "under another tracer"],
)
def test_a_script_is_watched_only_until_the_definition(
    monkeypatch: pytest.MonkeyPatch, watch: Callable[[Any], None], watcher: Callable[[], Any]
) -> None:
    script, reports = ModuleType("__main__"), list[str]()
    monkeypatch.setitem(sys.modules, "__main__", script)
    function = StepFunction("__main__:step", began=lambda: None, ended=lambda: reports.append("ended"))
    former = sys.gettrace(), sys.getprofile()
    sys.settrace(None if watch is sys.settrace else lambda *_: None)
    sys.setprofile(None)
    try:
        function.wait_in_script()
        assert watcher() is not None
        exec("def before(): pass\nbefore()\ndef step(): pass\nbefore()\nstep()", vars(script))  # noqa: S102
        assert watcher() is None
    finally:
        sys.settrace(former[0])
        sys.setprofile(former[1])
    assert reports == ["ended"]


SCRIPT = """
import sys
from tracekit.recording.agent.step_hooks import StepFunction
reports = []
def wait():
    began, ended = (lambda: reports.append("began")), (lambda: reports.append("ended"))
    StepFunction(sys.argv[1], began=began, ended=ended).wait_in_script()
wait()
class Trainer:
    @staticmethod
    def fit(): print(reports, sys.gettrace(), sys.getprofile())
Trainer.fit()
def main(): Trainer.fit()
main()
"""
FIRST = "['began'] None None"
LATER = "['began', 'ended', 'began'] None None"


@pytest.mark.parametrize(
    ("name", "printed"), [("__main__:main", ["[] ", FIRST]), ("script:Trainer.fit", [FIRST, LATER])]
)
def test_the_call_in_the_line_after_the_definition_is_a_step(
    tmp_path: Path, name: str, printed: list[str]
) -> None:
    (tmp_path / "script.py").write_text(SCRIPT)
    lines = subprocess.check_output([sys.executable, str(tmp_path / "script.py"), name], text=True)
    assert all(map(str.startswith, lines.splitlines(), printed)), lines
