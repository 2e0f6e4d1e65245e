"""The imported run does not depend on the format of the trace."""

from __future__ import annotations

import gzip
import json
from contextlib import nullcontext
from typing import TYPE_CHECKING, Any

import pandas as pd
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from samples.simulator import Clock, trace, write
from tests.tiers import UNTIMED, examples
from tests.traces import busy_program, imported, table
from tracekit.ingest.importer import local
from tracekit.ingest.kineto import reader
from tracekit.ingest.kineto.scan.loader import Scanners
from tracekit.schema import TABLES

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from tracekit.runs.run import Run
    from tracekit.runs.store import Store

TRACE = trace(busy_program())


def reparsed(data: bytes) -> dict[str, Any]:
    document: dict[str, Any] = json.loads(data)
    return document


WRITTEN: dict[str, Callable[[], bytes]] = {
    "gzipped": lambda: gzip.compress(TRACE),
    "compact": lambda: json.dumps(reparsed(TRACE), separators=(",", ":")).encode(),
    "indented": lambda: json.dumps(reparsed(TRACE), indent=2).encode(),
    "reversed": lambda: json.dumps(
        {**reparsed(TRACE), "traceEvents": reparsed(TRACE)["traceEvents"][::-1]}
    ).encode(),
    "events first": lambda: json.dumps(dict(reversed(reparsed(TRACE).items()))).encode(),
}


@pytest.mark.slow_except("gzipped", "reversed")
@pytest.mark.parametrize("name", WRITTEN)
def test_the_run_does_not_depend_on_the_json_format(name: str, store: Store, tmp_path: Path) -> None:
    same(run_of(store, tmp_path, TRACE), run_of(store, tmp_path, WRITTEN[name]()))


@settings(max_examples=examples(15), suppress_health_check=[*UNTIMED, HealthCheck.function_scoped_fixture])
@given(order=st.randoms(use_true_random=False), chunk=st.integers(200, 20_000))
def test_the_run_does_not_depend_on_order_and_chunks(
    order: Any, chunk: int, store: Store, tmp_path: Path
) -> None:
    document = reparsed(TRACE)
    order.shuffle(document["traceEvents"])
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(reader.read.__kwdefaults__, "chunk_bytes", chunk)
        shuffled = run_of(store, tmp_path, json.dumps(document).encode())
    same(run_of(store, tmp_path, TRACE), shuffled)


def test_the_run_does_not_depend_on_the_clock(store: Store, tmp_path: Path) -> None:
    epoch = write(busy_program(), tmp_path / "epoch.json", clock=Clock.EPOCH)
    based = write(busy_program(), tmp_path / "base.json", clock=Clock.BASE)
    a, b = imported(store, epoch), imported(store, based)
    assert a.meta.t0_unix_ns == b.meta.t0_unix_ns
    same(a, b)


def test_worker_processes_give_the_same_run(
    store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    alone = run_of(store, tmp_path, TRACE)
    monkeypatch.setattr(local, "POOL_BYTES", 1)
    monkeypatch.setattr(local, "THREAD_BYTES", 1)
    monkeypatch.setattr(local, "cores", lambda: 2)
    monkeypatch.setattr(local, "scanners", lambda _size: nullcontext(Scanners()))
    monkeypatch.setitem(reader.read.__kwdefaults__, "chunk_bytes", 2_000)
    same(alone, run_of(store, tmp_path, TRACE))


def run_of(store: Store, tmp_path: Path, data: bytes) -> Run:
    path = tmp_path / "trace.json"
    path.write_bytes(data)
    return imported(store, path)


def same(a: Run, b: Run) -> None:
    for name in TABLES:
        pd.testing.assert_frame_equal(table(a, name), table(b, name), obj=name)
