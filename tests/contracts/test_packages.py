"""pyproject.toml says what the folders hold."""

from __future__ import annotations

import tomllib
from importlib import import_module
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PYPROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())
SETUPTOOLS = PYPROJECT["tool"]["setuptools"]
MAPPED = {folder: package for package, folder in SETUPTOOLS["package-dir"].items()}
ENTRY_POINTS = [
    pytest.param(value, id=f"{group}:{name}")
    for group, points in PYPROJECT["project"]["entry-points"].items()
    for name, value in points.items()
]


def package(folder: Path) -> str:
    top, *rest = folder.relative_to(ROOT).parts
    return ".".join([MAPPED.get(top, top), *rest])


def test_every_folder_of_modules_is_installed() -> None:
    found = {
        package(init.parent) for top in ("tracekit", *MAPPED) for init in (ROOT / top).rglob("__init__.py")
    }
    assert sorted(found) == sorted(SETUPTOOLS["packages"])


def test_no_module_lies_in_a_folder_that_is_no_package() -> None:
    stray = [
        path
        for top in ("tracekit", *MAPPED)
        for path in (ROOT / top).rglob("*.py")
        if not (path.parent / "__init__.py").is_file()
    ]
    assert stray == []


@pytest.mark.parametrize("folder", MAPPED)
def test_a_top_folder_is_imported_as_part_of_tracekit(folder: str) -> None:
    module = import_module(MAPPED[folder])
    assert module.__file__ is not None
    assert Path(module.__file__).resolve().parent == ROOT / folder


@pytest.mark.parametrize("value", ENTRY_POINTS)
def test_every_entry_point_loads(value: str) -> None:
    if ".workloads" in value or ".collectors" in value:
        pytest.importorskip("torch")
    module, _, name = value.partition(":")
    assert hasattr(import_module(module), name)
