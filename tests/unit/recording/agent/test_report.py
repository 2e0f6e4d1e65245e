"""Which process of a program records a rank."""

from __future__ import annotations

from types import SimpleNamespace
from typing import TYPE_CHECKING

from tracekit.recording.agent.agent import FALLBACK, MAX_PROCESSES, Report

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
    assert third.trace_path(fallback=False) == tmp_path / "rank-1-of-2.json"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["rank-0.claim", "rank-1-of-2.claim"]


def test_processes_of_one_rank_record_apart_up_to_a_limit(tmp_path: Path) -> None:
    reports = [Report(TORCH, str(tmp_path), processes=2) for _ in range(3)]
    paths = [report.trace_path(fallback=False) for report in reports]
    assert paths == [tmp_path / "rank-0.json", tmp_path / "rank-0.1.json", None]
    assert MAX_PROCESSES > 2
