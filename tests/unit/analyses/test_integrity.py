from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pandas as pd
import pytest
from tracekit.analyses.shared.common import NO_DEVICE

from tests.builders import Row, device, host, kernel, make_run, step
from tracekit.analysis import analyze
from tracekit.recording import cupti
from tracekit.runs.environment import GPU_PROBLEM
from tracekit.runs.meta import CpuLoad, Diagnostic, Level, Timings
from tracekit.schema import C, DeviceKind, HostKind

if TYPE_CHECKING:
    from pathlib import Path

    from tracekit.runs.run import Run


def call(name: str, start: int) -> Row:
    return host(name, start, start + 5, kind=HostKind.RUNTIME)


def levels(run: Run) -> tuple[str, dict[str, str]]:
    """The verdict, and the checks that are not fine."""
    tables = analyze(run, "integrity").tables
    checks = dict(zip(tables["checks"]["check"], tables["checks"]["level"], strict=True))
    if checks["profiler_intervals"] == "info":  # none were recorded
        del checks["profiler_intervals"]
    checks.pop("cpu_contention", None)  # the runs do not say who used the CPU
    return tables["verdict"]["verdict"][0], {name: level for name, level in checks.items() if level != "ok"}


LINKED: dict[str, Any] = {
    "host_intervals": [call("cudaLaunchKernel", 0)],
    "device_intervals": [kernel(10, 20, launch_row=0, **{C.STEP: 0})],
    "steps": [step(0, 0, 30)],
}
LATER = host("aten::add", 900, 1_000)
"""An op long after the last work of the device, whose queue was empty then."""
PLAIN = {"timings": Timings([30], [], "perf_counter")}


def test_a_clean_run_is_good(tmp_path: Path) -> None:
    assert levels(make_run(tmp_path, meta=PLAIN, **LINKED)) == ("good", {})


def test_other_programs_on_the_cpu_are_said_before_what_they_may_have_caused(tmp_path: Path) -> None:
    load = CpuLoad(
        rank=0,
        cores=2,
        wall_ns=1_000,
        cpu_ns=500,
        step_thread_cpu_ns=500,
        step_thread_wait_ns=500,
        program_ns=500,
        others_ns=1_400,
    )
    message = (
        "other programs took 70% of the CPU: step times are unreliable (the steps waited 50% of their time)"
    )
    alone = make_run(tmp_path / "alone", meta={**PLAIN, "cpu_loads": [load]}, **LINKED)
    assert analyze(alone, "integrity").tables["verdict"].loc[0, ["verdict", "reason"]].tolist() == [
        "usable",
        message,
    ]
    slower = {"timings": Timings([10], [], "perf_counter"), "cpu_loads": [load]}
    result = analyze(make_run(tmp_path / "slower", meta=slower, **LINKED), "integrity")
    assert result.tables["verdict"]["verdict"][0] == "misleading"
    assert result.tables["verdict"]["reason"][0].startswith(f"{message}; a profiled step takes 200.0% longer")


def test_a_run_without_loads_says_so(tmp_path: Path) -> None:
    checks = rows_of(make_run(tmp_path, meta=PLAIN, **LINKED))
    assert checks.loc["cpu_contention", "level"] == "info"
    assert "unknown: the run does not say" in checks.loc["cpu_contention", "detail"]


def test_work_from_before_the_capture_is_counted_apart_from_lost_links(tmp_path: Path) -> None:
    numbers = [(1, None), (2, None), (5, 0), (7, None)]  # the call has number 5
    rows = [
        kernel(10 * at, 10 * at + 5, **{C.CORRELATION_ID: number, C.LAUNCH_ROW: launch})
        for at, (number, launch) in enumerate(numbers)
    ]
    run = make_run(tmp_path, host_intervals=[call("cudaLaunchKernel", 0)], device_intervals=rows)
    counts = analyze(run, "integrity").tables["checks"].set_index("check")["count"]
    assert counts[["launched_before_capture", "device_without_launch"]].tolist() == [2, 1]


