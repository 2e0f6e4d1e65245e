"""A cached answer loads no pandas, and whatever it depends on makes it computed again."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tracekit import registry
from tracekit.analysis import cache

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from tests.unit.cli.conftest import Done
    from tracekit.runs.run import Run
    from tracekit.runs.store import Store

    Command = Callable[..., Done]

HEAVY = {
    "numpy",
    "pandas",
    "pyarrow",
    "scipy",
    "duckdb",
    "plotly",
    "rich_click",
    "jinja2",
    "tracekit.analyses",
}
PLUGIN = """
from tracekit.analysis import Analysis, Finding, Result, Rule, Severity
{imported}
RULE = Rule("planted", "over {{max_count}}", "", thresholds={{"max_count": {limit}}})

def compute(run):
    return Result(findings=(Finding("planted", Severity.INFO, f"over {{RULE['max_count']}}", "look"),))

ANALYSIS = Analysis("planted", "Planted", "?", "!", (), ("x",), 99, {function}, (RULE,))
"""
_BOTH = """
import json, sys
from tracekit.cli.main import run
assert run(["findings", "latest"]) == run(["analyze", "latest", "gpu_breakdown"]) == 0
print(json.dumps(sorted(sys.modules)))
"""


@pytest.fixture
def run(analyzed_store: Store, store: Store) -> Run:
    shutil.copytree(analyzed_store.path, store.path)
    (found,) = store.runs()
    return found


@pytest.fixture
def answers(run: Run) -> Callable[[], list[Path]]:
    """Lists the files of answers."""
    folder = run.path.parent / cache.FOLDER / run.path.name
    return lambda: sorted(folder.glob("_*.zip"))


def forget() -> None:
    """Forget what a process reads once of installed packages and code."""
    for cached in (registry._points, cache._installed, cache._digest):
        cached.cache_clear()
    for name in [name for name in sys.modules if name.startswith("planted")]:
        del sys.modules[name]


class Site:
    """A folder of packages, in which a plug-in is installed."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def install(self, *, limit: int = 7, function: str = "compute", imported: str = "") -> None:
        """Install the plug-in, or another version of it."""
        described = self.folder / "planted-1.0.dist-info"
        described.mkdir(exist_ok=True)
        (described / "METADATA").write_text("Metadata-Version: 2.1\nName: planted\nVersion: 1.0\n")
        (described / "entry_points.txt").write_text("[tracekit.analyses]\nplanted = planted:ANALYSIS\n")
        text = PLUGIN.format(limit=limit, function=function, imported=imported)
        (self.folder / "planted.py").write_text(text)
        forget()

    def uninstall(self) -> None:
        """Remove the plug-in."""
        shutil.rmtree(self.folder / "planted-1.0.dist-info")
        (self.folder / "planted.py").unlink()
        forget()


@pytest.fixture
def site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Site]:
    folder = tmp_path / "site"
    folder.mkdir()
    monkeypatch.syspath_prepend(str(folder))
    monkeypatch.setattr(sys, "dont_write_bytecode", True)
    yield Site(folder)
    monkeypatch.undo()
    forget()


def titles(tracekit: Command, *arguments: str) -> list[str]:
    """The titles of findings of the plug-in."""
    found = json.loads(tracekit("findings", "latest", *arguments, "--format", "json").out)["findings"]
    return [one["title"] for one in found if one["analysis"] == "planted"]


def test_a_cached_answer_loads_no_pandas_and_no_analysis(run: Run) -> None:
    loaded = []
    for _ in range(2):
        done = subprocess.run(
            [sys.executable, "-c", _BOTH],
            env=os.environ | {"TRACEKIT_STORE": str(run.path.parent)},
            capture_output=True,
            check=True,
        )
        loaded.append(set(json.loads(done.stdout.splitlines()[-1])))
    assert loaded[0] >= {"pandas", "tracekit.analyses"}
    assert not loaded[1] & {*HEAVY, "tracekit.analyses"}


@pytest.mark.parametrize(
    "arguments",
    [
        ("findings", "latest"),
        ("findings", "latest", "steps", "memory"),
        ("analyze", "latest", "gpu_breakdown"),
        ("analyze", "latest", "steps", "integrity"),
    ],
    ids=" ".join,
)
@pytest.mark.usefixtures("run")
def test_a_cached_answer_reads_as_the_computed_one(
    tracekit: Command, answers: Callable[[], list[Path]], arguments: tuple[str, ...]
) -> None:
    for output_format in ("table", "json", "csv", "markdown"):
        asked = (*arguments, "--format", output_format)
        first = tracekit(*asked)
        assert first.code == 0
        assert answers()
        assert tracekit(*asked) == first


@pytest.mark.usefixtures("run")
def test_long_tables_are_not_in_answers(
    tracekit: Command, answers: Callable[[], list[Path]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tracekit.render.analyze.DEFAULT_LIMIT", 2)
    assert tracekit("analyze", "latest", "ops").code == 0
    assert tracekit("analyze", "latest", "steps", "--limit", "1").code == 0
    assert not answers()


@pytest.mark.usefixtures("run")
def test_a_plugin_counts_from_its_installation_to_its_removal(tracekit: Command, site: Site) -> None:
    assert titles(tracekit) == []
    site.install()
    assert titles(tracekit) == titles(tracekit) == ["over 7"]
    site.install(limit=8)
    assert titles(tracekit) == titles(tracekit) == ["over 8"]
    site.uninstall()
    assert titles(tracekit) == []


@pytest.mark.usefixtures("run")
def test_what_fails_or_cannot_be_loaded_is_in_no_answer(
    tracekit: Command, site: Site, answers: Callable[[], list[Path]]
) -> None:
    site.install(function="lambda run: 1 / 0")
    assert "planted: failed" in tracekit("findings", "latest").out
    site.install(imported="import no_such_package")
    assert tracekit("findings", "latest").code == 0
    assert not answers()
    site.install()
    assert titles(tracekit) == ["over 7"]
    assert answers()


def test_the_function_of_an_analysis_is_in_the_key_or_nothing_is_cached(
    run: Run, tracekit: Command, site: Site, answers: Callable[[], list[Path]]
) -> None:
    (site.folder / "planted_elsewhere.py").write_text(PLUGIN.format(limit=5, function="compute", imported=""))
    site.install(imported="import planted_elsewhere", function="planted_elsewhere.compute")
    assert titles(tracekit, "planted") == ["over 5"]
    text = PLUGIN.format(limit=6, function="compute", imported="")
    (site.folder / "planted_elsewhere.py").write_text(text)
    forget()
    assert titles(tracekit, "planted") == ["over 6"]
    assert not answers()
    assert not (run.path.parent / cache.FOLDER / run.path.name / "planted.zip").exists()
