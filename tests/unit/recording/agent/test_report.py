"""Which process of a program records a rank."""

from __future__ import annotations

from types import SimpleNamespace
from typing import TYPE_CHECKING

from tracekit.recording.agent.agent import FALLBACK, MAX_PROCESSES, MAX_STEPS_BEHIND, Report

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


def ranks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int) -> Report:
    monkeypatch.setenv("RANK", str(number))
    monkeypatch.setenv("WORLD_SIZE", "2")
    return Report(TORCH, str(tmp_path))


def test_ranks_end_after_the_same_step_also_if_one_recorded_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ends = {}
    reports = [ranks(tmp_path, monkeypatch, number) for number in range(2)]
    done_at = (6, 21)  # the recording of the first one failed early
    for step in range(1, 40):
        for number, report in enumerate(reports):
            monkeypatch.setenv("RANK", str(number))
            if number not in ends and step >= done_at[number] and report.are_others_done(step):
                ends[number] = step
    assert ends == {0: 23, 1: 23}


def test_a_rank_does_not_wait_for_ever(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    report = ranks(tmp_path, monkeypatch, 0)
    assert not report.are_others_done(5)
    assert not report.are_others_done(5 + MAX_STEPS_BEHIND)
    assert report.are_others_done(6 + MAX_STEPS_BEHIND)


def test_a_process_without_a_job_ends_at_once(tmp_path: Path) -> None:
    assert Report(TORCH, str(tmp_path)).are_others_done(5)
    assert list(tmp_path.iterdir()) == []
