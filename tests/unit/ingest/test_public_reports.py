"""Inputs that public reports say break profilers: each kind as a small trace."""

from __future__ import annotations

import gzip
import json
from typing import TYPE_CHECKING, Any

import pytest

from tests import tiers
from tests.traces import event, imported, kernel_event, launch, notes, run_of, table, verdict
from tracekit.analysis import analyze
from tracekit.errors import UnusableInputError
from tracekit.ingest.importer import import_traces
from tracekit.schema import C

if TYPE_CHECKING:
    from pathlib import Path

    from tracekit.runs.run import Run
    from tracekit.runs.store import Store

EPOCH_US = 1_700_000_000_000_000


def marks(*starts: float, numbers: tuple[int, ...], tid: int = 9) -> list[dict[str, Any]]:
    """Steps of 10 µs with these numbers."""
    return [
        {**event("user_annotation", f"ProfilerStep#{number}", start, 10), "tid": tid}
        for number, start in zip(numbers, starts, strict=True)
    ]


def numbers_of(run: Run) -> list[int]:
    steps: list[int] = table(run, "steps")[C.STEP].tolist()
    return steps


@pytest.mark.parametrize("tid", [9, 8])
def test_steps_of_a_second_session_are_numbered_on(store: Store, tmp_path: Path, tid: int) -> None:
    steps = [*marks(0, 10, 20, numbers=(2, 3, 4)), *marks(200, 210, numbers=(2, 3), tid=tid)]
    run = run_of(store, tmp_path, [*steps, event("cpu_op", "aten::mm", 202, 4)])
    assert numbers_of(run) == [2, 3, 4, 5, 6]
    (note,) = [note for note in run.meta.diagnostics if note.code == "steps_renumbered"]
    assert ": the last 2 steps are numbered on; 170.00 µs between sessions are outside of any" in note.message
    assert table(run, "host_intervals").query("name == 'aten::mm'")[C.STEP].tolist() == [5]


def test_steps_that_two_threads_mark_count_once(store: Store, tmp_path: Path) -> None:
    steps = [*marks(0, 10, 20, numbers=(0, 1, 2)), *marks(4, 14, 30, numbers=(0, 1, 3), tid=8)]
    assert numbers_of(run_of(store, tmp_path, steps)) == [0, 1, 2, 3]


def test_a_step_marked_inside_itself_counts_once(store: Store, tmp_path: Path) -> None:
    assert numbers_of(run_of(store, tmp_path, marks(0, 1, 20, numbers=(0, 0, 1)))) == [0, 1]


@pytest.mark.parametrize("zero", [EPOCH_US, 1_000], ids=["epoch", "relative"])
@pytest.mark.parametrize("lost", [1, 5])
def test_kernels_at_time_0_are_set_aside(store: Store, tmp_path: Path, lost: int, zero: int) -> None:
    calls = [launch(number, zero + 10 * number, 9) for number in range(1, 7)]
    kernels = [kernel_event(number, ts=zero + 10 * number + 8, dur=5) for number in range(1, 7)]
    for kernel in kernels[:lost]:
        kernel |= {"ts": 0, "dur": 0}
    many = [kernel_event(number, ts=0, dur=0) for number in range(7, 40)] if lost == 5 else []
    run = run_of(store, tmp_path, [*calls, *kernels, *many])
    lost += len(many)
    rows = table(run, "device_intervals").query("kind == 'kernel'")
    assert len(rows) == 6 + len(many) - lost
    assert rows[C.START_NS].max() < 100_000
    assert notes(run)["far_times"].startswith(f"trace.json: {lost} rows of device_intervals ")


def test_kernels_that_last_a_day_are_set_aside(store: Store, tmp_path: Path) -> None:
    kernels = [kernel_event(number, ts=10 * number, dur=5) for number in range(1, 6)]
    run = run_of(store, tmp_path, [*kernels, kernel_event(6, ts=60, dur=EPOCH_US)])
    (row,) = analyze(run, "gpu_breakdown").tables["whole"].to_dict("records")
    assert (row["window_ns"], row["active_ns"]) == (45_000, 25_000)
    assert notes(run)["far_times"].startswith("trace.json: 1 rows of device_intervals ")


def test_unfinished_steps_are_none(store: Store, tmp_path: Path) -> None:
    steps = marks(0, 10, 20, numbers=(0, 1, 2))
    steps[2]["dur"] = -1
    run = run_of(
        store, tmp_path, [*steps, event("cpu_op", "aten::mm", 12, 5), event("cpu_op", "aten::mm", 22, 5)]
    )
    assert numbers_of(run) == [0, 1]
    rows = table(run, "host_intervals").query("name == 'aten::mm'")
    assert rows[C.STEP].fillna(-1).tolist() == [1, -1]


