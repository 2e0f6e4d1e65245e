from __future__ import annotations

import gzip
import json
from decimal import Decimal
from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st

from samples.simulator import Clock, Kind, Program, trace, write
from samples.simulator.kineto import EPOCH_NS, microseconds

if TYPE_CHECKING:
    from pathlib import Path


def small() -> Program:
    program = Program(rank=1, world_size=2)
    with program.step():
        with program.annotation("Optimizer.zero_grad#SGD.zero_grad"), program.op("aten::zero_"):
            program.memset(64, 700)
        with program.op("aten::linear"), program.op("aten::addmm", shapes=[[2, 3]], dtypes=["float"]):
            program.kernel("gemm", 2_001)
        program.allocate(512)
        program.synchronize()
    return program


def test_a_launch_starts_after_its_call_and_when_the_stream_is_free() -> None:
    program = Program()
    first = program.kernel("a", 10_000)
    second = program.kernel("b", 1_000)
    third = program.kernel("c", 1_000, stream=9)
    assert [(event.start_ns, event.dur_ns) for event in (first, second, third)] == [
        (5_000, 10_000),
        (15_000, 1_000),
        (13_000, 1_000),
    ]
    assert program.now_ns == 12_000


def test_a_pageable_copy_blocks_the_host_and_a_pinned_one_does_not() -> None:
    blocking, free = Program(), Program()
    copy = blocking.copy("H2D", 100_000, gb_per_s=10)
    free.copy("H2D", 100_000, host_memory="pinned", gb_per_s=10)
    assert blocking.now_ns == copy.end_ns == 15_000
    assert free.now_ns == 4_000
    assert [event.name for event in (*blocking.on_device, *free.on_device)] == [
        "Memcpy HtoD (Pageable -> Device)",
        "Memcpy HtoD (Pinned -> Device)",
    ]


def test_what_an_op_launches_belongs_to_the_innermost_op_and_the_step() -> None:
    program = small()
    addmm = next(event for event in program.host if event.name == "aten::addmm")
    gemm = next(event for event in program.on_device if event.name == "gemm")
    assert (gemm.op, gemm.step) == (addmm.external_id, 0)
    assert program.now_ns >= gemm.end_ns


def test_a_graph_is_one_launch_with_many_kernels() -> None:
    program = Program()
    events = program.graph([("a", 5), ("b", 6)])
    assert len({event.correlation for event in events}) == 1
    assert [event.name for event in program.host] == ["cudaGraphLaunch"]
    assert program.graph([("a", 5)], recorded=False) == []


def test_another_thread_runs_on_and_is_waited_for() -> None:
    program = Program()
    program.wait(100)
    with program.thread(7):
        program.wait(50)
    assert (program.now_ns, program.tid) == (150, 1000)


def test_a_trace_says_that_it_is_simulated_and_is_the_same_each_time() -> None:
    first, second = trace(small()), trace(small())
    assert first == second
    document = json.loads(first)
    assert document["tracekit_simulated"] is True
    assert "simulated" in document["traceName"]
    assert document["distributedInfo"]["rank"] == 1


@pytest.mark.parametrize("clock", Clock)
def test_written_times_are_exact(clock: Clock) -> None:
    program = small()
    document = json.loads(trace(program, clock=clock), parse_float=Decimal)
    base = document.get("baseTimeNanoseconds", 0)
    kernels = [event for event in document["traceEvents"] if event.get("cat") == Kind.KERNEL]
    assert [base + int(event["ts"] * 1000) - EPOCH_NS for event in kernels] == [
        event.start_ns for event in program.on_device if event.kind is Kind.KERNEL
    ]


@given(st.integers(-(2**62), 2**62))
def test_microseconds_lose_nothing(ns: int) -> None:
    assert int(Decimal(bytes(microseconds(ns)).decode()).scaleb(3)) == ns


def test_without_device_events_the_devices_are_still_named(tmp_path: Path) -> None:
    path = write(small(), tmp_path / "trace.json.gz", with_device=False)
    document = json.loads(gzip.decompress(path.read_bytes()))
    assert [device["id"] for device in document["deviceProperties"]] == [0]
    assert not [event for event in document["traceEvents"] if event.get("cat") == "kernel"]


def test_a_free_names_what_it_ends_and_the_reserve_can_be_given() -> None:
    program = Program()
    address = program.allocate(1000, reserved=5000)
    program.allocate(-1000, address=address)
    program.allocate(3)
    found = [
        (one.bytes, one.address == address, one.total_allocated, one.total_reserved)
        for one in program.allocations
    ]
    assert found == [(1000, True, 1000, 5000), (-1000, True, 0, 0), (3, False, 3, 1 << 21)]
