"""Compiling the scanner in the background, its cache, and failures."""

from __future__ import annotations

from typing import TYPE_CHECKING

import llvmlite.binding as llvm
import pytest

from tests import tiers
from tests.scans import agrees
from tests.unit.ingest.kineto.scan.events import EVENTS, text
from tracekit.ingest.kineto.scan import loader, native

if TYPE_CHECKING:
    import subprocess
    from collections.abc import Iterator
    from pathlib import Path

LARGE = loader.WORTH_COMPILING


COPIES = """
import json, sys
sys.path[:] = json.loads(sys.argv[1])
from pathlib import Path
from tracekit.ingest.kineto.scan import native
native._write(native.place(), native._read(Path({compiled!r})))
"""
"""What stands in for the compiler: it takes the code that has been compiled before."""


@pytest.mark.parametrize("real", tiers.thinned([False, True], default=[False]))
def test_a_large_trace_compiles_and_caches_the_scanner(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, real: bool
) -> None:
    native.load()  # into the user's cache, for other tests: a process loads it once
    if not real:
        monkeypatch.setattr(loader, "COMPILE", COPIES.format(compiled=str(native.place())))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert not native.is_compiled()
    with loader.scanners(LARGE) as found:
        found.wait()
        mine = found.mine()
    assert mine
    assert agrees(text(*EVENTS), by=mine)
    assert native.is_compiled()


def test_a_failed_compiler_leaves_all_to_the_reference(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setattr(loader, "COMPILE", "raise ImportError")
    with loader.scanners(LARGE) as found:
        found.wait()
        assert found.mine() is None


@pytest.fixture
def endless(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[list[subprocess.Popen[bytes]]]:
    """Compilers that were started, which never are done."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setattr(loader, "COMPILE", "import threading; threading.Event().wait()")
    started, start = [], loader._start_compiler
    monkeypatch.setattr(loader, "_start_compiler", lambda: started.append(start()) or started[0])
    yield started
    started[0].kill()
    started[0].wait()


def test_an_error_terminates_the_compiler(endless: list[subprocess.Popen[bytes]]) -> None:
    with pytest.raises(KeyboardInterrupt), loader.scanners(LARGE):
        raise KeyboardInterrupt
    assert endless[0].returncode


def test_a_finished_import_does_not_wait_for_the_compiler(endless: list[subprocess.Popen[bytes]]) -> None:
    with loader.scanners(LARGE) as found:
        assert found.mine() is None
    assert endless[0].poll() is None


def test_nothing_is_compiled_without_a_writable_cache(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    started = []
    (tmp_path / "file").touch()
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "file"))
    monkeypatch.setattr(loader, "_start_compiler", lambda: started.append(True))
    with loader.scanners(LARGE) as found:
        assert found.mine() is None
    assert not started


def test_compiled_code_works_without_a_writable_cache(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").touch()
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "file"))
    monkeypatch.setattr(native, "generated", lambda: llvm.parse_assembly(""))
    assert native.compiled()
    assert not native.is_compiled()