@pytest.mark.parametrize("duration", [-1, None])
def test_unfinished_events_are_marked(store: Store, tmp_path: Path, duration: int | None) -> None:
    events = [
        event("cpu_op", "aten::mm", 2, 5),
        launch(1, 12, 9),
        kernel_event(1, ts=20),
        kernel_event(2, ts=30),
    ]
    for cut in events[0], events[2]:
        cut["dur"] = duration
    run = run_of(store, tmp_path, events)
    for name in ("host_intervals", "device_intervals"):
        rows = table(run, name).query("kind != 'idle'")
        assert rows[C.UNFINISHED].fillna(0).tolist() == [1, 0]
        assert rows.iloc[0][C.DUR_NS] == 0
    assert "2 of 4 events are unfinished" in notes(run)["bad_duration"]


def test_kernels_without_an_id_are_not_lost(store: Store, tmp_path: Path) -> None:
    calls = [launch(number, 10 * number, 9) for number in range(1, 5)]
    kernels = [kernel_event(number, ts=10 * number + 5, dur=3) for number in range(1, 5)]
    for kernel in kernels[1:3]:
        kernel["args"]["correlation"] = 0
    run = run_of(store, tmp_path, [*calls, *kernels])
    assert verdict(run) == (
        "usable",
        "2 of 4 device intervals have no launching call; their time can't be attributed to ops",
    )
    lost = run_of(store, tmp_path, [*calls, kernels[0], kernels[3]])
    assert verdict(lost)[0] == "misleading"


def work(category: str, start: float, correlation: int | None, **args: Any) -> dict[str, Any]:
    place = {"device": 0, "stream": 7, "correlation": correlation, "bytes": 4096}
    return event(category, f"{category} of the device", start, 3, 0, **place, **args)


_LAUNCH, _COPY, _REPLAY = "cudaLaunchKernel", "cudaMemcpyAsync", "cudaGraphLaunch"


_NONE = (0, -1, None, 2**32 - 1)
_WITHOUT_ID = [
    (_LAUNCH, "kernel", {}, False),
    (_LAUNCH, "gpu_memcpy", {}, False),
    (_LAUNCH, "gpu_memset", {}, False),
    (_COPY, "gpu_memcpy", {}, False),
    (_REPLAY, "kernel", {}, False),
    (_REPLAY, "kernel", {"graph id": 3}, False),
    (_REPLAY, "gpu_memcpy", {"graph id": 3}, False),
    (_LAUNCH, "kernel", {"graph id": 3}, True),
]


@pytest.mark.parametrize(
    ("none", "call", "category", "args", "misleads"),
    tiers.thinned(
        [(none, *case) for none in _NONE for case in _WITHOUT_ID],
        default=[*((0, *case) for case in _WITHOUT_ID), *((none, *_WITHOUT_ID[0]) for none in _NONE)],
    ),
)
def test_work_without_an_id_is_not_lost(
    store: Store, tmp_path: Path, none: int | None, call: str, category: str, args: Any, *, misleads: bool
) -> None:
    linked = [(launch(number, 10 * number, 9), work("kernel", 10 * number + 5, number)) for number in (1, 99)]
    calls = [event("cuda_runtime", call, 100 + 10 * number, 4, correlation=number) for number in range(2, 8)]
    rows = [work(category, 105 + 10 * number, none, **args) for number in range(6)]
    run = run_of(store, tmp_path, [*linked[0], *linked[1], *calls, *rows])
    assert verdict(run)[0] == ("misleading" if misleads else "usable")


def test_work_without_an_id_of_one_kind_is_not_that_of_another(store: Store, tmp_path: Path) -> None:
    linked = [launch(1, 10, 9), work("kernel", 15, 1), launch(99, 990, 9), work("kernel", 995, 99)]
    lost = [launch(number, 10 * number, 9) for number in range(2, 8)]
    copies = [
        event("cuda_runtime", _COPY, 200 + 10 * number, 4, correlation=number) for number in range(30, 36)
    ]
    rows = [work("gpu_memcpy", 505 + 10 * number, 0) for number in range(6)]
    name, reason = verdict(run_of(store, tmp_path, [*linked, *lost, *copies, *rows]))
    assert (name, reason.split(";")[0]) == ("misleading", "6 of 8 kernel launches have no device interval")


