"""Every command explains itself, and asking costs little."""

from __future__ import annotations

import subprocess
import sys
from importlib import import_module
from pathlib import Path

import pytest

from tracekit.cli.main import COMMANDS, run

HEAVY = {"torch", "pandas", "pyarrow", "numba", "numpy", "duckdb", "scipy"}
DATA = {"analyze", "doctor", "query", "runs", "show", "workloads"}
commands = pytest.mark.parametrize("name", COMMANDS)

TRACE = Path(__file__).parents[2] / "samples/simulated/training.json.gz"
OF_OTHERS = {
    "distributed",
    "psutil",
    "rich",
    "rich_click",
    "sqlite3",
    "tracekit.executors",
    "tracekit.ingest.importer.cluster",
    "tracekit.ingest.nsys.reader",
    "tracekit.runs.backends.remote",
}
"""What exports, clusters, object storage, terminals and who asks for help need."""

IMPORTED = """
import sys
there = set(sys.modules)  # what Python loads at its start
from tracekit.cli.main import run
assert run(sys.argv[1:]) == 0
print("imported:", *sorted(set(sys.modules) - there))
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
    imported, reported = _imported("--help")
    assert imported & (HEAVY | {"msgspec", "subprocess", "tracekit.runs.store"}) == set()
    assert all(f"│ {command} " in reported for command in COMMANDS)


def test_an_import_of_a_trace_imports_nothing_that_only_others_need(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    for name in ("FORCE_COLOR", "TTY_COMPATIBLE"):
        monkeypatch.delenv(name, raising=False)
    imported, _ = _imported("import", str(TRACE), "--store", str(tmp_path))
    assert imported & OF_OTHERS == set()


@pytest.mark.slow_except(1)
@pytest.mark.parametrize("command", [["runs"], ["show", "latest"]], ids=lambda command: command[0])
def test_runs_are_told_of_without_anything_heavy(command: list[str], tmp_path: Path) -> None:
    _imported("import", str(TRACE), "--store", str(tmp_path))
    imported, reported = _imported(*command, "--store", str(tmp_path))
    assert imported & HEAVY == set()
    assert "training" in reported


def _imported(*arguments: str) -> tuple[set[str], str]:
    """The modules that a command imports, and what it prints."""
    command = [sys.executable, "-c", IMPORTED, *arguments]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    reported, _, imported = done.stdout.rpartition("imported:")
    return set(imported.split()), reported
