from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tracekit.analyses.memory import FEW_STEPS, NO_ADDRESSES, NO_EVENTS, NO_TOTALS, TIMELINE_POINTS
from tracekit.analyses.memory.events import theil_sen

from tests.builders import Row, host, kernel, make_run, step
from tests.tiers import examples
from tracekit.analysis import analyze
from tracekit.schema import C, HostKind

MIB = 1 << 20


def event(t: int, size: int, address: int | None = None, **more: Any) -> Row:
    return {C.T_NS: t, C.BYTES: size, C.ADDRESS: address, **more}


def totals(allocated: int, reserved: int | None = None) -> Row:
    return {C.TOTAL_ALLOCATED: allocated, C.TOTAL_RESERVED: reserved}


def only(frame: pd.DataFrame) -> dict[str, Any]:
    (row,) = frame.to_dict("records")
    return row


def test_summary_and_ops_of_one_device(tmp_path: Path) -> None:
    run = make_run(
        tmp_path,
        steps=[step(3, 0, 100)],
        host_intervals=[host("aten::mm", 0, 50), host("aten::add", 50, 90)],
        allocations=[
            event(10, 100, 1, **totals(1100, 4000), **{C.OP_ROW: 0}),
            event(20, 50, 2, **totals(1150, 4000), **{C.OP_ROW: 0}),
            event(30, -100, 1, **totals(1050, 4000)),
            event(40, -500, 9, **totals(550, 4000)),
            event(60, 30, 1, **totals(580, 4000), **{C.OP_ROW: 1}),
            event(70, 20, 3, **totals(600, 5000)),
            event(80, 10, 3, **totals(610, 5000), **{C.OP_ROW: 1}),
        ],
    )
    result = analyze(run, "memory")
    assert only(result.tables["summary"]) == {
        "rank": 0,
        "device": 0,
        "peak_allocated": 1150,
        "peak_reserved": 5000,
        "fragmentation": 2850,
        "peak_at_ns": 20,
        "peak_step": 3,
        "peak_op": "aten::mm",
        "start_allocated": 1000,
        "end_allocated": 610,
        "most_fragmentation": 4400,
        "allocations": 5,
        "frees": 2,
        "unfreed": 3,
        "unfreed_bytes": 90,
        "totals": "recorded",
    }
    columns = ["op", "allocated", "live_at_peak", "unfreed", "largest", "allocations"]
    assert result.tables["by_op"][columns].values.tolist() == [
        ["aten::mm", 150, 150, 50, 100, 2],
        ["aten::add", 40, 0, 40, 30, 2],
        ["(no op recorded)", 20, 0, 0, 20, 1],
    ]
    columns = [C.STEP, "floor", "peak", "net", "allocations"]
    assert result.tables["steps"][columns].values.tolist() == [[3, 550, 1150, -390, 5]]
    assert result.tables["timeline"][[C.T_NS, "allocated", "reserved"]].values.tolist() == [
        [10, 1100, 4000],
        [20, 1150, 4000],
        [30, 1050, 4000],
        [40, 550, 4000],
        [60, 580, 4000],
        [70, 600, 5000],
        [80, 610, 5000],
    ]
    assert result.notes == (FEW_STEPS,)


def test_without_totals_and_addresses_levels_are_relative_and_pairs_unknown(tmp_path: Path) -> None:
    run = make_run(tmp_path, allocations=[event(10, -100), event(20, 300), event(30, -300)])
    result = analyze(run, "memory")
    row = only(result.tables["summary"])
    assert (row["peak_allocated"], row["start_allocated"], row["end_allocated"]) == (200, 0, -100)
    assert row["totals"] == "since the capture's start"
    assert all(pd.isna(row[name]) for name in ("peak_reserved", "fragmentation", "unfreed", "peak_step"))
    assert pd.isna(only(result.tables["by_op"])["unfreed"])
    assert result.notes == (NO_ADDRESSES, NO_TOTALS, FEW_STEPS)


