"""Every command explains itself, and asking costs little."""

from __future__ import annotations

import subprocess
import sys
from importlib import import_module

import pytest

from tracekit.cli.main import COMMANDS, run

HEAVY = {"torch", "pandas", "pyarrow", "numba", "numpy", "duckdb", "scipy"}
DATA = {"analyze", "doctor", "query", "runs", "show", "workloads"}
commands = pytest.mark.parametrize("name", COMMANDS)

IMPORTED = """
import sys
from tracekit.cli.main import run
assert run(sys.argv[1:]) == 0
print("imported:", *sorted({name.partition(".")[0] for name in sys.modules}))
"""


@commands
def test_every_command_has_help_and_a_docstring(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert import_module(COMMANDS[name]).command.help
    assert run([name, "--help"]) == 0
    assert f"tracekit {name}" in capsys.readouterr().out


@commands
def test_every_option_is_explained(name: str) -> None:
    options = [p for p in import_module(COMMANDS[name]).command.params if p.param_type_name == "option"]
    assert [option.name for option in options if not option.help] == []


@pytest.mark.parametrize("name", sorted(DATA))
def test_data_commands_offer_every_format(name: str) -> None:
    params = {param.name: param for param in import_module(COMMANDS[name]).command.params}
    assert tuple(params["output_format"].type.choices) == ("table", "json", "csv", "markdown")


def test_help_imports_nothing_heavy() -> None:
    done = subprocess.run(
        [sys.executable, "-c", IMPORTED, "--help"], capture_output=True, text=True, check=True
    )
    imported = set(done.stdout.rpartition("imported:")[2].split())
    assert imported & HEAVY == set()
    assert all(f"│ {command} " in done.stdout for command in COMMANDS)