def test_calls_without_an_id_did_not_lose_their_work(store: Store, tmp_path: Path) -> None:
    linked = [launch(1, 10, 9), work("kernel", 15, 1), launch(99, 990, 9), work("kernel", 995, 99)]
    calls = [launch(0, 10 * number, 9) for number in range(2, 8)]
    rows = [work("kernel", 10 * number + 5, number) for number in range(2, 8)]
    assert verdict(run_of(store, tmp_path, [*linked, *calls, *rows]))[0] == "usable"
    assert verdict(run_of(store, tmp_path, [*linked, *calls, *rows[3:]]))[0] == "misleading"


@pytest.mark.parametrize(("length", "found"), [(220, True), (130, False)])
def test_a_kernel_that_runs_over_later_ones_is_noted(
    store: Store, tmp_path: Path, length: int, *, found: bool
) -> None:
    kernels = [kernel_event(number, ts=110 * number, dur=100) for number in range(6)]
    kernels[2]["dur"] = length  # the next starts after 110 and ends after 210 µs
    run = run_of(store, tmp_path, kernels)
    assert ("run over whole later work" in verdict(run)[1]) is found
    summed = analyze(run, "gpu_breakdown").tables["whole"]["kernel_sum_ns"].tolist()
    assert summed == [500_000 if found else 630_000]
    assert int(analyze(run, "kernels").tables["names"]["sum_ns"].sum()) == summed[0]
    left_out = "1 kernel runs over whole later work of a stream"
    for analysis in ("gpu_breakdown", "kernels", "launch_config"):
        assert any(left_out in note for note in analyze(run, analysis).notes) is found
    for name, value in (("stream", 8), ("context", 2)):
        args = {**kernels[2]["args"], name: value}
        other = [{**kernel, "args": args} if kernel is kernels[2] else kernel for kernel in kernels]
        assert "run over" not in verdict(run_of(store, tmp_path, other))[1]


def test_each_of_several_kernels_that_run_over_later_ones_is_noted(store: Store, tmp_path: Path) -> None:
    kernels = [kernel_event(number, ts=110 * number, dur=100) for number in range(8)]
    for kernel in kernels[2:4]:
        kernel["dur"] = 450
    run = run_of(store, tmp_path, kernels)
    assert "2 of 8 kernels run over whole later work" in verdict(run)[1]
    assert int(analyze(run, "kernels").tables["names"]["sum_ns"].sum()) == 600_000


def test_kernels_that_a_kernel_launches_run_inside_of_it(store: Store, tmp_path: Path) -> None:
    kernels = [kernel_event(1, ts=100, dur=900), kernel_event(2, ts=200, dur=300)]
    run = run_of(store, tmp_path, [launch(1, 90, 9), *kernels])
    assert "run over" not in verdict(run)[1]
    run = run_of(store, tmp_path, [launch(1, 90, 9), launch(2, 95, 9), *kernels])
    assert "run over" in verdict(run)[1]


def test_the_place_of_damage_is_named_and_the_run_is_misleading(store: Store, tmp_path: Path) -> None:
    text = json.dumps({"traceEvents": [kernel_event(number) for number in range(9)]})
    path = tmp_path / "trace.json"
    broken = text[: text.index('"k4"') + 20] + text[text.index('"k6"') - 9 :]
    path.write_text(broken)
    run = imported(store, path)
    place = broken.rindex("{", 0, broken.index('"k4"'))
    assert f"the first at byte {place:,}: " in notes(run)["dropped_events"]
    assert verdict(run)[0] == "misleading"
    path.write_text(text[:-200])
    said = notes(imported(store, path))
    assert "byte" not in said.get("dropped_events", "")
    assert f"at byte {len(text) - 200:,}; " in said["truncated"]
    assert "% of the file could not be read" in said["truncated"]


def test_a_quote_that_is_missing_in_the_last_event_is_no_cut(store: Store, tmp_path: Path) -> None:
    text = json.dumps({"traceEvents": [kernel_event(number) for number in range(9)]})
    path = tmp_path / "trace.json"
    path.write_text(text.replace('"k8"', 'k8"'))
    run = imported(store, path)
    assert f"the first at byte {text.rindex('{', 0, text.index('k8')):,}: " in notes(run)["dropped_events"]
    assert "truncated" not in notes(run)
    assert verdict(run)[0] == "misleading"