def test_a_peak_before_the_first_event_is_the_peak(tmp_path: Path) -> None:
    run = make_run(
        tmp_path, allocations=[event(10, -100, 1, **totals(400, 900)), event(20, 50, 2, **totals(450, 900))]
    )
    row = only(analyze(run, "memory").tables["summary"])
    assert (row["peak_allocated"], row["peak_at_ns"], row["peak_op"]) == (500, 10, "")
    assert row["unfreed_bytes"] == 50


def test_ranks_devices_and_the_host_stay_apart(tmp_path: Path) -> None:
    places = [(1, 0), (0, -1), (0, 1), (0, 0)]
    run = make_run(
        tmp_path,
        allocations=[
            event(10, 10 + number, 7, **totals(10 + number, 0), **{C.RANK: rank, C.DEVICE: device})
            for number, (rank, device) in enumerate(places)
        ],
    )
    table = analyze(run, "memory").tables["summary"]
    columns = [C.RANK, C.DEVICE, "peak_allocated", "peak_reserved"]
    assert table[columns].values.tolist() == [
        [0, 0, 13, pd.NA],
        [0, 1, 12, pd.NA],
        [0, -1, 11, pd.NA],
        [1, 0, 10, pd.NA],
    ]


def test_a_floor_holds_the_level_a_step_began_with_and_nothing_of_its_neighbours(tmp_path: Path) -> None:
    run = make_run(
        tmp_path,
        steps=[step(0, 0, 100), step(1, 100, 200), step(2, 200, 300)],
        allocations=[event(50, 500, 1), event(100, -200, 2), event(250, 0, 3), event(299, 900, 3)],
    )
    table = analyze(run, "memory").tables["steps"]
    assert table[["floor", "peak", "net", "allocations"]].values.tolist() == [
        [0, 500, 500, 1],
        [300, 500, -200, 0],
        [300, 1200, 900, 1],
    ]


def leaking(floors: list[int]) -> list[Row]:
    """A level at the end of each step of 100 ns."""
    changes = np.diff([0, *floors])
    return [
        event(100 * number + 50, int(change), 1000 + number, **{C.OP_ROW: 0})
        for number, change in enumerate(changes)
        if change
    ]


def grown(path: Path, floors: list[int]) -> Any:
    steps = [step(number, 100 * number, 100 * number + 100) for number in range(len(floors))]
    run = make_run(path, steps=steps, host_intervals=[host("aten::cat", 0, 9)], allocations=leaking(floors))
    return analyze(run, "memory")


def test_a_leak_is_named_with_bounds_in_bytes(tmp_path: Path) -> None:
    result = grown(tmp_path, [MIB * number for number in range(1, 8)])
    assert only(result.tables["leak"]) == {
        "rank": 0,
        "device": 0,
        "growth": MIB,
        "growth_low": MIB,
        "growth_high": MIB,
        "steps": 6,
        "first_floor": MIB,
        "last_floor": 6 * MIB,
    }
    (finding,) = result.findings
    growth = "grows by 1 MiB per step (95% confidence: 1 MiB to 1 MiB), over 6 steps"
    assert finding.title == f"Memory on device 0 of rank 0 {growth}"
    assert "5 MiB by aten::cat (5 allocations)" in finding.advice
    assert finding.evidence == {"host_intervals": [0]}


def test_a_leak_on_several_devices_is_one_finding(tmp_path: Path) -> None:
    steps = [step(number, 100 * number, 100 * number + 100) for number in range(7)]
    events = [
        {**row, C.DEVICE: place, C.BYTES: row[C.BYTES] * (place + 3)}
        for place in (0, 1, -1)
        for row in leaking([MIB * number for number in range(7)])
    ]
    rows = {"steps": steps, "host_intervals": [host("aten::cat", 0, 9)], "allocations": events}
    run = make_run(tmp_path / "one", **rows)
    titles = [finding.title for finding in analyze(run, "memory").findings]
    meta = {"environment": {"program": {"threads": {"python": 2}}}}  # which may free what the other allocates
    threaded = analyze(make_run(tmp_path / "several", meta=meta, **rows), "memory").findings
    assert [finding.title for finding in threaded] == titles[:1]
    assert [(title.split(" (")[0], title.split("steps")[1]) for title in titles] == [
        ("Memory on device 1 of rank 0 grows by 4 MiB per step", "; also on 1 more"),
        ("Memory on the host of rank 0 grows by 2 MiB per step", ""),
    ]


