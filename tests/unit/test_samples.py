"""The samples in the repository are what they claim to be."""

from __future__ import annotations

import gzip
import hashlib
import json
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from samples.simulator import trace
from samples.simulator.examples import training
from tests.traces import imported
from tracekit.analysis import analyze, available

if TYPE_CHECKING:
    from tracekit.store import Store

SAMPLES = Path(__file__).parents[2] / "samples"
RECORDED = sorted(SAMPLES.glob("recorded/*/trace.json.gz"))


@pytest.mark.parametrize("path", RECORDED, ids=lambda path: path.parent.name)
def test_a_recorded_sample_has_its_provenance(path: Path) -> None:
    provenance = json.loads((path.parent / "provenance.json").read_text())
    data = path.read_bytes()
    assert len(data) == provenance["bytes"] < 2_000_000
    assert hashlib.sha256(data).hexdigest() == provenance["sha256"]
    assert len(provenance["commit"]) == 40
    assert not provenance["dirty"]
    text = gzip.decompress(data).decode()
    assert "tracekit_simulated" not in text
    assert "host_name" not in text


@pytest.mark.parametrize("path", RECORDED, ids=lambda path: path.parent.name)
def test_a_recorded_sample_answers_every_analysis(path: Path, store: Store) -> None:
    run = imported(store, path)
    assert not [d for d in run.meta.diagnostics if d.level != "info"]
    for analysis in available():
        result = analyze(run, analysis.name)
        assert result.tables or result.notes
    assert run.rows("steps") >= 2


def test_the_simulated_sample_is_what_the_simulator_writes() -> None:
    packed = (SAMPLES / "simulated" / "training.json.gz").read_bytes()
    assert gzip.decompress(packed) == trace(training())