def test_events_after_the_end_of_a_trace_mislead(store: Store, tmp_path: Path) -> None:
    text = json.dumps({"traceEvents": [kernel_event(number) for number in range(9)]})
    path = tmp_path / "trace.json"
    path.write_text(text + text[-900:])
    run = imported(store, path)
    assert (
        f": 900 bytes with events follow the end of the trace, at byte {len(text):,}"
        in (notes(run)["trailing_data"])
    )
    assert verdict(run)[0] == "misleading"
    path.write_text(text + "x" * 900)
    assert verdict(imported(store, path))[0] == "usable"


@pytest.mark.parametrize("compressed", [False, True])
def test_a_second_list_of_events_is_counted_and_misleads(
    store: Store, tmp_path: Path, *, compressed: bool
) -> None:
    lists = [json.dumps([kernel_event(number) for number in range(count)]) for count in (2, 3)]
    text = f'{{"traceEvents": {lists[0]}, "args": {{"traceEvents": []}}, "traceEvents": {lists[1]}}}'
    path = tmp_path / ("trace.json.gz" if compressed else "trace.json")
    path.write_bytes(gzip.compress(text.encode()) if compressed else text.encode())
    run = imported(store, path)
    place = text.rindex('"traceEvents": [') + len('"traceEvents": [')
    assert f"from byte {place:,}, was not read: about 3 events" in notes(run)["second_list"]
    assert verdict(run)[0] == "misleading"
    assert len(table(run, "device_intervals").query("kind == 'kernel'")) == 2


def test_unfinished_events_are_counted_as_such(store: Store, tmp_path: Path) -> None:
    begun = [{"ph": phase, "name": "x", "pid": 9, "tid": 9, "ts": 5} for phase in "BBE"]
    cut = event("cpu_op", "aten::outer", 1, -1)
    run = run_of(store, tmp_path, [cut, event("cpu_op", "aten::inner", 2, 3), *begun])
    said = notes(run)
    assert "1 of 5 events are unfinished" in said["bad_duration"]
    assert said["begin_and_end"].startswith("trace.json: 2 intervals")
    assert said["begin_and_end"].endswith("1 of them are unfinished")


def test_a_trace_of_begins_and_ends_alone_is_refused_for_these(store: Store, tmp_path: Path) -> None:
    begun = [{"ph": phase, "name": "x", "pid": 9, "tid": 9, "ts": 5} for phase in "BE"]
    with pytest.raises(UnusableInputError, match="is of a supported category: phase B, phase E"):
        run_of(store, tmp_path, begun)


def test_the_share_that_is_cut_off_a_packed_trace_is_that_of_its_text(store: Store, tmp_path: Path) -> None:
    events = [event("cpu_op", "aten::mm", 10 * number, 1, text="z" * 300) for number in range(40)]
    path = tmp_path / "trace.json.gz"
    path.write_bytes(gzip.compress(json.dumps({"traceEvents": events}).encode()[:-250]))
    assert "; 1.0% of the file could not be read" in notes(imported(store, path))["truncated"]


@pytest.mark.parametrize(("cut", "share"), [(-2, ""), (-1, ""), (-40, "; less than 0.1% of the file could")])
def test_a_share_that_is_cut_off_is_never_zero(store: Store, tmp_path: Path, cut: int, share: str) -> None:
    events = [event("cpu_op", "aten::mm", 10 * number, 1, text="z" * 9_000) for number in range(40)]
    path = tmp_path / "trace.json"
    path.write_text(json.dumps([*events, event("cpu_op", "aten::mm", 400, 1)])[:cut])
    said = notes(imported(store, path))["truncated"]
    assert f"{share}" in said
    assert "0.0%" not in said


@pytest.mark.parametrize("text", ['{"schemaVersion": 1, "devicePr', '{"a": {"traceEvents": [1], "b": "'])
def test_a_file_cut_off_before_its_events_is_no_other_format(store: Store, tmp_path: Path, text: str) -> None:
    path = tmp_path / "trace.json"
    path.write_text(text)
    with pytest.raises(UnusableInputError, match=f"in the middle, at byte {len(text)}, before its events"):
        imported(store, path)
    path.write_text('{"nodes": []}')
    with pytest.raises(UnusableInputError, match="has no traceEvents: not a Kineto trace"):
        imported(store, path)


def test_packed_text_that_breaks_before_the_first_event_is_named(store: Store, tmp_path: Path) -> None:
    packed = [gzip.compress(json.dumps([kernel_event(number)] * 90).encode()) for number in range(2)]
    path = tmp_path / "trace.json.gz"
    path.write_bytes(packed[0][:60] + packed[1][60:])
    with pytest.raises(UnusableInputError, match=r"compressed data (is damaged|ends early).*, at byte \d+"):
        imported(store, path)


