"""Recorded traces: the compiled scanner makes of every chunk what the reference decoder makes of it."""

from __future__ import annotations

import pytest

from tests.golden.test_truth import TRACES
from tests.scans import agrees, chunks_of

NAMES = sorted(str(path.relative_to(TRACES)) for path in TRACES.rglob("*.json.gz"))


@pytest.mark.skipif(bool(NAMES), reason="the recorded traces are there")
def test_recorded_traces_are_absent() -> None:
    pytest.skip(f"no recorded traces at {TRACES}: the decoders were not compared on them")


@pytest.mark.parametrize("name", NAMES)
def test_every_chunk_is_scanned_and_agrees(name: str) -> None:
    assert False not in {agrees(content) for content in chunks_of(TRACES / name)}
