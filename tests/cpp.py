"""The C++ program of level `libtorch` in tests: compiled once for all, whichever process runs them."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import pytest
from tracekit.collectors.libtorch import prepare as build

from tracekit.runs.toolchain import find_toolchain

if TYPE_CHECKING:
    from pathlib import Path


def needs_toolchain() -> None:
    """Skip, and say why, where no C++ program can be built."""
    if missing := find_toolchain().missing_tools():
        pytest.skip(f"there is no {' and no '.join(missing)}")


@pytest.fixture(scope="session")
def cache(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What to set `$XDG_CACHE_HOME` to: a cache that holds the program."""
    needs_toolchain()
    base = tmp_path_factory.getbasetemp()
    shared = base.parent if "PYTEST_XDIST_WORKER" in os.environ else base  # one for all workers
    build.ensure_built(on_build=lambda: None, folder=shared / "cache" / "tracekit" / "libtorch")
    return shared / "cache"
