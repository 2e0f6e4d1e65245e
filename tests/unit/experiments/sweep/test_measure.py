"""What a sweep keeps of a run: counters by their largest, shares of the busiest device."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from samples.simulator import write
from samples.simulator.examples import training
from tests.runs import make_run
from tracekit import analyze
from tracekit.experiments import sweep
from tracekit.ingest.importer import import_traces
from tracekit.runs.meta import Timings
from tracekit.schema import C

if TYPE_CHECKING:
    from pathlib import Path

    from tracekit.runs.store import Store


def sample(metric: str, value: float, device: int | None) -> dict[str, Any]:
    return {C.T_NS: 0, C.SOURCE: "s", C.DEVICE: device, C.METRIC: metric, C.UNIT: "u", C.VALUE: value}


def test_peaks_are_of_the_device_with_most(store: Store) -> None:
    counters = [
        sample("host_peak_bytes", 5.0, None),
        sample("device_peak_allocated_bytes", 7.0, 0),
        sample("device_peak_allocated_bytes", 9.0, 1),
        sample("device_peak_reserved_bytes", 8.0, 0),
        sample("memory_used_bytes", 20.0, 0),
        sample("memory_used_bytes", 30.0, 0),
        sample("gpu_utilization_pct", 50.0, 0),
        sample("gpu_utilization_pct", 100.0, 0),
        sample("gpu_utilization_pct", 10.0, 1),
    ]
    run = make_run(
        store,
        tables={"counters": counters},
        workload={"device": "cuda", "threads": 3},
        fingerprint={"gpu": "G"},
        timings=Timings([3, 1, 2], [9], "cuda_event"),
    )
    found = sweep.of_run(run)
    assert (found.device, found.gpu, found.threads, found.step_ns) == ("cuda", "G", 3, (3, 1, 2))
    assert (found.host_peak_bytes, found.allocated_peak_bytes, found.reserved_peak_bytes) == (5, 9, 8)
    assert (found.used_peak_bytes, found.utilization) == (30, 0.75)
    assert found.window_ns is None


def test_shares_are_those_of_the_breakdown(store: Store, tmp_path: Path) -> None:
    (run,) = import_traces(store, [write(training(), tmp_path / "trace.json")])
    found = sweep.of_run(run)
    (row,) = analyze(run, "gpu_breakdown").tables["profiled_steps"].to_dict("records")
    assert found.window_ns == row["window_ns"]
    assert (found.active_ns, found.movement_ns, found.idle_ns) == (
        row["active_ns"],
        row["movement_ns"],
        row["idle_ns"],
    )
    assert found.active_ns
    assert found.step_ns == ()


def test_a_run_without_a_device_has_no_shares(store: Store) -> None:
    found = sweep.of_run(make_run(store))
    assert (found.active_ns, found.utilization, found.host_peak_bytes) == (None, None, None)