@pytest.mark.parametrize("word", ["inf", "-nan", "nan(ind)", "-nan(ind)", "1.#INF", "-1.#IND", "1.#QNAN0"])
def test_numbers_that_are_none_are_missing(store: Store, tmp_path: Path, word: str) -> None:
    text = json.dumps({"traceEvents": [kernel_event(0), kernel_event(1)]})
    path = tmp_path / "trace.json"
    path.write_text(text.replace('"device": 0', f'"est. achieved occupancy %": {word}, "device": 0', 1))
    run = imported(store, path)
    assert "1 of 2 events were not valid JSON and were repaired" in notes(run)["repaired_events"]
    assert len(table(run, "device_intervals").query("kind == 'kernel'")) == 2


@pytest.mark.parametrize("name", ["llama_frank7.json", "lora_rank16.json", "low_rank8_v2.json"])
def test_a_number_behind_other_words_is_no_rank(store: Store, tmp_path: Path, name: str) -> None:
    (folder,) = files_named(tmp_path, name)
    assert set(table(imported(store, folder / name), "device_intervals")[C.RANK]) == {0}


@pytest.mark.parametrize("name", ["local_rank3.json", "globalrank3.json", "myRank3.json", "x-WORKER_3.json"])
def test_a_rank_is_read_behind_words_that_mean_it(store: Store, tmp_path: Path, name: str) -> None:
    (folder,) = files_named(tmp_path, name)
    assert set(table(imported(store, folder / name), "device_intervals")[C.RANK]) == {3}


def files_named(tmp_path: Path, *names: str) -> list[Path]:
    folder = tmp_path / "job"
    folder.mkdir()
    for name in names:
        text = json.dumps({"traceEvents": [kernel_event(0)]})
        (folder / name).write_text(text)
    return [folder]


def test_a_coordinator_beside_ranks_is_a_run_of_its_own(store: Store, tmp_path: Path) -> None:
    runs = import_traces(store, files_named(tmp_path, "tp1_rank1.json", "tp0_rank0.json", "async_llm.json"))
    assert [sorted(set(table(run, "device_intervals")[C.RANK])) for run in runs] == [[0], [0, 1]]
    codes = [[note.code for note in run.meta.diagnostics] for run in runs]
    assert ["no_rank" in said for said in codes] == [True, False]


def test_two_traces_that_claim_one_rank_are_noted(store: Store, tmp_path: Path) -> None:
    declared = {"distributedInfo": {"rank": 0, "world_size": 2}, "traceEvents": [kernel_event(0)]}
    for name in ("a.json", "b.json"):
        (tmp_path / name).write_text(json.dumps(declared))
    runs = import_traces(store, [tmp_path / "a.json", tmp_path / "b.json"])
    assert ["all say rank 0 of 2" in notes(run).get("rank_conflict", "") for run in runs] == [True, True]
    other = {**declared, "distributedInfo": {"rank": 1, "world_size": 2}}
    for name in ("c.json", "d.json"):
        (tmp_path / name).write_text(json.dumps(other))
    cycles = import_traces(store, sorted(tmp_path.glob("*.json")))
    assert [notes(run).get("rank_conflict") for run in cycles] == [None, None]
    (tmp_path / "d.json").unlink()
    parts = import_traces(store, sorted(tmp_path.glob("*.json")))
    assert ["all say rank 0 of 2" in notes(run)["rank_conflict"] for run in parts] == [True, True]


@pytest.mark.parametrize(
    ("pid", "tid", "device"), [("CUDA functions", 0, 0), ("CUDA functions", 2, 2), ("CUDA functions 1", 0, 1)]
)
def test_words_as_process_are_a_device(store: Store, tmp_path: Path, pid: str, tid: int, device: int) -> None:
    legacy = {"ph": "X", "name": "relu", "pid": pid, "tid": tid, "ts": 5, "dur": 3}
    run = run_of(store, tmp_path, [legacy])
    assert table(run, "device_intervals")[C.DEVICE].tolist() == [device]
    assert table(run, "host_intervals").empty