@pytest.mark.parametrize(
    ("change", "verdict", "found"),
    [
        ({"device_intervals": []}, "misleading", {"device_events": "error"}),
        (
            {"host_intervals": [*LINKED["host_intervals"], call("cudaLaunchKernel", 6), LATER]},
            "misleading",
            {"launch_without_device": "error"},
        ),
        (
            {"host_intervals": [*LINKED["host_intervals"], call("cudaGraphLaunch", 6), LATER]},
            "misleading",
            {"graph_without_device": "error"},
        ),
        (
            {"host_intervals": [*LINKED["host_intervals"], call("cudaLaunchKernel", 6)]},
            "usable",
            {"launched_past_end": "warn"},
        ),
        (
            {"host_intervals": [host("aten::cudnn_convolution", 0, 30)], "device_intervals": []},
            "misleading",
            {"device_events": "error"},
        ),
        (
            {"host_intervals": [*LINKED["host_intervals"], call("cudaMemsetAsync", 6)]},
            "good",
            {"copy_without_device": "info"},
        ),
        (
            {"device_intervals": [*LINKED["device_intervals"], kernel(21, 22)]},
            "usable",
            {"device_without_launch": "warn"},
        ),
        ({"steps": [step(0, 0, 30), step(1, 30, 60)]}, "usable", {"empty_steps": "warn"}),
        (
            {"device_intervals": [kernel(-3, 20, launch_row=0, **{C.STEP: 0})]},
            "usable",
            {"device_before_launch": "warn"},
        ),
        (
            {"device_intervals": [kernel(10, 10, launch_row=0, **{C.STEP: 0})]},
            "usable",
            {"zero_duration": "warn"},
        ),
        (
            {"host_intervals": [*LINKED["host_intervals"], host("late", 11_000_000_000, 11_000_000_001)]},
            "usable",
            {"clock_jump": "warn"},
        ),
        (
            {
                "host_intervals": [
                    *LINKED["host_intervals"],
                    host("Buffer Flush", 5, 25, kind=HostKind.OVERHEAD),
                ]
            },
            "misleading",
            {"profiler_intervals": "error"},
        ),
        (
            {"meta": {"timings": Timings([10], [], "perf_counter")}},
            "misleading",
            {"profiler_overhead": "error"},
        ),
        (
            {"meta": {"timings": Timings([34], [], "perf_counter")}},
            "usable",
            {"profiler_overhead": "warn"},
        ),
        ({"meta": {"timings": Timings([33], [], "perf_counter")}}, "good", {}),
        ({"meta": {}}, "good", {"profiler_overhead": "info"}),
        (
            {
                "steps": [step(0, 0, 3_000_000_000)],
                "meta": {"timings": Timings([3_000_000_000], [], "perf_counter")},
            },
            "usable",
            {"step_outlives_events": "warn"},
        ),
        (
            {"meta": {**PLAIN, "diagnostics": [Diagnostic(Level.INFO, "ignored_categories", "77 events")]}},
            "usable",
            {"ignored_categories": "warn"},
        ),
        (
            {"meta": {**PLAIN, "diagnostics": [Diagnostic(Level.WARN, "truncated", "cut short")]}},
            "usable",
            {"truncated": "warn"},
        ),
    ],
)
def test_each_flaw_is_found_alone(
    tmp_path: Path, change: dict[str, Any], verdict: str, found: dict[str, str]
) -> None:
    assert levels(make_run(tmp_path, **{"meta": PLAIN, **LINKED, **change})) == (verdict, found)


def test_a_gpu_that_recorded_nothing_is_not_a_cpu_run(tmp_path: Path) -> None:
    verdict, found = levels(make_run(tmp_path, meta={"environment": {"gpus": [{"index": 0}]}}))
    assert (verdict, found["device_events"]) == ("misleading", "error")


def test_a_cpu_workload_on_a_gpu_machine_is_good(tmp_path: Path) -> None:
    meta = {"environment": {"gpus": [{"index": 0}]}, "workload": {"device": "cpu"}}
    assert levels(make_run(tmp_path, meta=meta)) == ("good", {"profiler_overhead": "info"})


def test_a_cpu_run_is_good(tmp_path: Path) -> None:
    assert levels(make_run(tmp_path, host_intervals=[host("aten::add", 0, 5)])) == (
        "good",
        {"profiler_overhead": "info"},
    )


