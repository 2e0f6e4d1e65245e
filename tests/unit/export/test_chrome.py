from __future__ import annotations

import gzip
import json
from typing import TYPE_CHECKING, Any

from tests.builders import host, kernel, make_run
from tracekit.export.chrome import chrome_trace, compress
from tracekit.schema import C

if TYPE_CHECKING:
    from pathlib import Path

    from tracekit.runs.run import Run

HOSTILE = '</script><b>"quoted"\\ \n\u202e'


def events(run: Run) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = json.loads(b"".join(chrome_trace(run)))["traceEvents"]
    return found


def test_intervals_keep_their_nanoseconds_and_names(tmp_path: Path) -> None:
    calls = [host(HOSTILE, 1_000_000_000_000_001, 1_000_000_000_000_004, **{C.TID: 7})]
    run = make_run(tmp_path, host_intervals=calls)
    text = b"".join(chrome_trace(run)).decode()
    assert '"ts":1000000000000.001,"dur":0.003' in text
    (event,) = [one for one in events(run) if one["ph"] == "X"]
    assert (event["name"], event["tid"], event["args"]["row_id"]) == (HOSTILE, 7, 0)


def test_a_launch_is_an_arrow_from_its_call_to_its_work(tmp_path: Path) -> None:
    run = make_run(
        tmp_path,
        host_intervals=[host("cudaLaunchKernel", 10, 20)],
        device_intervals=[kernel(30, 50, **{C.LAUNCH_ROW: 0, C.STREAM: 7})],
    )
    starts, ends = ([one for one in events(run) if one["ph"] == phase] for phase in "sf")
    work = next(one for one in events(run) if one.get("cat") == "kernel")
    assert [(one["id"], one["ts"]) for one in starts] == [(0, 0.01)]
    assert [(one["id"], one["ts"], one["tid"]) for one in ends] == [(0, 0.03, 7)]
    assert ends[0]["pid"] == work["pid"] != starts[0]["pid"]


def test_rows_with_the_id_of_another_one_are_no_launches(tmp_path: Path) -> None:
    calls = [host("cudaLaunchKernel", start, start + 5, **{C.ROW_ID: 4}) for start in (10, 20)]
    work = [kernel(30, 50, **{C.LAUNCH_ROW: 4})]
    made = events(make_run(tmp_path, host_intervals=calls, device_intervals=work))
    assert [one["ts"] for one in made if one["ph"] == "s"] == [0.01]


def test_backward_ops_are_linked_to_their_forward_ops_and_their_thread_is_named(tmp_path: Path) -> None:
    def op(name: str, start: int, thread: int, sequence: int, forward: int) -> dict[str, Any]:
        more = {C.TID: thread, C.SEQUENCE: sequence, C.FWD_TID: forward}
        return host(name, start, start + 9 - start % 5, **more)

    ops = [
        op("aten::linear", 0, 1, 7, 0),
        op("aten::addmm", 2, 1, 7, 0),  # the last of a number made the node of autograd
        op("aten::relu", 10, 1, 8, 0),
        op("aten::relu", 11, 3, 8, 0),  # another thread counts for itself
        op("evaluate_function: AddmmBackward0", 30, 2, 7, 1),
        op("AddmmBackward0", 31, 2, 7, 1),
        op("ReluBackward0", 40, 2, 8, 1),
    ]
    made = events(make_run(tmp_path, host_intervals=ops))
    links = [(one["ph"], one["id"], one["tid"], one["ts"]) for one in made if one.get("cat") == "fwdbwd"]
    assert links == [("s", 1, 1, 0.002), ("f", 1, 2, 0.03)]
    names = {one["tid"]: one["args"]["name"] for one in made if one["name"] == "thread_name"}
    assert names == {1: "thread 1", 2: "thread 2 (autograd)", 3: "thread 3"}


def test_processes_of_ranks_with_equal_numbers_stay_apart(tmp_path: Path) -> None:
    calls = [host("a", 0, 1), host("b", 0, 1, **{C.RANK: 1})]
    run = make_run(tmp_path, host_intervals=calls)
    assert len({one["pid"] for one in events(run) if one["ph"] == "X"}) == 2
    names = [one["args"]["name"] for one in events(run) if one["name"] == "process_name"]
    assert {"rank 0: process 1", "rank 1: process 1"} <= set(names)


def test_times_before_the_start_of_the_run_shift_the_origin(tmp_path: Path) -> None:
    run = make_run(tmp_path, host_intervals=[host("a", -1_500, 0)])
    trace = json.loads(b"".join(chrome_trace(run)))
    assert [one["ts"] for one in trace["traceEvents"] if one["ph"] == "X"] == [0]
    assert trace["otherData"]["t0_unix_ns"] == run.meta.t0_unix_ns - 1_500


def test_an_empty_run_is_a_valid_trace(tmp_path: Path) -> None:
    run = make_run(tmp_path, host_intervals=[])
    assert all(one["ph"] == "M" for one in events(run))


def test_counters_and_allocations_are_counters(tmp_path: Path) -> None:
    sample = {C.T_NS: 5, C.SOURCE: "nvml", C.DEVICE: 0, C.METRIC: "power", C.UNIT: "W", C.VALUE: 99.5}
    unknown = sample | {C.T_NS: 6, C.VALUE: float("nan")}
    event = {C.T_NS: 7, C.RANK: 0, C.DEVICE: 0, C.BYTES: 8, C.TOTAL_ALLOCATED: 64}
    shared = sample | {C.RANK: None}
    run = make_run(tmp_path, counters=[sample, unknown, shared], allocations=[event])
    found = [(one["name"], one["ts"], one["args"]["value"]) for one in events(run) if one["ph"] == "C"]
    assert found == [
        ("nvml rank 0 device 0 power", 0.005, 99.5),
        ("nvml device 0 power", 0.005, 99.5),
        ("rank 0 device 0 allocated bytes", 0.007, 64),
    ]


def test_a_packed_stream_is_one_gzip_file() -> None:
    assert gzip.decompress(b"".join(compress([b"x" * 1_000, b"", b"y"]))) == b"x" * 1_000 + b"y"