@pytest.mark.parametrize(
    ("name", "content", "expected"),
    [
        ("snapshot.pickle", b"\x80\x05}q\x00.", "is a pickle"),
        ("snapshot.json", b'{"segments": [], "device_traces": [[]]}', "is a memory snapshot"),
        ("trace.json", b"\n{\x08\xe8\x07\x18\x01\n\x10abc", "is a trace of Perfetto"),
        ("manifest.json", b'{"perfetto_manifest": {"files": []}}', "is a manifest of Perfetto"),
        ("snapshot.pickle.gz", gzip.compress(b"\x80\x05}q\x00.", mtime=0), "is a pickle"),
        ("nccl.json", b'{"version": "2.7", "pg_status": {}, "entries": []}', "flight recorder"),
        ("et.json", b'{"schema": "1.1.1-chakra.0.0.4", "nodes": []}', "execution trace"),
        ("results.json", b'{"rocprofiler-sdk-tool": []}', "is JSON of rocprofv3"),
        (
            "et.json",
            b'{"nodes": [{"name": "[pytorch|profiler|execution_trace|process]"}]}',
            "execution trace",
        ),
    ],
)
def test_files_of_other_tools_are_named(
    tmp_path: Path, store: Store, name: str, content: bytes, expected: str
) -> None:
    path = tmp_path / name
    path.write_bytes(content)
    with pytest.raises(UnusableInputError, match=expected):
        imported(store, path)


def test_what_an_op_lacks_of_a_collective_is_read_from_its_kernel(store: Store, tmp_path: Path) -> None:
    described = {
        "Collective name": "allreduce", "In msg nelems": 64, "Out msg nelems": 64, "dtype": "Float",
        "Process Group Name": "tp", "Process Group Ranks": "[0, 1]", "Group size": 2,
    }  # fmt: skip
    kernels = [kernel_event(number, name="ncclDevKernel_AllReduce", ts=50 * number) for number in (1, 2, 3)]
    kernels[0]["args"] |= described
    kernels[2]["args"] |= {**described, "In msg nelems": "many", "Seq": 2**70}
    op = event("cpu_op", "record_param_comms", 99, 5, **{**described, "External id": 3, "dtype": "Half"})
    kernels[1]["args"]["External id"] = 3
    run = run_of(store, tmp_path, [op, *kernels])
    calls = analyze(run, "collectives").tables["calls"]
    assert calls[C.BYTES].fillna(-1).tolist() == [256, 128, -1]
    assert set(calls["group"]) == {"tp"}


@pytest.mark.parametrize("name", ["[MEMCPY] DtoH", "cudaLaunchKernel", "void at::native::sum_kernel<4>(int)"])
def test_a_tracer_that_writes_work_of_a_gpu_as_ops_is_not_good(
    store: Store, tmp_path: Path, name: str
) -> None:
    run = run_of(store, tmp_path, [event("cpu_op", name, 1, 5), event("cpu_op", "aten::mm", 9, 5)])
    assert verdict(run)[0] == "misleading"
    assert verdict(run)[1].startswith(f"{name} runs on a GPU only")
    for usual in ("aten::copy_", "aten::cudnn_is_acceptable"):  # of which recurrent modules ask on any device
        assert verdict(run_of(store, tmp_path, [event("cpu_op", usual, 1, 5)]))[0] == "good"


def test_a_file_of_which_most_is_not_read_is_not_good(store: Store, tmp_path: Path) -> None:
    others = [event("ebpf", "probe", number, 1) for number in range(3)]
    run = run_of(store, tmp_path, [event("cpu_op", "aten::mm", 1, 5), *others])
    assert verdict(run) == ("usable", "trace.json: categories that are not read: ebpf (3)")


def test_a_rank_that_no_job_has_is_none(store: Store, tmp_path: Path) -> None:
    events = [event("cpu_op", "aten::mm", 1, 5)]
    run = run_of(store, tmp_path, events, distributedInfo={"rank": 100_004_711, "world_size": 2})
    assert table(run, "host_intervals")[C.RANK].tolist() == [0]
    (run,) = import_traces(store, files_named(tmp_path, "rank3000000.json"))
    assert set(table(run, "device_intervals")[C.RANK]) == {0}


def test_a_second_list_after_an_empty_one_is_named(store: Store, tmp_path: Path) -> None:
    path = tmp_path / "trace.json"
    path.write_text(f'{{"traceEvents": [], "traceEvents": {json.dumps([kernel_event(0)])}}}')
    with pytest.raises(UnusableInputError, match="a second list of events, from byte 36, was not read"):
        imported(store, path)


