from __future__ import annotations

import os
import subprocess
import sys

import pytest

from tests.environment import HANG_SECONDS
from tracekit.cli.main import run

_OF_COLORS = ("FORCE_COLOR", "NO_COLOR", "PY_COLORS", "GITHUB_ACTIONS")


def lines_of(page: str, panel: str) -> str:
    """What stands in one panel of a help page."""
    return page.partition(f"─ {panel} ─")[2].partition("╰")[0]


def piped(**surroundings: str) -> str:
    """A help page as a process prints it into a pipe; rich_click asks for colors once in a process."""
    environment = {name: value for name, value in os.environ.items() if name not in _OF_COLORS}
    command = [sys.executable, "-c", "from tracekit.cli.main import main; main()", "import", "-h"]
    shown = subprocess.run(
        command,
        env=environment | surroundings,
        capture_output=True,
        text=True,
        check=True,
        timeout=HANG_SECONDS,
    )
    return shown.stdout


def test_help_keeps_its_colors_where_they_are_asked_for() -> None:
    assert "\x1b[" in piped(FORCE_COLOR="1", TERM="xterm-256color")


def test_help_has_no_colors_in_a_pipe() -> None:
    assert "\x1b[" not in piped()


@pytest.mark.parametrize("words", [[], ["suite"]])
def test_who_names_no_command_is_shown_which_there_are(
    words: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(words) == 2
    shown = capsys.readouterr()
    assert run([*words, "--help"]) == 0
    assert shown == capsys.readouterr()
    assert "─ Commands ─" in shown.out


def test_each_option_stands_in_one_panel(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["collect", "--help"]) == 0
    page = capsys.readouterr().out
    of_workloads, all_others = lines_of(page, "Built-in workload"), lines_of(page, "Options")
    assert "--batch-size" in of_workloads
    assert "--batch-size" not in all_others
    assert "--start-step" in lines_of(page, "Your program")
    assert "--store" in all_others
    assert "--help" in all_others


def test_examples_stand_under_a_heading_and_choices_are_listed(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["check", "--help"]) == 0
    page = capsys.readouterr().out
    assert "Examples:" in page
    assert page.index("Examples:") < page.index("   tracekit check --against main")
    assert run(["collect", "--help"]) == 0
    assert "[train|infer]" in capsys.readouterr().out
