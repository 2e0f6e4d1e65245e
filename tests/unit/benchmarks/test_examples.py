"""The examples in the docstrings of the benchmarks print what they say."""

from __future__ import annotations

import doctest
from importlib import import_module

import pytest

MODULES = ("peers.environments", "report.figures", "report.text", "runner.measure", "runner.memory")


@pytest.mark.parametrize("name", MODULES)
def test_examples(name: str) -> None:
    failed, tried = doctest.testmod(import_module(f"benchmarks.{name}"))
    assert (failed, tried > 0) == (0, True)