def test_launches_are_unknown_and_not_lost_where_none_is_linked(tmp_path: Path) -> None:
    run = make_run(tmp_path, **{**LINKED, "device_intervals": [kernel(10, 20, **{C.STEP: 0})]})
    checks = analyze(run, "integrity").tables["checks"].set_index("check")
    row = checks.loc["launch_without_device"]
    assert row["level"] == "info"
    assert pd.isna(row["count"])
    assert pd.isna(row["share"])
    assert "unknown" in row["detail"]
    assert "no launch is linked" in row["detail"]
    assert checks.loc["graph_without_device", ["level", "count"]].tolist() == ["ok", 0]


def rows_of(run: Run) -> pd.DataFrame:
    return analyze(run, "integrity").tables["checks"].set_index("check")


@pytest.mark.slow_except(1)
@pytest.mark.parametrize("prefix", ["cuda", "hip", "cu"])
def test_launches_into_a_graph_run_nothing(tmp_path: Path, prefix: str) -> None:
    captured = [
        call(f"{prefix}StreamBeginCapture", 100),
        *(call(f"{prefix}LaunchKernel", at) for at in (110, 120)),
        call(f"{prefix}StreamBeginCapture_v2", 125),
        call(f"{prefix}StreamEndCapture", 135),
        call(f"{prefix}MemcpyAsync", 140),
        call(f"{prefix}StreamEndCapture", 150),
    ]
    checks = rows_of(
        make_run(tmp_path, **{**LINKED, "host_intervals": [*LINKED["host_intervals"], *captured]})
    )
    assert checks.loc["launch_without_device", ["level", "count"]].tolist() == ["ok", 0]
    assert checks.loc["launch_without_device", "detail"].startswith("0 of 1 ")
    assert checks.loc["copy_without_device", "level"] == "ok"


@pytest.mark.slow_except(2)
@pytest.mark.parametrize(
    ("begin", "end"),
    [
        (call("cudaStreamBeginCapture", 100), None),
        (None, call("cudaStreamEndCapture", 200)),
        (call("cudaStreamEndCapture", 100), call("cudaStreamBeginCapture", 200)),
        ({**call("cudaStreamBeginCapture", 100), C.TID: 2}, {**call("cudaStreamEndCapture", 200), C.TID: 2}),
    ],
)
def test_a_launch_outside_of_a_capture_is_lost(tmp_path: Path, begin: Row | None, end: Row | None) -> None:
    around = [row for row in (begin, call("cudaLaunchKernel", 150), end) if row]
    checks = rows_of(make_run(tmp_path, **{**LINKED, "host_intervals": [*LINKED["host_intervals"], *around]}))
    assert checks.loc["launch_without_device", ["level", "count"]].tolist() == ["error", 1]


@pytest.mark.slow_except(1)
@pytest.mark.parametrize("name", ["cudaLaunchHostFunc", "cuLaunchHostFunc_ptsz", "hipLaunchHostFunc"])
def test_functions_of_the_host_have_no_device_interval(tmp_path: Path, name: str) -> None:
    only = make_run(tmp_path / "only", host_intervals=[call(name, 0)])
    assert levels(only) == ("good", {"profiler_overhead": "info"})
    assert analyze(only, "kernels").notes == (NO_DEVICE,)
    calls = [*LINKED["host_intervals"], call(name, 6)]
    beside = make_run(tmp_path / "beside", meta=PLAIN, **{**LINKED, "host_intervals": calls})
    assert levels(beside) == ("good", {})


@pytest.mark.slow_except(3)
@pytest.mark.parametrize(
    ("name", "level"),
    [
        ("Lazy Function Loading", "info"),
        ("Runtime Triggered Module Loading", "info"),
        ("Command Buffer Full", "info"),
        ("Activity Buffer Request", "error"),
        ("Instrumentation", "error"),
        ("CUPTI", "error"),
        ("Resource", "error"),
    ],
)
def test_only_its_own_intervals_are_the_profilers(tmp_path: Path, name: str, level: str) -> None:
    rows = [*LINKED["host_intervals"], host(name, 5, 25, kind=HostKind.OVERHEAD)]
    check = rows_of(make_run(tmp_path, **{**LINKED, "host_intervals": rows})).loc["profiler_intervals"]
    assert check["level"] == level
    assert pd.isna(check["share"]) == (level == "info")
    assert ("no profiler overhead" in check["detail"]) == (level == "info")