def test_shrinking_jumping_and_slowly_growing_floors_are_no_leak(tmp_path: Path) -> None:
    floors = {
        "shrinking": [9 * MIB - MIB * number for number in range(8)],
        "one jump": [0, MIB, MIB, MIB, MIB, 9 * MIB, 9 * MIB, 9 * MIB, 9 * MIB],
        "little": [1000 * number for number in range(10)],
        "few": [MIB * number for number in range(4)],
    }
    for name, values in floors.items():
        assert grown(tmp_path / name, values).findings == (), name


def test_a_timeline_is_bounded_and_keeps_every_extreme(tmp_path: Path) -> None:
    count = 9_001
    levels = np.random.default_rng(1).integers(0, 10**9, count)
    changes = np.diff(levels, prepend=0)
    events = [
        event(number, int(change), number, **totals(int(level), int(level) + 7))
        for number, (change, level) in enumerate(zip(changes, levels, strict=True))
    ]
    table = analyze(make_run(tmp_path, allocations=events), "memory").tables["timeline"]
    assert 1_000 < len(table) <= TIMELINE_POINTS
    assert (table["allocated"].max(), table["allocated"].min()) == (levels.max(), levels.min())
    assert table["reserved"].max() == levels.max() + 7
    assert table[C.T_NS].is_monotonic_increasing


@pytest.mark.parametrize(("call", "found"), [("hipFree", True), ("hipMalloc", False), ("hipFreeHost", False)])
def test_without_steps_only_memory_that_is_given_back_in_the_second_half_counts(
    tmp_path: Path, call: str, found: bool
) -> None:
    inside = {"kind": HostKind.RUNTIME, C.PARENT_ROW: 0}
    run = make_run(
        tmp_path,
        host_intervals=[
            host("miopen", 0, 200_000),
            *(host(call, 1000 * number, 1000 * number + 100, **inside) for number in range(101)),
        ],
    )
    result = analyze(run, "memory")
    assert [finding.saving_ns_per_step for finding in result.findings] == [51 * 100] * found
    assert all("100.0% of that time is inside miopen" in finding.advice for finding in result.findings)
    if call != "hipFreeHost":
        row = only(result.tables["driver_calls"])
        assert (row["count"], row["later_count"], row["later_ns"]) == (101, 51, 5100)
    assert result.notes == (NO_EVENTS,)


@pytest.mark.parametrize(("busy", "saving"), [(0, 5_100), (6_000, 4_100), (10_000, None)])
def test_driver_calls_save_no_more_than_the_device_idles_nor_twice_on_two_threads(
    tmp_path: Path, busy: int, saving: int | None
) -> None:
    calls = [
        host("cudaFree", 100 * number, 100 * number + 100, kind=HostKind.RUNTIME, tid=thread)
        for number in range(102)
        for thread in (1, 2)
    ]
    devices = [kernel(0, busy), kernel(10_100, 10_100)]
    run = make_run(tmp_path, host_intervals=calls, device_intervals=devices)
    savings = [finding.saving_ns_per_step for finding in analyze(run, "memory").findings]
    assert savings == ([] if saving is None else [saving])


def test_peaks_of_the_process_are_told(tmp_path: Path) -> None:
    sample = {C.T_NS: 0, C.SOURCE: "torch", C.UNIT: "bytes", "value": 512.0}
    run = make_run(
        tmp_path,
        counters=[
            {**sample, C.METRIC: "device_peak_allocated_bytes", C.DEVICE: 1},
            {**sample, C.METRIC: "host_peak_bytes", C.SOURCE: "process", C.DEVICE: None},
            {**sample, C.METRIC: "something else", C.DEVICE: 1},
        ],
    )
    result = analyze(run, "memory")
    assert result.tables["peaks"].values.tolist() == [
        ["process", pd.NA, "peak resident memory of the process", 512],
        ["torch", 1, "peak allocated on the device", 512],
    ]
    assert (list(result.tables), result.notes) == (["peaks"], (NO_EVENTS,))