MADE = [event("cpu_op", "aten::mm", 10 * number, 5) for number in range(4)]


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ('{"traceEvents": A, "other": {"traceEvents": B}}', "4 events outside of their list, from byte "),
        ('{"other": {"traceEvents": B}, "traceEvents": A}', "4 events outside of their list, from byte "),
        ('{"traceEvents": A, "trace\\u0045vents": B}', "4 events outside of their list, from byte "),
        (
            '{"traceEvents": [A0, {"traceEvents": B}, A0]}',
            "4 events are inside of other events (the first in the one at byte 118) and were not read",
        ),
        (
            '{"traceEvents": [A0, B, A0]}',
            "1 of 3 events could not be read and were dropped, the first at byte ",
        ),
    ],
)
def test_a_trace_in_another_is_said_and_misleads(store: Store, tmp_path: Path, text: str, said: str) -> None:
    path = tmp_path / "trace.json"
    first, every = json.dumps(MADE[0]), json.dumps(MADE)
    path.write_text(text.replace("A0", first).replace("A", every).replace("B", every))
    name, reason = verdict(imported(store, path))
    assert (name, said in reason) == ("misleading", True), reason


@pytest.mark.parametrize("kept", [MADE, {"parent": MADE[0], "data": {"traceEvents": MADE[1:]}}])
def test_events_in_arguments_are_counted(store: Store, tmp_path: Path, kept: Any) -> None:
    around = event("cpu_op", "aten::add", 50, 5, kept=kept)
    run = run_of(store, tmp_path, [*MADE, around, *MADE])
    text = (tmp_path / "trace.json").read_text()
    place = f"byte {text.index(json.dumps(around)):,}"
    said = f"trace.json: 4 events are inside of arguments (the first in the one at {place}), which are data"
    assert verdict(run) == ("usable", f"{said}, and were not read")
    assert len(table(run, "host_intervals")) == 9


def test_arguments_that_are_no_events_are_data(store: Store, tmp_path: Path) -> None:
    kept = {"ph": "X", "phases": [{"name": "X", "ts": 1}], "text": json.dumps(MADE)}
    assert verdict(run_of(store, tmp_path, [*MADE, event("cpu_op", "aten::add", 50, 5, **kept)]))[0] == "good"


def test_text_that_looks_like_events_is_no_second_list(store: Store, tmp_path: Path) -> None:
    run = run_of(store, tmp_path, MADE, log=json.dumps({"traceEvents": MADE}), phases={"ph": 3})
    assert verdict(run)[0] == "good"


def test_a_second_list_without_events_is_none(store: Store, tmp_path: Path) -> None:
    path = tmp_path / "trace.json"
    path.write_text(json.dumps({"traceEvents": [kernel_event(0)]})[:-1] + ', "traceEvents": [')
    assert "second_list" not in notes(imported(store, path))


def manifest_beside(tmp_path: Path, *names: str, listed: tuple[str, ...] = (), **more: Any) -> Path:
    """A manifest of Perfetto that lists these traces, in their folder."""
    (folder,) = files_named(tmp_path, *names)
    files = [{"path": name, **more} for name in listed or names]
    path = folder / "perfetto_manifest.json"
    path.write_text(json.dumps({"perfetto_manifest": {"version": 1, "files": files}}))
    return path


def test_a_manifest_is_imported_as_the_ranks_that_it_lists(store: Store, tmp_path: Path) -> None:
    manifest = manifest_beside(tmp_path, "a.json", "b.json", "other.json", listed=("a.json", "b.json"))
    run = imported(store, manifest)
    assert set(table(run, "device_intervals")[C.RANK]) == {0, 1}
    assert notes(run)["rank_assumed"].endswith("a.json = 0, b.json = 1")
    assert "clock_offsets" not in notes(run)


@pytest.mark.parametrize("is_folder", [True, False])
def test_clock_offsets_of_a_manifest_are_said(store: Store, tmp_path: Path, *, is_folder: bool) -> None:
    clocks = {"sync_to": {"file": "rank0.json"}, "offset_ns": 5}
    manifest = manifest_beside(tmp_path, "rank0.json", "rank1.json", clocks=clocks)
    run = imported(store, manifest.parent if is_folder else manifest)
    assert notes(run)["clock_offsets"].endswith("clock offsets of 2 of the traces are not applied")
    assert verdict(run)[0] == "usable"


def test_what_a_manifest_lists_in_vain_is_said(store: Store, tmp_path: Path) -> None:
    manifest = manifest_beside(tmp_path, "rank0.json", listed=("rank0.json", "rank1.json"))
    assert "left out rank1.json: " in notes(imported(store, manifest))["skipped_file"]
    manifest.write_text(manifest.read_text().replace("rank1.json", "../rank1.json"))
    with pytest.raises(UnusableInputError, match=r"lists \.\./rank1.json, which is not in its folder"):
        imported(store, manifest)


