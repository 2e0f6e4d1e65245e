"""Which process of a program records a rank."""

from __future__ import annotations

from types import SimpleNamespace
from typing import TYPE_CHECKING

from tracekit.recording.agent.agent import FALLBACK, Report

if TYPE_CHECKING:
    from pathlib import Path

    import pytest

TORCH = SimpleNamespace(distributed=SimpleNamespace(is_available=lambda: False))


def test_the_first_process_that_claims_a_rank_records_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first, second, third = (Report(TORCH, str(tmp_path)) for _ in range(3))
    assert first.trace_path(fallback=False) == tmp_path / "rank-0.json"
    assert first.trace_path(fallback=True) == tmp_path / f"rank-0{FALLBACK}.json"
    assert second.trace_path(fallback=False) is None
    monkeypatch.setenv("RANK", "1")
    monkeypatch.setenv("WORLD_SIZE", "2")
    assert third.trace_path(fallback=False) == tmp_path / "rank-1.json"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["rank-0.claim", "rank-1.claim"]
