"""Modes of torch."""

from __future__ import annotations

import sys
from types import ModuleType

import pytest

from tracekit.recording.agent.settings import name_script, read_settings


def test_modes_of_the_calling_thread_are_read() -> None:
    torch = pytest.importorskip("torch")
    with torch.inference_mode(), torch.autocast("cpu"):
        modes = read_settings(torch)["modes"]
    assert modes["autocast"] == ["cpu bfloat16"]
    assert (modes["grad"], modes["inference"]) == (False, True)
    with torch.autograd.set_detect_anomaly(True):
        assert read_settings(torch)["modes"]["anomaly_detection"]
    assert "autocast" not in read_settings(torch)["modes"]


@pytest.mark.slow
def test_functions_that_are_compiled_again_are_read_with_the_guard_that_failed() -> None:
    torch = pytest.importorskip("torch")
    torch._dynamo.reset()
    torch._dynamo.utils.reset_frame_count()

    def scale(values: object, mode: str) -> object:
        return values + (1 if mode.endswith("1") else 2)  # type: ignore[operator]

    compiled = torch.compile(scale, backend="eager")
    with torch._dynamo.config.patch(recompile_limit=3):
        for number in range(5):
            compiled(torch.ones(2), f"m{number}")
    (again,) = read_settings(torch)["recompilations"]
    assert again.pop("function").startswith("test_settings.py(")
    assert again == {"recompilations": 2, "guard": "mode == 'm1'", "limit_reached": True}


def test_a_test_is_the_program_and_pytest_only_runs_it(monkeypatch: pytest.MonkeyPatch) -> None:
    assert name_script() == "test_settings::test_a_test_is_the_program_and_pytest_only_runs_it"
    monkeypatch.delitem(sys.modules, "_pytest")
    assert name_script() != "test_settings::test_a_test_is_the_program_and_pytest_only_runs_it"


def test_a_notebook_is_named_for_its_file(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("PYTEST_CURRENT_TEST", raising=False)
    monkeypatch.setitem(sys.modules, "ipykernel", ModuleType("ipykernel"))
    monkeypatch.setitem(sys.modules, "__main__", ModuleType("__main__"))
    monkeypatch.setenv("JPY_SESSION_NAME", "/home/me/mine.ipynb")
    assert name_script() == "mine"
    monkeypatch.delenv("JPY_SESSION_NAME")
    assert name_script() is None
