"""Options are configured by a project and by the environment, and `tracekit config` says where."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

import tracekit
from tracekit.cli.main import run
from tracekit.runs.configuration import PERSONAL, find_setting
from tracekit.runs.store import locate


@pytest.fixture(autouse=True)
def folder(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("TRACEKIT_STORE", raising=False)
    return tmp_path


def configure(text: str) -> None:
    Path("pyproject.toml").write_text(f"[tool.tracekit]\n{text}\n")


def settings(capsys: pytest.CaptureFixture[str]) -> dict[tuple[str, str], tuple[str, str]]:
    """Value and origin by name and commands."""
    assert run(["config", "--format", "json"]) == 0
    rows = json.loads(capsys.readouterr().out)["settings"]
    return {(row["name"], row["commands"]): (row["value"], row["origin"]) for row in rows}


def test_the_environment_precedes_the_table_of_a_command_and_that_the_table_of_all(
    folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    configure('threshold = "3%"\n[tool.tracekit.check]\nthreshold = "5%"\nmetric = ["step_time"]')
    file = folder / "pyproject.toml"
    shown = settings(capsys)
    assert shown["threshold", "check"] == ("5%", f"[tool.tracekit.check] in {file}")
    assert shown["threshold", "diff, bisect, ab, try"] == ("3%", f"[tool.tracekit] in {file}")
    assert shown["metric", "check"] == ("['step_time']", f"[tool.tracekit.check] in {file}")
    monkeypatch.setenv("TRACEKIT_THRESHOLD", "6%")
    monkeypatch.setenv("TRACEKIT_DIFF_THRESHOLD", "7%")
    shown = settings(capsys)
    assert shown["threshold", "check, bisect, ab, try"] == ("6%", "$TRACEKIT_THRESHOLD")
    assert shown["threshold", "diff"] == ("7%", "$TRACEKIT_DIFF_THRESHOLD")


def test_commands_use_what_is_configured_and_an_option_precedes_it(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    configure('format = "json"')
    assert run(["runs"]) == 0
    assert json.loads(capsys.readouterr().out)["runs"] == []
    assert run(["runs", "--format", "csv"]) == 0
    assert capsys.readouterr().out.startswith("run_id,")
    monkeypatch.setenv("TRACEKIT_RUNS_FORMAT", "markdown")
    assert run(["runs"]) == 0
    assert capsys.readouterr().out.startswith("| ")


def test_a_configured_value_is_checked_as_one_of_the_command_line(capsys: pytest.CaptureFixture[str]) -> None:
    configure('threshold = "much"')
    assert run(["check", "--against", "main"]) == 2
    assert "'much' is not a percentage" in capsys.readouterr().err


def test_a_list_may_come_from_a_variable(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("TRACEKIT_CHECK_METRIC", "step_time,step_tme")
    assert run(["check", "--against", "main"]) == 2
    assert "did you mean step_time" in capsys.readouterr().err


def test_a_store_is_relative_to_the_file_that_names_it(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    configure('store = "profiles"')
    inner = folder / "src"
    inner.mkdir()
    monkeypatch.chdir(inner)
    assert locate() == folder / "profiles"
    assert tracekit.runs() == []
    monkeypatch.setenv("TRACEKIT_STORE", "elsewhere")
    assert locate() == Path("elsewhere")
    assert locate("here") == Path("here")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ('treshold = "3%"', "'treshold' in [tool.tracekit] cannot be configured; did you mean threshold?"),
        ("[tool.tracekit.chek]", "[tool.tracekit.chek] is no command; did you mean check?"),
        ("[tool.tracekit.check]\nsteps = 3", "'steps' in [tool.tracekit.check] cannot be configured"),
        ("[tool.tracekit.rm]\nyes = true", "'yes' in [tool.tracekit.rm] cannot be configured"),
        ("allow_delete = true", "'allow_delete' in [tool.tracekit] cannot be configured"),
    ],
)
def test_a_key_that_means_nothing_is_an_error(
    text: str, message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    configure(text)
    assert run(["config"]) == 2
    assert message in capsys.readouterr().err


def test_a_project_cannot_permit_or_open_what_its_user_did_not(folder: Path) -> None:
    configure("".join(f"{name} = true\n" for name in PERSONAL))
    assert [name for name in PERSONAL if find_setting("mcp", name, folder, {})] == []


def test_a_file_without_the_table_configures_nothing(folder: Path) -> None:
    for text in ("[tool]\ntracekit = 3", "[project]\nname = 'x'", "not TOML"):
        Path("pyproject.toml").write_text(text)
        assert find_setting("check", "threshold", folder, {}) is None
        assert locate() == folder / ".tracekit"
