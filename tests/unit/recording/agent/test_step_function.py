"""Which calls of a named function are steps."""

from __future__ import annotations

import asyncio
import sys
from types import ModuleType

import pytest

from tracekit.recording.agent.step_hooks import StepFunction

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


def test_a_script_is_watched_only_until_the_definition(monkeypatch: pytest.MonkeyPatch) -> None:
    script, reports = ModuleType("__main__"), list[str]()
    monkeypatch.setitem(sys.modules, "__main__", script)
    function = StepFunction("__main__:step", began=lambda: None, ended=lambda: reports.append("ended"))
    former = sys.getprofile()
    sys.setprofile(None)
    try:
        function.wait_in_script()
        assert sys.getprofile() is not None
        exec("def before(): pass\nbefore()\ndef step(): pass\nbefore()\nstep()", vars(script))  # noqa: S102
        assert sys.getprofile() is None
    finally:
        sys.setprofile(former)
    assert reports == ["ended"]
