"""Docstring examples of the benchmarks."""

from __future__ import annotations

import doctest
from importlib import import_module

import pytest

MODULES = ("page", "peers", "report", "runner")


@pytest.mark.parametrize("name", MODULES)
def test_examples(name: str) -> None:
    failed, tried = doctest.testmod(import_module(f"benchmarks.{name}"))
    assert (failed, tried > 0) == (0, True)
