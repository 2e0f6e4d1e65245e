"""`tracekit findings` fits on a screen; `--more` prints what its numbers rest on."""

from __future__ import annotations

import shlex

import pytest

from tests.builders import kernel, make_run
from tracekit.cli.main import run

Capture = pytest.CaptureFixture[str]

SCREEN = 24


@pytest.fixture(scope="module")
def directory(tmp_path_factory: pytest.TempPathFactory) -> str:
    """A store with a space in its path, whose cached results the tests share."""
    folder = tmp_path_factory.mktemp("a store")
    make_run(folder, device_intervals=[kernel(at, at + 60) for at in range(0, 600, 60)])
    return str(folder)


def test_a_run_without_findings_fits_on_a_screen(
    directory: str, capsys: Capture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    assert run(["findings", "latest", "--store", directory]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) <= SCREEN
    assert " 0 findings, " in " ".join(lines)
    assert lines[-1].startswith("What to record: ")
    assert lines[-1].endswith(" (code: `--more`)")


def test_the_printed_command_shows_what_is_missing(directory: str, capsys: Capture) -> None:
    assert run(["findings", "latest", "memory", "capture", "--store", directory]) == 0
    brief = capsys.readouterr().out
    assert "Skipped" not in brief
    _, command, _ = brief.splitlines()[-2].split("`")
    words = ["tracekit", "findings", "latest", "memory", "capture", "--store", directory, "--more"]
    assert shlex.split(command) == words
    assert run(words[1:]) == 0
    whole = capsys.readouterr().out
    assert "\nSkipped, missing data:\n    - memory: " in whole
    assert "\nWhat to record to answer more (torch.profiler):\n    - " in whole
    assert "profiler.step()" in whole
    assert "profiler.step()" not in brief
