from __future__ import annotations

import io
import sys

import pytest

from tracekit.cli import progress


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.fixture(autouse=True)
def nothing_overrules(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("FORCE_COLOR", "TTY_COMPATIBLE"):
        monkeypatch.delenv(name, raising=False)


def test_a_terminal_is_drawn_on(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stderr", Terminal())
    found = progress.terminal_console()
    assert found is not None
    assert found.file is sys.stderr


@pytest.mark.parametrize("stream", [io.StringIO(), None])
def test_what_is_no_terminal_is_not(monkeypatch: pytest.MonkeyPatch, stream: io.StringIO | None) -> None:
    monkeypatch.setattr(sys, "stderr", stream)
    assert progress.terminal_console() is None


def test_what_is_closed_is_not(monkeypatch: pytest.MonkeyPatch) -> None:
    closed = io.StringIO()
    closed.close()
    monkeypatch.setattr(sys, "stderr", closed)
    assert progress.terminal_console() is None


@pytest.mark.parametrize("name", ["FORCE_COLOR", "TTY_COMPATIBLE"])
def test_colors_that_are_asked_for_make_no_terminal(monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    monkeypatch.setattr(sys, "stderr", io.StringIO())
    monkeypatch.setenv(name, "1")
    assert progress.terminal_console() is None


def test_a_terminal_that_understands_nothing_is_left_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stderr", Terminal())
    monkeypatch.setenv("TTY_COMPATIBLE", "0")
    assert progress.terminal_console() is None