@settings(max_examples=examples(20))
@given(st.lists(st.tuples(st.integers(0, 5), st.integers(1, 9)), min_size=1, max_size=25))
def test_unfreed_bytes_and_live_bytes_are_those_of_a_plain_ledger(requests: list[tuple[int, int]]) -> None:
    held: dict[int, int] = {}
    events, levels, lives = [], [], []
    for number, (address, asked) in enumerate(requests):
        size = -held.pop(address) if address in held else asked
        if size > 0:
            held[address] = size
        events.append(event(number, size, address))
        levels.append(sum(held.values()))
        lives.append(dict(held))
    with tempfile.TemporaryDirectory() as folder:
        tables = analyze(make_run(Path(folder), allocations=events), "memory").tables
    row = only(tables["summary"])
    assert (row["unfreed"], row["unfreed_bytes"]) == (len(held), sum(held.values()))
    assert (row["peak_allocated"], row["end_allocated"]) == (max(levels), levels[-1])
    live = lives[levels.index(max(levels))]
    assert int(tables["by_op"]["live_at_peak"].sum()) == sum(live.values())
    assert int(tables["by_op"]["allocated"].sum()) == sum(
        size for size in (e[C.BYTES] for e in events) if size > 0
    )


def test_the_slope_of_many_steps_is_taken_from_a_thousand() -> None:
    values = np.arange(5_000, dtype=np.int64) * 7
    assert (theil_sen(values).slope, theil_sen(values).low) == (7, 7)


def test_one_wild_step_does_not_move_the_slope() -> None:
    values = np.arange(20, dtype=np.int64) * 7
    values[11] += 10**9
    assert theil_sen(values).slope == 7


def test_memory_reserved_for_a_request_larger_than_what_is_unused_is_no_fragmentation(tmp_path: Path) -> None:
    gib = 1 << 30
    run = make_run(
        tmp_path,
        allocations=[
            event(1, gib, 1, **totals(gib, 2 * gib)),
            event(2, -gib, 1, **totals(0, 2 * gib)),
            event(3, 3 * gib, 2, **totals(3 * gib, 5 * gib)),
        ],
    )
    (finding,) = analyze(run, "memory").findings
    assert (finding.code, finding.severity) == ("unused_reserved_memory", "info")


@pytest.mark.parametrize(("tensors", "code"), [(100, "caching_allocator_off"), (300, "allocator_churn")])
def test_an_allocation_for_most_tensors_means_that_the_cache_is_off(
    tmp_path: Path, tensors: int, code: str
) -> None:
    ops = [host("aten::empty", 1_000 * k, 1_000 * k + 900) for k in range(tensors)]
    calls = [
        host(name, 1_000 * k + at, 1_000 * k + at + 300, parent_row=k, depth=1, kind=HostKind.RUNTIME)
        for k in range(tensors)
        if k % 3 == 0 or tensors == 100
        for name, at in (("hipMalloc", 10), ("hipFree", 400))
    ]
    busy = [kernel(0, 10), kernel(1_000 * tensors, 1_000 * tensors + 10)]
    run = make_run(tmp_path, host_intervals=[*ops, *calls], device_intervals=busy)
    found = [one.code for one in analyze(run, "memory").findings]
    assert found == [code]


def test_calls_of_all_threads_and_kinds_count_without_a_caching_allocator(tmp_path: Path) -> None:
    """Every second tensor is of another thread, as in backward; both threads allocate and free."""
    runtime = {"kind": HostKind.RUNTIME, "depth": 1}
    ops = [host("aten::empty", 1_000 * k, 1_000 * k + 900, tid=k % 2) for k in range(120)]
    calls = [
        host(name, 1_000 * k + at, 1_000 * k + at + 300, parent_row=k, tid=k % 2, **runtime)
        for k in range(120)
        for name, at in (("hipMalloc", 10), ("hipFree", 400))
    ]
    busy = [kernel(0, 10), kernel(120_000, 120_010)]
    (finding,) = analyze(
        make_run(tmp_path, host_intervals=[*ops, *calls], device_intervals=busy), "memory"
    ).findings
    assert finding.title.startswith(
        "Caching allocator off: 120 allocations and 120 frees at the driver: 72 µs"
    )
    assert finding.saving_ns_per_step == 72_000
