"""Traces of several ranks or processes in one file."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

from tests.traces import event, imported, kernel_event, launch, notes, run_of, table, verdict
from tracekit.ingest.kineto import merged
from tracekit.schema import C

if TYPE_CHECKING:
    from pathlib import Path

    from tracekit.runs.run import Run
    from tracekit.runs.store import Store


def ranks(pid_of: Any, **args: Any) -> list[dict[str, Any]]:
    """Launches of two ranks with equal correlation ids, and their kernels 20 and 40 µs later."""
    return [
        made
        for rank, delay in enumerate((20, 40))
        for number in (1, 2)
        for made in (
            launch(number, 100 * number + 50 * rank, pid_of(4711, rank)),
            {
                **kernel_event(number, pid=pid_of(0, rank), ts=100 * number + 50 * rank + delay),
                "args": {"device": 0, "stream": 7, "correlation": number, **args},
            },
        )
    ]


def delays(run: Run) -> list[tuple[int, int]]:
    """Rank of each linked kernel, and its time after its call, which must be of the same rank."""
    calls = table(run, "host_intervals").set_index(C.ROW_ID)
    rows = table(run, "device_intervals").query("kind == 'kernel'").dropna(subset=[C.LAUNCH_ROW])
    calls = calls.loc[rows[C.LAUNCH_ROW].astype(int)]
    assert calls[C.RANK].tolist() == rows[C.RANK].tolist()
    times = rows[C.START_NS].to_numpy() - calls[C.START_NS].to_numpy()
    return sorted(zip(rows[C.RANK].tolist(), times.tolist(), strict=True))


APART = [(0, 20_000), (0, 20_000), (1, 40_000), (1, 40_000)]


@pytest.mark.parametrize(
    "pid_of",
    [
        lambda pid, rank: pid + rank * 10**8,
        lambda pid, rank: pid + rank * 10**8 if pid else 0,
        lambda pid, rank: f"[TP{rank:02d}-DP00] {pid}",
        lambda pid, rank: f"rank{rank}/{pid}",
        lambda pid, rank: f"TP-{rank} {pid}",
        lambda pid, rank: f"{rank}:{pid}",
        lambda pid, rank: f"rank{rank}_{pid}" if pid else rank,
    ],
    ids=["offset", "offset of calls", "label", "rank", "tensor parallel", "prefix", "word of calls"],
)
def test_ranks_of_a_merged_file_are_told_apart(store: Store, tmp_path: Path, pid_of: Any) -> None:
    run = run_of(store, tmp_path, ranks(pid_of), distributedInfo={"rank": 0, "world_size": 2})
    assert delays(run) == APART
    assert verdict(run)[0] == "good"


def named(events: list[dict[str, Any]], *categories: str) -> list[dict[str, Any]]:
    """Events of `ranks` of which those of some categories name their rank."""
    half = len(events) // 2
    return [
        {**made, "args": {**made["args"], "rank": place // half}} if made["cat"] in categories else made
        for place, made in enumerate(events)
    ]


@pytest.mark.parametrize("categories", [("kernel",), ("cuda_runtime",), ("kernel", "cuda_runtime")])
@pytest.mark.parametrize("pid_of", [lambda pid, rank: pid and 1 + rank, lambda pid, rank: pid and 1])
def test_arguments_tell_the_rank(store: Store, tmp_path: Path, pid_of: Any, categories: Any) -> None:
    run = run_of(store, tmp_path, named(ranks(pid_of), *categories))
    is_told = categories != ("kernel",) or pid_of(1, 1) > 1
    assert delays(run) == (APART if is_told else [])
    assert verdict(run)[0] == ("good" if is_told else "usable")


def test_names_of_processes_tell_the_rank(store: Store, tmp_path: Path) -> None:
    names = [
        {"ph": "M", "name": "process_name", "pid": 2 - rank, "args": {"name": f"scheduler_TP{rank}"}}
        for rank in (0, 1)
    ]
    run = run_of(store, tmp_path, [*names, *ranks(lambda pid, rank: pid and 2 - rank)])
    assert delays(run) == APART
    assert verdict(run)[0] == "good"


@pytest.mark.parametrize("devices", [(0, 0), (0, 1)])
def test_processes_with_equal_ids_are_ranks_in_order(store: Store, tmp_path: Path, devices: Any) -> None:
    events = ranks(lambda pid, rank: 1 + rank if pid else devices[rank])
    run = run_of(store, tmp_path, events)
    assert delays(run) == APART
    assert "processes 1, 2" in notes(run)["rank_assumed"]
    assert verdict(run)[0] == "usable"


@pytest.mark.parametrize("devices", [(0, 0), (0, 1)])
def test_work_that_may_be_of_several_processes_has_no_launch(
    store: Store, tmp_path: Path, devices: Any
) -> None:
    events = ranks(lambda pid, rank: 1 + rank if pid else devices[rank])
    for made in events:
        made["ts"] += 400 * (made["cat"] == "kernel")
    run = run_of(store, tmp_path, events)
    assert (delays(run), verdict(run)[0]) == ([], "usable")
    assert table(run, "device_intervals").query("kind == 'kernel'")[C.RANK].tolist().count(0) == 2
    assert notes(run)["unclear_process"].startswith("trace.json: 4 device intervals ")


def test_two_recordings_of_one_process_id_have_no_launches(store: Store, tmp_path: Path) -> None:
    run = run_of(store, tmp_path, ranks(lambda pid, rank: pid))
    assert (delays(run), verdict(run)[0]) == ([], "usable")
    assert "4 of 4 device intervals have the correlation id of several calls" in notes(run)["repeated_ids"]


def test_a_call_of_the_driver_with_the_id_of_its_caller_is_no_other_recording(
    store: Store, tmp_path: Path
) -> None:
    driver = event("cuda_driver", "cuLaunchKernel", 11, 2, correlation=1)
    run = run_of(store, tmp_path, [launch(1, 10, 9), driver, kernel_event(1, ts=20)])
    assert delays(run) == [(0, 10_000)]
    assert not notes(run)


def test_processes_with_other_ids_are_one_recording(store: Store, tmp_path: Path) -> None:
    events = ranks(lambda pid, rank: pid and 1 + rank)
    for made in events[len(events) // 2 :]:
        made["args"]["correlation"] += 10
    run = run_of(store, tmp_path, events)
    assert delays(run) == [(0, delay) for _, delay in APART]
    assert verdict(run)[0] == "good"


def test_ranks_of_a_damaged_merged_file_are_told_apart(store: Store, tmp_path: Path) -> None:
    text = json.dumps({"traceEvents": ranks(lambda pid, rank: pid + rank * 10**8)})
    path = tmp_path / "trace.json"
    path.write_bytes(text.encode().replace(b'"tid"', b'"\xbe": 1, "tid"', 1))
    assert delays(imported(store, path)) == APART
    path.write_text(text[:-30])
    run = imported(store, path)
    assert delays(run) == APART[:-1]
    assert {"truncated", "dropped_events"} <= notes(run).keys()


def test_work_whose_times_fit_several_ranks_is_of_that_in_its_arguments(store: Store, tmp_path: Path) -> None:
    events = ranks(lambda pid, rank: pid and pid + rank * 10**8)
    for made in events[len(events) // 2 :]:
        made["ts"] -= 49  # nearly the times of the other rank
    run = run_of(store, tmp_path, named(events, "kernel"))
    assert delays(run) == APART


@pytest.mark.parametrize("categories", [(), ("kernel", "cuda_runtime")])
def test_what_cannot_be_read_is_in_no_rank(store: Store, tmp_path: Path, categories: Any) -> None:
    events = named(ranks(lambda pid, rank: pid and 1 + rank), *categories)
    text = json.dumps({"traceEvents": events})
    path = tmp_path / "trace.json"
    path.write_text(text.replace('}, {"ph"', '}, {"ph": "X", broken}, {"ph"', 2))
    run = imported(store, path)
    assert delays(run) == APART
    assert "2 of 10 events could not be read" in notes(run)["dropped_events"]


def test_merged_ranks_need_not_begin_with_0(store: Store, tmp_path: Path) -> None:
    run = run_of(store, tmp_path, ranks(lambda pid, rank: pid + (rank + 3) * 10**8))
    assert set(table(run, "device_intervals")[C.RANK]) == {3, 4}
    assert "missing: 0, 1, 2" in notes(run)["missing_ranks"]


def test_large_process_ids_alone_are_no_ranks(store: Store, tmp_path: Path) -> None:
    events = ranks(lambda pid, rank: (pid or 4711) + (rank + 3) * 10**8)[:4]
    assert set(table(run_of(store, tmp_path, events), "host_intervals")[C.RANK]) == {0}


def test_an_ordinary_trace_is_read_once(
    store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(merged, "split_ranks", None)
    run = run_of(store, tmp_path, [launch(1, 10, 0), kernel_event(1, ts=20)])
    assert len(table(run, "host_intervals")) == 1
