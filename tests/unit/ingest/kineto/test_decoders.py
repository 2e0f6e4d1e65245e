"""Imports with and without the compiled scanner give the same run."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

import samples
from samples.simulator import kineto, nsys
from tests.traces import busy_program, table
from tracekit.ingest.importer import import_traces, local
from tracekit.ingest.kineto import reader
from tracekit.ingest.kineto.scan import loader, native
from tracekit.ingest.kineto.scan.loader import Scanners
from tracekit.runs.store import Store

if TYPE_CHECKING:
    import pandas as pd

    from tracekit.ingest.kineto.scan.scanner import Scanned, Scanner
    from tracekit.ingest.kineto.split import Text

TABLES = ("host_intervals", "device_intervals", "steps", "allocations", "counters")
TRACE = next((Path(samples.__file__).parent / "simulated").glob("*.json.gz"))


class EverySecond:
    """Scans every second chunk, as if the scanner had become ready meanwhile, or had been surprised."""

    def __init__(self) -> None:
        self._scanner = loader.load()()
        self._asked = 0

    def scan(self, text: Text) -> Scanned | None:
        self._asked += 1
        return self._scanner.scan(text) if self._asked % 2 else None


def scanners(make: type[Scanner | EverySecond]) -> Scanners:
    return Scanners(make)  # type: ignore[arg-type]


def tables(store: Store, trace: Path) -> dict[str, pd.DataFrame]:
    (run,) = import_traces(store, [trace])
    return {name: table(run, name) for name in TABLES}


@pytest.mark.slow_except(2)
@pytest.mark.parametrize("chunk_bytes", [700, 20_000, 4 << 20])
@pytest.mark.parametrize("make", [EverySecond, None], ids=["in turns", "always"])
def test_both_decoders_give_the_same_run(
    make: type[EverySecond] | None, chunk_bytes: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(reader.read.__kwdefaults__, "chunk_bytes", chunk_bytes)
    plain = tables(Store(tmp_path / "plain"), TRACE)
    monkeypatch.setattr(local, "scanners", lambda _size: nullcontext(scanners(make or loader.load())))
    scanned = tables(Store(tmp_path / "scanned"), TRACE)
    for name in TABLES:
        assert plain[name].equals(scanned[name]), name
    assert len(plain["host_intervals"])


def test_only_kineto_traces_load_the_scanner(
    store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[int] = []

    def asking(size: int) -> AbstractContextManager[Scanners]:
        asked.append(size)
        return nullcontext(Scanners())

    monkeypatch.setattr(local, "scanners", asking)
    import_traces(store, [nsys.write(busy_program(), tmp_path / "trace.sqlite")])
    import_traces(store, [kineto.write(busy_program(), path := tmp_path / "trace.json")])
    assert asked == [0, path.stat().st_size]


def test_a_machine_without_a_compiler_still_imports(tmp_path: Path) -> None:
    program = (
        "import sys; sys.modules['numba'] = sys.modules['llvmlite'] = None\n"
        "from pathlib import Path\n"
        "from tracekit.ingest.importer import import_traces\nfrom tracekit.ingest.importer import local\n"
        "from tracekit.runs.store import Store\n"
        f"print(len(import_traces(Store(Path({str(tmp_path)!r})), [Path({str(TRACE)!r})])))"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "1"


def test_small_traces_do_not_compile_the_scanner(tmp_path: Path) -> None:
    assert json.loads(_imported(tmp_path, cache=tmp_path / "empty")) == ["llvmlite"]


def test_compiled_code_is_loaded_without_the_compiler(tmp_path: Path) -> None:
    native.load()
    assert json.loads(_imported(tmp_path)) == ["llvmlite", "tracekit.ingest.kineto.scan.scanner"]


def _imported(place: Path, *, cache: Path | None = None) -> str:
    """Which of the decoder's parts a process loads that imports a small trace."""
    watched = ("numba", "llvmlite", "tracekit.ingest.kineto.scan.scanner")
    program = (
        "import json, sys\n"
        "from pathlib import Path\n"
        "from tracekit.ingest.importer import import_traces\n"
        "from tracekit.runs.store import Store\n"
        f"import_traces(Store(Path({str(place)!r})), [Path({str(TRACE)!r})])\n"
        f"print(json.dumps([name for name in {watched} if name in sys.modules]))"
    )
    environment = {**os.environ, **({"XDG_CACHE_HOME": str(cache)} if cache else {})}
    return subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True, env=environment
    ).stdout


def test_compiled_code_is_reused_until_its_sources_change(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    code = native.place()
    native.load()
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert not native.is_compiled()
    native.place().parent.mkdir(parents=True)
    shutil.copy(code, native.place())
    assert native.is_compiled()
    monkeypatch.setattr(sys, "version", "another Python")
    assert not native.is_compiled()


def test_damaged_machine_code_is_not_loaded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    native.load()
    content = bytearray(native.place().read_bytes())
    content[len(content) // 2] ^= 1
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    native.place().parent.mkdir(parents=True)
    native.place().write_bytes(content)
    assert not native.is_compiled()
    native.place().write_bytes(b"")
    assert not native.is_compiled()
