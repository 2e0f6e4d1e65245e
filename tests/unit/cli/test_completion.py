"""Completion in a shell, through click's protocol."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.contracts.test_cli import HEAVY
from tests.runs import make_run
from tracekit.cli import main

if TYPE_CHECKING:
    from collections.abc import Callable

    from tracekit.runs.run import Run
    from tracekit.runs.store import Store

IMPORTED = """
import sys
from tracekit.cli.main import run
try:
    run([])
finally:
    print("imported:", *sys.modules)
"""


@pytest.fixture
def labelled(store: Store, monkeypatch: pytest.MonkeyPatch) -> Run:
    """A run with a label, in the default store."""
    monkeypatch.setenv("TRACEKIT_STORE", str(store.path))
    make_run(store)
    return make_run(store, label="wide", after_s=1)


@pytest.fixture
def complete(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Callable[[str], list[str]]:
    """Completes the last word of a command line, as bash asks for it."""

    def completed(line: str) -> list[str]:
        for name, value in _asked(line).items():
            monkeypatch.setenv(name, value)
        with pytest.raises(SystemExit):
            main.run([])
        done = capsys.readouterr()
        assert done.err == ""
        return done.out.split()

    return completed


def _asked(line: str) -> dict[str, str]:
    return {
        "COMP_WORDS": line.replace(" ", "\n"),
        "COMP_CWORD": str(line.count(" ")),
        "_TRACEKIT_COMPLETE": "bash_complete",
    }


def test_runs_are_completed_newest_first(labelled: Run, complete: Callable[[str], list[str]]) -> None:
    found = complete("tracekit show ")
    assert found[:3] == ["plain,latest", "plain,wide", f"plain,{labelled.id}"]
    assert len(found) == 4
    assert complete("tracekit diff latest w") == ["plain,wide"]
    assert complete("tracekit check --against ") == ["plain,wide"]
    assert complete("tracekit show ./tra") == ["file,./tra"]


@pytest.mark.parametrize(
    ("line", "found"),
    [
        ("tracekit fin", ["plain,findings"]),
        ("tracekit analyze latest idle", ["plain,idle_gaps"]),
        ("tracekit analyze idle", ["plain,idle_gaps"]),
        ("tracekit report --analyses ops,idle", ["plain,ops,idle_gaps"]),
        ("tracekit collect --workload resnet1", ["plain,resnet18"]),
        ("tracekit suite run --workload gp", ["plain,gpt"]),
        ("tracekit collect --device c", ["plain,cpu", "plain,cuda"]),
        ("tracekit runs --format m", ["plain,markdown"]),
        ("tracekit bisect --re", ["plain,--repeat", "plain,--restart"]),
        ("tracekit import tra", ["file,tra"]),
        ("tracekit collect -- ./tra", ["file,./tra"]),
        ("tracekit show --store s3://nowhere/x --format j", ["plain,json"]),
    ],
)
def test_names_are_completed(line: str, found: list[str], complete: Callable[[str], list[str]]) -> None:
    assert complete(line) == found


def test_tables_of_computed_results_are_completed(
    labelled: Run, complete: Callable[[str], list[str]], capsys: pytest.CaptureFixture[str]
) -> None:
    assert complete("tracekit analyze --table ") == []
    os.environ.pop("_TRACEKIT_COMPLETE")
    assert main.run(["analyze", "latest", "steps", "integrity"]) == 0
    capsys.readouterr()
    assert "plain,summary" in complete("tracekit analyze latest steps --table ")
    assert "plain,verdict" not in complete("tracekit analyze steps --table ")
    assert complete(f"tracekit analyze {labelled.id} --table ver") == ["plain,verdict"]


def test_a_damaged_store_completes_nothing(
    store: Store, labelled: Run, complete: Callable[[str], list[str]]
) -> None:
    name = labelled.path.name
    (labelled.path / "run.json").write_text("{")
    assert f"plain,{name}" in complete("tracekit show 2")
    shutil.rmtree(store.path)
    store.path.write_text("no folder")
    assert complete("tracekit show 2") == ["file,2"]


def test_completion_imports_nothing_heavy(labelled: Run) -> None:
    line = f"tracekit analyze {labelled.id[:9]}"
    command = [sys.executable, "-c", IMPORTED]
    done = subprocess.run(command, capture_output=True, text=True, env={**os.environ, **_asked(line)})
    found, _, imported = done.stdout.partition("imported:")
    assert f"plain,{labelled.id}" in found.split()
    assert set(imported.split()) & (HEAVY | {"rich", "rich_click"}) == set()


@pytest.mark.skipif(shutil.which("bash") is None, reason="needs bash")
def test_bash_completes_with_what_the_documents_say(labelled: Run) -> None:
    script = """
        eval "$(_TRACEKIT_COMPLETE=bash_source tracekit)"
        COMP_WORDS=(tracekit show w); COMP_CWORD=2
        _tracekit_completion tracekit
        echo "${COMPREPLY[@]}"
    """
    programs = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])
    environment = {**os.environ, "PATH": programs}
    done = subprocess.run(["bash", "-c", script], capture_output=True, text=True, env=environment)
    assert done.stdout == "wide\n", done.stderr
