"""Recorded traces: the compiled scanner makes of every chunk what the reference decoder makes of it."""

from __future__ import annotations

import pytest

from tests import tiers
from tests.golden.test_truth import TRACES
from tests.scans import agrees, chunks_of

REPRESENTATIVE = (
    "AMD-AGI__TraceLens/b300_sglang_qwen3_decode_cudagraph.json.gz",
    "AMD-AGI__TraceLens/mi300x_bert_small.json.gz",
    "facebookresearch__HolisticTraceAnalysis/ns_resolution_v100.json.gz",
    "facebookresearch__param/v100_dlrm_8rank/rank1.json.gz",
)
"""Of four ages and forms: graphs, HIP, times in nanoseconds, communication."""
NAMES = sorted(str(path.relative_to(TRACES)) for path in TRACES.rglob("*.json.gz"))


@pytest.mark.skipif(bool(NAMES), reason="the recorded traces are there")
def test_recorded_traces_are_absent() -> None:
    pytest.skip(f"no recorded traces at {TRACES}: the decoders were not compared on them")


@pytest.mark.parametrize("name", tiers.thinned(NAMES, default=REPRESENTATIVE))
def test_every_chunk_is_scanned_and_agrees(name: str) -> None:
    refused = False in {agrees(content) for content in chunks_of(TRACES / name)}
    assert refused == ("mtia" in name)  # work of MTIA devices is left to the reference decoder
