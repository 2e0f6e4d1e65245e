"""The examples in docstrings run and print what they say.

Modules are imported by name: by path, a plug-in would be a second module that registers twice.
"""

from __future__ import annotations

import doctest
import inspect
import pkgutil
from importlib import import_module

import pytest

import tracekit
from tracekit.errors import PluginError

MODULES = ["tracekit", *(found.name for found in pkgutil.walk_packages(tracekit.__path__, "tracekit."))]
FOLDERS = ("tracekit.analyses", "tracekit.collectors", "tracekit.dashboards")


def _in_mapped_folders() -> list[str]:
    """Modules of the top folders, which an editable install finds by name but not below `tracekit`."""
    return [
        found.name
        for folder in FOLDERS
        for found in pkgutil.walk_packages(import_module(folder).__path__, f"{folder}.")
    ]


@pytest.mark.parametrize("name", sorted({*MODULES, *FOLDERS, *_in_mapped_folders()}))
def test_examples(name: str) -> None:
    try:
        module = import_module(name)
    except ModuleNotFoundError as error:
        if (error.name or "").startswith("tracekit"):
            raise
        pytest.skip(f"needs {error.name}")
    except PluginError as error:
        pytest.skip(error.message)  # a library that is installed for another torch
    if ">>>" in inspect.getsource(module):  # to look for examples takes as long as to run them
        assert doctest.testmod(module).failed == 0
