"""Plug-ins from outside: real distributions on the path, as pip would leave them."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.runs import make_run
from tracekit import analysis, registry
from tracekit.errors import MissingDependencyError, PluginError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from tracekit.runs.store import Store

    Install = Callable[..., None]

MODULE = """
from tracekit.analysis import Analysis, Result

ANALYSIS = Analysis(
    name="outside", title="Outside", question="?", definition="", tables=(), sources=(), order=99,
    compute=lambda run: Result(notes=("hello",)),
)
"""


@pytest.fixture
def install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Install]:
    monkeypatch.syspath_prepend(tmp_path)

    def install_package(module: str, *, source: str = MODULE, name: str = "outside") -> None:
        (tmp_path / f"{module}.py").write_text(source)
        info = tmp_path / f"{module}-1.0.dist-info"
        info.mkdir()
        (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {module}\nVersion: 1.0\n")
        (info / "entry_points.txt").write_text(f"[tracekit.analyses]\n{name} = {module}:ANALYSIS\n")
        registry._points.cache_clear()

    registry._points.cache_clear()
    yield install_package
    registry._points.cache_clear()


def test_an_analysis_from_an_outside_package_is_found_and_runs(install: Install, store: Store) -> None:
    install("tk_outside_good")
    assert "outside" in registry.names(registry.ANALYSES)
    assert "outside" in [found.name for found in analysis.available()]
    assert analysis.analyze(make_run(store), "outside").notes == ("hello",)


def test_a_name_registered_twice_is_refused_and_names_both_modules(install: Install) -> None:
    install("tk_outside_one")
    install("tk_outside_two")
    with pytest.raises(PluginError, match="tk_outside_one:ANALYSIS and tk_outside_two:ANALYSIS"):
        registry.load(registry.ANALYSES, "outside")
    assert registry.names(registry.ANALYSES).count("outside") == 1


@pytest.mark.parametrize(
    ("source", "error", "reason"),
    [
        ("1 / 0", PluginError, "ZeroDivisionError"),
        ("import not_there_at_all", MissingDependencyError, "not_there_at_all"),
        ("", PluginError, "AttributeError"),
    ],
    ids=["raises", "lacks a package", "lacks its object"],
)
def test_a_broken_plugin_is_named_and_breaks_no_other(
    install: Install, source: str, error: type[Exception], reason: str
) -> None:
    name = f"tk_outside_broken_{reason.lower()}"
    install("tk_outside_works")
    install(name, source=source, name="broken")
    with pytest.raises(error, match=reason):
        registry.load(registry.ANALYSES, "broken")
    named = [found for found in registry.find_broken() if found.name == "broken"]
    assert [(found.group, found.value) for found in named] == [(registry.ANALYSES, f"{name}:ANALYSIS")]
    assert reason in named[0].reason
    available = [found.name for found in analysis.available()]
    assert "outside" in available
    assert "broken" not in available


def test_an_unknown_name_lists_the_known_ones(install: Install) -> None:
    install("tk_outside_known")
    with pytest.raises(PluginError, match="unknown analysis 'nope'") as caught:
        registry.load(registry.ANALYSES, "nope")
    assert "outside" in caught.value.hint


def test_no_built_in_is_broken() -> None:
    pytest.importorskip("torch")
    assert registry.find_broken() == []
