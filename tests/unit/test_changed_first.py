from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING

import pytest

from tests.changed_first import ROOT, changed_files, find_tests, order

if TYPE_CHECKING:
    from tests.conftest import Git


def test_files_of_the_last_commit_and_since_then_are_changed(git: Git) -> None:
    Path("committed.py").write_text("1")
    git("add", ".")
    git("commit", "--quiet", "--message=second")
    Path("file.txt").write_text("two")
    Path("new.py").write_text("2")
    assert changed_files(Path()) == {"committed.py", "file.txt", "new.py"}


def test_without_an_earlier_commit_files_changed_since_the_last_are(git: Git) -> None:
    Path("file.txt").write_text("two")
    assert changed_files(Path()) == {"file.txt"}


def test_nothing_is_changed_without_git(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GIT_CEILING_DIRECTORIES", str(tmp_path.parent))
    assert changed_files(tmp_path) == set()
    monkeypatch.setenv("PATH", "")
    assert changed_files(tmp_path) == set()


@pytest.mark.parametrize(
    ("file", "tests"),
    [
        ("tracekit/ingest/kineto/columns.py", ["tests/unit/ingest", "tests/unit/test_ingest.py"]),
        ("tracekit/schema.py", ["tests/unit/schema", "tests/unit/test_schema.py"]),
        ("analyses/steps.py", ["tests/unit/analyses", "tests/unit/test_analyses.py", "tests/golden"]),
        ("tests/golden/test_scan.py", ["tests/golden/test_scan.py"]),
    ],
)
def test_tests_of_a_package(file: str, tests: list[str]) -> None:
    assert find_tests(file) == tests


def test_their_tests_come_first_and_those_of_a_file_stay_in_order() -> None:
    names = [
        "golden/test_a.py::1",
        "unit/runs/test_b.py::1",
        "unit/runs/test_b.py::2",
        "unit/test_c.py::1",
        "unit/runs/test_d.py::1",
    ]
    items = [SimpleNamespace(path=ROOT / "tests" / name.split("::")[0], name=name) for name in names]
    order(items, ["tests/unit/runs", "tests/unit/runs.py"])  # type: ignore[arg-type]
    assert [item.name for item in items] == [names[k] for k in (1, 2, 4, 0, 3)]