def test_a_process_without_a_device_is_no_rank(store: Store, tmp_path: Path) -> None:
    (folder,) = files_named(tmp_path, "a.json", "b.json", "c.json")
    for name, devices in (("a.json", [{"id": 0}]), ("b.json", []), ("c.json", [{"id": 0}])):
        events = [kernel_event(0)] if devices else [event("cpu_op", "aten::empty", 5, 2)]
        (folder / name).write_text(json.dumps({"deviceProperties": devices, "traceEvents": events}))
    host, job = sorted(import_traces(store, [folder]), key=lambda run: run.rows("device_intervals"))
    assert len(table(host, "host_intervals")) == 1
    assert set(table(job, "device_intervals")[C.RANK]) == {0, 1}
    (folder / "b.json").unlink()
    (folder / "c.json").write_text(json.dumps({"traceEvents": [event("cpu_op", "aten::empty", 5, 2)]}))
    assert len(import_traces(store, [folder])) == 2


def test_processes_beside_declared_ranks_are_none(store: Store, tmp_path: Path) -> None:
    (folder,) = files_named(tmp_path, "x.json", "y.json")
    for rank in range(2):
        declared = {"distributedInfo": {"rank": rank, "world_size": 2}, "traceEvents": [kernel_event(0)]}
        (folder / f"{rank}.json").write_text(json.dumps(declared))
    ranks = [sorted(set(table(run, "device_intervals")[C.RANK])) for run in import_traces(store, [folder])]
    assert sorted(ranks) == [[0], [0], [0, 1]]


def test_files_given_one_by_one_are_ranks_if_their_names_say_so(store: Store, tmp_path: Path) -> None:
    (folder,) = files_named(
        tmp_path, "x_rank0.17.json", "x_rank1.18.json", "y_rank2.json", "z_1.json", "z_2.json"
    )
    runs = import_traces(store, sorted(folder.iterdir()))
    assert [sorted(set(table(run, "device_intervals")[C.RANK])) for run in runs] == [[0, 1], [2], [0], [0]]


@pytest.mark.parametrize(("others", "expected"), [(0, "misleading"), (3, "usable")])
def test_events_without_a_category_are_said(store: Store, tmp_path: Path, others: int, expected: str) -> None:
    events = [event("cpu_op", "aten::mm", 10 * number, 5) for number in range(others)]
    events += [{"ph": "X", "name": "fusion", "pid": 1, "tid": 1, "ts": 50, "dur": 5}]
    name, reason = verdict(run_of(store, tmp_path, events))
    assert (name, "1 of" in reason, "no category" in reason) == (expected, True, True)


def test_a_trace_alone_has_the_rank_in_its_name(store: Store, tmp_path: Path) -> None:
    (run,) = import_traces(store, files_named(tmp_path, "trace_rank3.json"))
    assert set(table(run, "device_intervals")[C.RANK]) == {3}


def test_two_traces_of_one_rank_by_name_are_noted(store: Store, tmp_path: Path) -> None:
    runs = import_traces(store, files_named(tmp_path, "a_rank0.json", "a_rank1.json", "b_rank0.json"))
    assert [
        "a_rank0.json, job/b_rank0.json all say rank 0," in notes(run)["rank_conflict"] for run in runs
    ] == [
        True,
        True,
    ]
    (tmp_path / "job" / "b_rank1.json").write_text((tmp_path / "job" / "b_rank0.json").read_text())
    cycles = import_traces(store, [tmp_path / "job"])
    assert [notes(run).get("rank_conflict") for run in cycles] == [None, None]


@pytest.mark.parametrize(
    ("between", "damage", "expected"),
    [
        ("", "repaired_events", "usable"),
        (",,", "repaired_events", "usable"),
        (", lost, ", "dropped_events", "misleading"),
        ("], ", "dropped_events", "misleading"),
    ],
)
def test_what_is_between_events_is_counted(
    store: Store, tmp_path: Path, between: str, damage: str, expected: str
) -> None:
    path = tmp_path / "trace.json"
    first, *others = map(json.dumps, MADE)
    path.write_text(f'{{"traceEvents": [{first}{between}{", ".join(others)}]}}')
    run = imported(store, path)
    assert len(table(run, "host_intervals")) == len(MADE)
    assert "1 of " in notes(run)[damage]
    assert verdict(run)[0] == expected
