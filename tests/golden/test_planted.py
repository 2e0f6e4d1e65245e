"""Simulate, import, analyze: the numbers are the planted ones, whatever the file looks like."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from samples.simulator import Clock, DeviceEvent, Kind, Program, write
from samples.simulator.examples import training
from tests.shared_runs import analyze
from tracekit.ingest.importer import import_traces
from tracekit.schema import C

if TYPE_CHECKING:
    from pathlib import Path

    from tracekit.runs.run import Run
    from tracekit.runs.store import Store

Spans = list[tuple[int, int]]


def length(spans: Spans) -> int:
    """Length of a union, one interval at a time."""
    total, reached = 0, -(10**18)
    for start, end in sorted(spans):
        total += max(0, end - max(start, reached))
        reached = max(reached, end)
    return total


def spans(events: list[DeviceEvent], *kinds: Kind) -> Spans:
    return [(event.start_ns, event.end_ns) for event in events if event.kind in kinds]


def planted(events: list[DeviceEvent]) -> dict[str, int]:
    kernels, moves = spans(events, Kind.KERNEL), spans(events, Kind.MEMCPY, Kind.MEMSET)
    window = max(event.end_ns for event in events) - min(event.start_ns for event in events)
    return {
        "window_ns": window,
        "active_ns": length(kernels),
        "movement_ns": length(kernels + moves) - length(kernels),
        "idle_ns": window - length(kernels + moves),
        "copies_union_ns": length(moves),
        "memcpy_union_ns": length(spans(events, Kind.MEMCPY)),
        "kernels": len(kernels),
        "memcpys": len(spans(events, Kind.MEMCPY)),
        "memsets": len(spans(events, Kind.MEMSET)),
        "kernel_sum_ns": sum(end - start for start, end in kernels),
    }


def imported(store: Store, *paths: Path) -> Run:
    (run,) = import_traces(store, list(paths))
    return run


def rows(run: Run, analysis: str, table: str) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = analyze(run, analysis).tables[table].to_dict("records")
    return found


@pytest.mark.parametrize("clock", Clock)
@pytest.mark.parametrize("suffix", [".json", ".json.gz"])
def test_breakdown_is_the_planted_one(store: Store, tmp_path: Path, clock: Clock, suffix: str) -> None:
    program = training()
    run = imported(store, write(program, tmp_path / f"trace{suffix}", clock=clock))
    (whole,) = rows(run, "gpu_breakdown", "whole")
    expected = planted(program.on_device)
    assert {name: whole[name] for name in expected} == expected
    assert run.meta.collector.options.get("simulated") is True


def test_each_step_has_its_planted_window_and_kernels(store: Store, tmp_path: Path) -> None:
    program = training()
    run = imported(store, write(program, tmp_path / "trace.json"))
    markers = [event for event in program.host if event.name.startswith("ProfilerStep#")]
    for row, marker in zip(rows(run, "gpu_breakdown", "per_step"), markers, strict=True):
        mine = [event for event in program.on_device if event.step == row[C.STEP]]
        end = max([marker.start_ns + marker.dur_ns, *(event.end_ns for event in mine)])
        assert row["window_ns"] == end - marker.start_ns
        assert row["kernels"] == len(spans(mine, Kind.KERNEL))
        assert row["active_ns"] == length(spans(mine, Kind.KERNEL))
    assert [row["host_ns"] for row in rows(run, "steps", "steps")] == [marker.dur_ns for marker in markers]


def test_ranks_stay_apart(store: Store, tmp_path: Path) -> None:
    programs = [training(rank=rank, world_size=2) for rank in range(2)]
    paths = [write(program, tmp_path / f"rank{program.rank}.json") for program in programs]
    run = imported(store, *paths)
    whole = rows(run, "gpu_breakdown", "whole")
    assert [row[C.RANK] for row in whole] == [0, 1]
    for row, program in zip(whole, programs, strict=True):
        expected = planted(program.on_device)
        assert {name: row[name] for name in expected} == expected


def test_ops_get_the_device_time_they_launched(store: Store, tmp_path: Path) -> None:
    program = training()
    run = imported(store, write(program, tmp_path / "trace.json"))
    found = {row[C.NAME]: row for row in rows(run, "ops", "ops")}
    launched: dict[str, int] = {}
    names = {event.external_id: event.name for event in program.host if event.kind is Kind.OP}
    for event in program.on_device:
        if event.op is not None:
            launched[names[event.op]] = launched.get(names[event.op], 0) + event.dur_ns
    got = {name: row["device_self_ns"] for name, row in found.items() if row["device_self_ns"]}
    assert got == launched
    assert found["aten::conv2d"]["device_total_ns"] == launched["aten::convolution"]
    assert found["aten::zero_"]["allocated_bytes"] == 3 * 1024


def test_kernels_are_counted_by_op_and_name(store: Store, tmp_path: Path) -> None:
    program = training()
    run = imported(store, write(program, tmp_path / "trace.json"))
    got = {row[C.NAME]: (row["count"], row["sum_ns"]) for row in rows(run, "kernels", "names")}
    assert got == {
        "conv_h884": (3, 3 * 21_007),
        "graphed": (6, 3 * 3_333),
        "relu_backward": (3, 3 * 5_003),
    }
    by_op = {row["op"]: row["count"] for row in rows(run, "kernels", "by_op")}
    assert by_op == {"aten::convolution": 3, "ReluBackward0": 3, "(no op recorded)": 6}


def test_a_clean_simulation_is_good_and_one_without_device_events_is_misleading(
    store: Store, tmp_path: Path
) -> None:
    program = training()
    clean = imported(store, write(program, tmp_path / "clean.json"))
    blind = imported(store, write(program, tmp_path / "blind.json", with_device=False))
    assert [rows(run, "integrity", "verdict")[0]["verdict"] for run in (clean, blind)] == [
        "good",
        "misleading",
    ]
    assert "not an idle GPU" in analyze(blind, "gpu_breakdown").notes[0]


def test_graph_replays_without_kernels_are_found(store: Store, tmp_path: Path) -> None:
    program = Program()
    with program.step():
        program.kernel("seen", 500)
        program.graph([("lost", 10_000)], recorded=False)
    run = imported(store, write(program, tmp_path / "trace.json"))
    checks = {row["check"]: row["level"] for row in rows(run, "integrity", "checks")}
    assert checks["graph_without_device"] == "error"


def test_random_launches_on_several_streams_and_devices(store: Store, tmp_path: Path) -> None:
    random = np.random.default_rng(20261121)
    program = Program()
    for _ in range(300):
        place = {"stream": int(random.integers(1, 4)), "device": int(random.integers(0, 2))}
        size, pause = int(random.integers(1, 30_000)), int(random.integers(0, 9_000))
        program.wait(pause)
        match random.integers(0, 3):
            case 0:
                program.kernel("k", size, **place)
            case 1:
                program.copy("D2D", 10 * size, **place)
            case _:
                program.memset(size, size, **place)
    run = imported(store, write(program, tmp_path / "trace.json"))
    for row in rows(run, "gpu_breakdown", "whole"):
        mine = [event for event in program.on_device if event.device == row[C.DEVICE]]
        expected = planted(mine)
        assert {name: row[name] for name in expected} == expected