def gpu_run(folder: Path, *, problem: str = "", found: tuple[Diagnostic, ...] = ()) -> Run:
    """A run on the CPU of a machine with a GPU."""
    known = {"gpus": [{"index": 0, "name": "H100"}], **({GPU_PROBLEM: problem} if problem else {})}
    meta = {**PLAIN, "environment": known, "workload": {"device": "cpu"}, "diagnostics": list(found)}
    return make_run(folder, meta=meta, host_intervals=[host("aten::mm", 0, 25)], steps=[step(0, 0, 30)])


def test_gpus_that_torch_could_not_use_are_a_warning(tmp_path: Path) -> None:
    run = gpu_run(tmp_path / "own", problem="the driver is too old")
    assert levels(run) == ("usable", {"gpu_not_used": "warn"})
    check = rows_of(run).loc["gpu_not_used"]
    assert check["detail"] == "torch could not use the machine's GPUs: the driver is too old"
    said = Diagnostic(Level.WARN, "gpu_not_used", "--device auto ran on the CPU")
    workload = rows_of(gpu_run(tmp_path / "auto", problem="the driver is too old", found=(said,)))
    assert workload.loc["gpu_not_used", "detail"] == said.message, "once"


def test_a_run_on_the_cpu_of_a_machine_with_a_gpu_is_good(tmp_path: Path) -> None:
    run = gpu_run(tmp_path)
    assert levels(run) == ("good", {})
    said = rows_of(run).loc["device_events", "detail"]
    assert said == "a run on the CPU: the machine has 1 GPU, and nothing was launched"


def test_messages_of_cupti_are_checks(tmp_path: Path) -> None:
    found = cupti.diagnostics("failed with error CUPTI_ERROR_INSUFFICIENT_PRIVILEGES (35)")
    run = make_run(tmp_path, meta={**PLAIN, "diagnostics": found}, **{**LINKED, "device_intervals": []})
    verdict, checks = levels(run)
    assert (verdict, checks) == ("misleading", {"device_events": "error", "cupti": "warn"})
    assert "NVreg_RestrictProfilingToAdminUsers=0" in rows_of(run).loc["cupti", "detail"]


@pytest.mark.parametrize(("rows", "level"), [(LINKED["device_intervals"], "info"), ([], "warn")])
def test_nsys_is_not_believed_that_no_events_were_collected_where_there_are_some(
    tmp_path: Path, rows: list[Row], level: str
) -> None:
    said = Diagnostic(Level.WARN, "nsys_diagnostic", "nsys: No CUDA events collected. Does it use CUDA?")
    run = make_run(tmp_path, meta={**PLAIN, "diagnostics": [said]}, **{**LINKED, "device_intervals": rows})
    assert levels(run)[1]["nsys_diagnostic"] == level


def test_nothing_to_count_among_has_no_consequence(tmp_path: Path) -> None:
    details = rows_of(make_run(tmp_path, **LINKED))["detail"]
    assert details["graph_without_device"] == "0 of 0 graph replays have no device interval"
    assert details["copy_without_device"] == "0 of 0 copy and memset calls have no device interval"
    assert not details.str.startswith("0 ").to_numpy()[details.str.contains(";")].any()


def test_links_are_counted_once_and_without_waits(tmp_path: Path) -> None:
    rows = [*LINKED["device_intervals"], kernel(21, 22), device(DeviceKind.SYNC, 23, 24)]
    found = [Diagnostic(Level.INFO, "unlinked", "trace.json: 2 of 3 device intervals have no launching call")]
    run = make_run(tmp_path, meta={"diagnostics": found}, **{**LINKED, "device_intervals": rows})
    checks = rows_of(run)
    assert "unlinked" not in checks.index
    assert checks.loc["device_without_launch", "detail"].startswith("1 of 2 device intervals")
