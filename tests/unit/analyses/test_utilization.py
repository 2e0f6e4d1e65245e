"""Samples weighed by time, beside devices whose work is known."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from tracekit.analyses.utilization import FEW, NO_NVML, NO_SAMPLES
from tracekit.analyses.utilization import findings as rules
from tracekit.analyses.utilization.series import OWN_DEVICES, Series

from tests.builders import Row, device, host, kernel, make_run, memcpy, step
from tracekit.analysis import Result, Severity, analyze
from tracekit.runs.meta import Timings
from tracekit.runs.nvml import M
from tracekit.schema import C

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from tests.shared_runs import SharedRuns
    from tests.thresholds import Make
    from tracekit.runs.run import Run

MS = 1_000_000
MIB = 1 << 20
STEPS = [step(0, 0, 500 * MS), step(1, 500 * MS, 1_000 * MS)]
BUSY = [kernel(0, 400 * MS, **{C.STEP: 0}), kernel(500 * MS, 900 * MS, **{C.STEP: 1})]


def samples(metric: str, values: Sequence[float], **more: Any) -> list[Row]:
    """One value every 100 ms from 0 on."""
    start, gap = more.pop("start", 0), more.pop("gap", 100 * MS)
    source, where = more.pop("source", "nvml"), more.pop("device", 0)
    return [
        {
            C.T_NS: start + at * gap,
            C.SOURCE: source,
            C.DEVICE: where,
            C.METRIC: metric,
            C.UNIT: more.get("unit", ""),
            C.VALUE: value,
        }
        for at, value in enumerate(values)
    ]


def process(metric: str, values: Sequence[float], **more: Any) -> list[Row]:
    return samples(metric, values, **{"source": "process", "device": None, **more})


def constant(metric: str, value: float) -> list[Row]:
    return samples(metric, [value])


def result(path: Path, counters: list[Row], work: list[Row] | None = None, **more: Any) -> Result:
    rows = BUSY if work is None else work
    run = make_run(path, device_intervals=rows, steps=more.pop("steps", STEPS), counters=counters, **more)
    return analyze(run, "utilization")


def codes(found: Result) -> list[str]:
    return [one.code for one in found.findings]


def series(metric: str, times: list[int], values: list[float]) -> Series:
    return Series("nvml", 0, metric, "", np.array(times, np.int64), np.array(values))


def test_devices_of_ranks_that_number_their_own_alike_do_not_mix(tmp_path: Path) -> None:
    watts = {0: samples(M.POWER, [100.0] * 11), 1: samples(M.POWER, [500.0] * 11)}
    rows = [{**one, C.RANK: rank} for rank, own in watts.items() for one in own]
    ranks = {
        name: [{**one, C.RANK: rank} for rank in watts for one in own]
        for name, own in {
            "steps": STEPS,
            "device_intervals": [{**one, C.ROW_ID: 0} for one in BUSY[:1]],
        }.items()
    }
    run = make_run(tmp_path, counters=sorted(rows, key=lambda row: int(row[C.T_NS])), **ranks)
    found = {one: analyze(run.of_ranks(one), "utilization") for one in watts}
    assert [one.tables["devices"]["power"].tolist() for one in found.values()] == [[100.0], [500.0]]
    assert not any("--rank" in note for one in found.values() for note in one.notes)
    whole = analyze(run, "utilization")
    assert whole.tables["devices"]["power"].tolist() == [100.0]
    assert OWN_DEVICES.format(0) in whole.notes


def one_window(start: int, end: int) -> Any:
    return np.array([start], np.int64), np.array([end], np.int64)


def test_a_state_stands_for_the_time_half_way_to_its_neighbours() -> None:
    power = series(M.POWER, [0, 100, 400], [100.0, 200.0, 400.0])
    start, end = power.extents()
    assert (start.tolist(), end.tolist()) == ([-100, 50, 250], [50, 250, 500])
    found = power.stats(one_window(0, 400))
    assert found
    assert found.mean == pytest.approx((50 * 100 + 200 * 200 + 150 * 400) / 400)
    assert (found.min, found.max, found.p95, found.samples, found.covered_ns) == (100, 400, 400, 3, 400)


def test_a_utilization_stands_for_the_time_before_it() -> None:
    seen = series(M.GPU_UTILIZATION, [0, 100, 400], [10.0, 20.0, 40.0])
    start, end = seen.extents()
    assert (start.tolist(), end.tolist()) == ([-200, 0, 100], [0, 100, 400])
    found = seen.stats(one_window(50, 200))
    assert found
    assert found.mean == pytest.approx((50 * 20 + 100 * 40) / 150)


def test_an_average_counts_where_half_of_its_time_is_inside() -> None:
    seen = series(M.GPU_UTILIZATION, [0, 100, 200], [10.0, 20.0, 40.0])
    inside = [seen.within_windows(one_window(start, 100)).values.tolist() for start in (50, 51)]
    assert inside == [[20.0], []]


def test_what_was_not_sampled_for_long_is_not_covered() -> None:
    power = series(M.POWER, [0, 10, 20, 10_000, 10_010], [1.0, 1.0, 1.0, 9.0, 9.0])
    found = power.stats(one_window(0, 10_000))
    assert found
    assert found.covered_ns == 35 + 15
    assert found.mean == pytest.approx((35 * 1 + 15 * 9) / 50)


def test_a_single_sample_has_a_value_and_no_duration() -> None:
    alone = series(M.POWER, [50], [7.0])
    inside, outside = alone.stats(one_window(0, 100)), alone.stats(one_window(60, 100))
    assert inside
    assert (inside.mean, inside.covered_ns) == (7.0, 0)
    assert outside is None


def test_power_becomes_energy_per_step(tmp_path: Path) -> None:
    watts = [100.0] * 5 + [300.0] * 6
    found = result(tmp_path, samples(M.POWER, watts, unit="W") + samples(M.ENERGY, np.arange(11) * 20.0))
    table = found.tables["per_step"]
    # the change between 400 and 500 ms counts half to each side
    assert table["energy"].tolist() == pytest.approx([0.45 * 100 + 0.05 * 300, 0.5 * 300])
    assert table["power"].tolist() == pytest.approx([120.0, 300.0])
    assert table["active_share"].tolist() == pytest.approx([0.8, 0.8])
    (row,) = found.tables["devices"].to_dict("records")
    assert row["energy_per_step"] == pytest.approx((60 + 150) / 2)
    assert row["power"] == pytest.approx(210.0)
    assert row["energy_counted"] == pytest.approx(200.0)


def test_energy_is_unknown_where_little_was_sampled(tmp_path: Path) -> None:
    found = result(tmp_path, samples(M.POWER, [100.0, 100.0, 100.0], gap=20 * MS))
    assert found.tables["per_step"]["energy"].isna().all()
    assert found.tables["devices"]["energy_per_step"].isna().all()


def test_nvml_and_the_trace_disagree_and_both_are_shown(tmp_path: Path) -> None:
    found = result(tmp_path, samples(M.GPU_UTILIZATION, [100.0] * 11, unit="%"))
    (row,) = found.tables["devices"].to_dict("records")
    assert (row["nvml_share"], row["active_share"], row["window_ns"]) == (1.0, 0.8, 1_000 * MS)


def test_the_clock_is_that_of_the_time_it_worked(tmp_path: Path) -> None:
    clocks = [1_800.0] * 5 + [1_800.0] * 4 + [300.0, 300.0]
    rows = samples(M.SM_CLOCK, clocks) + constant(M.SM_CLOCK_MAX, 2_000.0)
    (row,) = result(tmp_path, rows).tables["devices"].to_dict("records")
    # 900 ms is sampled 300 and stands for 850 ms on: 50 of 800 ms of work
    assert row["sm_clock"] == pytest.approx((750 * 1_800 + 50 * 300) / 800)
    assert row["clock_share"] == pytest.approx(row["sm_clock"] / 2_000)


def test_metrics_of_steps_and_of_the_whole_run_stand_apart(tmp_path: Path) -> None:
    rows = samples(M.POWER, [50.0] * 10 + [200.0] * 10, unit="W", start=-1_000 * MS)
    rows += samples("SMs Active", [40.0] * 10, unit="%", source="nsys")
    table = result(tmp_path, rows).tables["metrics"]
    power = table[table[C.METRIC] == M.POWER].set_index("scope")
    assert power.loc["steps", ["min", "max"]].tolist() == [200.0, 200.0]
    assert power.loc["whole run", ["min", "mean", "max"]].tolist() == [50.0, 125.0, 200.0]
    assert "nsys" in set(table[C.SOURCE])


def test_a_run_on_the_host_alone_has_its_process(tmp_path: Path) -> None:
    rows = process("cpu_percent", [200.0] * 11, unit="%") + process("rss_bytes", [5.0 * MIB] * 11)
    run = make_run(tmp_path, host_intervals=[host("aten::mm", 0, 900 * MS)], steps=STEPS, counters=rows)
    found = analyze(run, "utilization")
    assert "devices" not in found.tables
    row = found.tables["host"].set_index("scope").loc["steps"]
    assert (row["cores_mean"], row["rss_max"]) == (2.0, 5 * MIB)
    assert (found.findings, found.notes) == ((), ())


def test_over_time_all_is_a_share_of_the_most_it_can_be(tmp_path: Path) -> None:
    rows = samples(M.GPU_UTILIZATION, [50.0, 100.0]) + samples(M.POWER, [350.0, 700.0])
    rows += constant(M.POWER_LIMIT, 700.0) + samples(M.SM_CLOCK, [990.0, 1_980.0])  # its highest is unknown
    rows += process("rss_bytes", [1.0 * MIB, 2.0 * MIB]) + process("cpu_percent", [150.0], start=100 * MS)
    found = result(tmp_path, rows)
    table = found.tables["timeline"]
    assert table[["quantity", C.T_NS, "of_most"]].to_numpy().tolist() == [
        ["utilization", 0, 0.5],
        ["utilization", 100 * MS, 1.0],
        ["power", 0, 0.5],
        ["power", 100 * MS, 1.0],
    ]
    host_table = found.tables["host_timeline"]
    assert host_table["rss"].tolist() == [MIB, 2 * MIB]
    assert host_table["cores"].isna().tolist() == [True, False]
    assert host_table["cores"].iloc[1] == 1.5


def test_what_is_absent_is_said(tmp_path: Path) -> None:
    assert result(tmp_path / "a", []).notes == (NO_SAMPLES,)
    rows = process("rss_bytes", [5.0] * 11)
    assert result(tmp_path / "b", rows).notes == (NO_NVML,)
    assert FEW in result(tmp_path / "c", process("rss_bytes", [5.0])).notes


HOT, CAP, IDLE = float(0x40), float(0x4), float(0x1)


@pytest.mark.slow_except(3)
@pytest.mark.parametrize(
    ("bits", "clock", "expected"),
    [
        ([HOT] * 11, 1_900.0, [(rules.THROTTLED.code, Severity.INFO)]),
        ([HOT] * 11, 1_200.0, [(rules.THROTTLED.code, Severity.WARN)]),
        ([CAP] * 11, 1_900.0, [(rules.THROTTLED.code, Severity.INFO)]),
        ([IDLE] * 11, 1_900.0, []),
        ([0.0] * 11, 1_900.0, []),
        ([0.0] * 5 + [HOT] + [0.0] * 5, 1_900.0, []),
        ([0.0] * 11, 1_400.0, [(rules.BELOW_MAX.code, Severity.WARN)]),
        ([float(0x2)] * 11, 1_400.0, [(rules.BELOW_MAX.code, Severity.WARN)]),
    ],
)
def test_clocks_that_are_held_down_or_set(
    tmp_path: Path, bits: list[float], clock: float, expected: list[tuple[str, Severity]]
) -> None:
    rows = samples(M.THROTTLE, bits) + samples(M.SM_CLOCK, [clock] * 11) + constant(M.SM_CLOCK_MAX, 1_980.0)
    found = result(tmp_path, rows)
    assert [(one.code, one.severity) for one in found.findings] == expected
    assert all(one.evidence == {"device_intervals": [0, 1]} for one in found.findings)


def test_the_share_of_throttled_time_and_its_reasons(tmp_path: Path) -> None:
    found = result(tmp_path, samples(M.THROTTLE, [HOT + CAP] * 3 + [CAP] * 3 + [0.0] * 5))
    table = found.tables["throttling"].set_index("bit")
    assert table["time_share"].to_dict() == pytest.approx({"0x4": 0.55, "0x40": 0.25})
    assert table["throttles"].tolist() == ["yes", "yes"]
    assert found.tables["devices"]["throttled_share"].tolist() == pytest.approx([0.55])
    (finding,) = found.findings
    assert "throttled by its power limit, its temperature (hardware) in 55%" in finding.title


def link(generation: Sequence[float], width: float, *, most: tuple[float, float] = (4, 16)) -> list[Row]:
    return [
        *samples(M.PCIE_GENERATION, generation),
        *samples(M.PCIE_WIDTH, [width] * len(generation)),
        *constant(M.PCIE_GENERATION_MAX, most[0]),
        *constant(M.PCIE_WIDTH_MAX, most[1]),
    ]


COPIES = [
    *(kernel(at * MS, (at + 100) * MS, **{C.STEP: at // 500}) for at in (0, 100, 200, 500, 600, 700)),
    memcpy(300 * MS, 400 * MS, **{C.COPY_KIND: "H2D", C.STEP: 0, C.BYTES: 800 * MIB}),
    memcpy(800 * MS, 900 * MS, **{C.COPY_KIND: "D2H", C.STEP: 1, C.BYTES: 800 * MIB}),
]


def test_a_link_of_half_the_lanes_costs_half_of_the_exposed_copies(tmp_path: Path) -> None:
    rows = link([4.0] * 11, 8) + samples(M.PCIE_RX, [12.0] * 11) + samples(M.PCIE_TX, [1.0] * 11)
    found = result(tmp_path, rows, COPIES)
    (finding,) = found.findings
    assert (finding.code, finding.severity, finding.saving_ns_per_step) == (
        rules.NARROW_LINK.code,
        Severity.HIGH,
        50 * MS,
    )
    assert finding.evidence == {"device_intervals": [6, 7]}
    (row,) = found.tables["pcie"].to_dict("records")
    assert (row["generation"], row["width"], row["max_width"]) == (4, 8, 16)
    assert row["link_rate"] == pytest.approx(15.752)
    assert row["used_share"] == pytest.approx(12 / 15.752)


@pytest.mark.parametrize(
    ("generation", "expected"),
    [
        ([4.0] * 11, []),
        ([1.0] * 5 + [4.0] * 6, []),  # it woke up
        ([1.0] * 11, [rules.NARROW_LINK.code]),
    ],
)
def test_a_link_counts_by_the_fastest_it_was_under_load(
    tmp_path: Path, generation: list[float], expected: list[str]
) -> None:
    assert codes(result(tmp_path, link(generation, 16))) == expected


def test_a_slow_link_that_nothing_waits_for_saves_nothing(tmp_path: Path) -> None:
    (finding,) = result(tmp_path, link([3.0] * 11, 16)).findings
    assert (finding.severity, finding.saving_ns_per_step, finding.basis) == (Severity.INFO, None, None)


@pytest.mark.parametrize(
    ("others", "expected"), [([0.0] * 11, []), ([0.0] * 5 + [2.0] * 6, [rules.SHARED.code])]
)
def test_others_on_the_device(tmp_path: Path, others: list[float], expected: list[str]) -> None:
    found = result(tmp_path, samples(M.OTHERS, others))
    assert codes(found) == expected
    assert all("2 other processes used device 0 in 55%" in one.title for one in found.findings)
    assert all(one.evidence["device_intervals"][0] == 1 for one in found.findings)


def test_a_device_that_did_not_work_is_not_judged(tmp_path: Path) -> None:
    assert codes(result(tmp_path, samples(M.OTHERS, [3.0] * 11, device=1))) == []


IDLE_ROWS = [
    kernel(0, 200 * MS, **{C.STEP: 0}),
    device("idle", 200 * MS, 500 * MS),
    kernel(500 * MS, 700 * MS, **{C.STEP: 1}),
]


@pytest.mark.parametrize(
    ("work", "cpu", "expected"),
    [
        (IDLE_ROWS, 101.0, [rules.CPU_BOUND.code]),
        (IDLE_ROWS, 20.0, []),
        (IDLE_ROWS, 400.0, []),
        (BUSY, 101.0, []),
    ],
)
def test_one_busy_core_beside_an_idle_device(
    tmp_path: Path, work: list[Row], cpu: float, expected: list[str]
) -> None:
    found = result(tmp_path, process("cpu_percent", [cpu] * 11, unit="%"), work)
    assert codes(found) == expected
    assert all(one.evidence == {"device_intervals": [1]} for one in found.findings)


def test_a_device_that_never_idles_beside_one_that_does_is_no_sign(tmp_path: Path) -> None:
    work = [*IDLE_ROWS, kernel(0, 1_000 * MS, **{C.DEVICE: 1, C.STEP: 0})]
    assert codes(result(tmp_path, process("cpu_percent", [101.0] * 11), work)) == []


def ramp(first: float, last: float, count: int) -> list[float]:
    return [float(value) * MIB for value in np.linspace(first, last, count)]


TIMED = {"timings": Timings([40 * 100 * MS, 9 * 100 * MS], [], "perf_counter", later=1)}
"""Steps before the profile for 40 samples, of which the last 20 are judged."""


@pytest.mark.parametrize(
    ("sizes", "expected"),
    [
        (ramp(1_000, 1_800, 40), [rules.HOST_GROWTH.code]),
        ([1_000.0 * MIB] * 40, []),
        (ramp(1_000, 1_020, 40), []),  # too little to matter
        (ramp(100, 1_400, 20) + [1_400.0 * MIB] * 20, []),  # over by half-time
        (ramp(100, 1_400, 60) + [1_400.0 * MIB] * 20, []),  # imports, before the steps
        (ramp(1_000, 1_400, 8), []),  # too few to tell
    ],
)
def test_host_memory_that_grows(tmp_path: Path, sizes: list[float], expected: list[str]) -> None:
    before = process("rss_bytes", sizes, start=-len(sizes) * 100 * MS)
    assert codes(result(tmp_path, before, meta=TIMED)) == expected


def test_what_the_profiler_takes_is_not_the_programs_growth(tmp_path: Path) -> None:
    assert (
        codes(result(tmp_path, process("rss_bytes", ramp(1_000, 2_000, 20), gap=50 * MS), meta=TIMED)) == []
    )


@pytest.mark.slow_except(1)
@pytest.mark.parametrize(
    ("metric", "outside", "inside", "code", "more"),
    [
        (M.SM_CLOCK, 210.0, 1_980.0, rules.BELOW_MAX.code, constant(M.SM_CLOCK_MAX, 2_000.0)),
        (M.THROTTLE, 4.0, 0.0, rules.THROTTLED.code, []),
        (M.OTHERS, 1.0, 0.0, rules.SHARED.code, []),
    ],
)
def test_samples_around_short_steps_enter_no_warning(
    metric: str, outside: float, inside: float, code: str, more: list[Row], tmp_path: Path
) -> None:
    # the device idles while the profiler starts, and after the last step
    steps = [step(0, 5 * MS, 130 * MS), step(1, 130 * MS, 295 * MS)]
    work = [kernel(5 * MS, 295 * MS, **{C.STEP: 0})]
    values = [outside, inside, inside, outside, outside]
    assert result(tmp_path / "around", samples(metric, values) + more, work, steps=steps).findings == ()
    values = [inside, outside, outside, inside, inside]
    assert codes(result(tmp_path / "in", samples(metric, values) + more, work, steps=steps)) == [code]


def test_averages_of_mostly_other_time_enter_no_warning(tmp_path: Path) -> None:
    steps = [step(0, 560 * MS, 600 * MS)]
    work = [kernel(560 * MS, 570 * MS, **{C.STEP: 0})]
    busy_before = process("cpu_percent", [100.0] * 9, unit="%")
    assert result(tmp_path, busy_before, work, steps=steps).findings == ()


def sampled(rows: list[Row], work: list[Row] | None = None, **more: Any) -> Make:
    """The rows of counters beside the steps and the work of a device."""

    def make(path: Path, _shared: SharedRuns) -> tuple[Run, ...]:
        intervals = BUSY if work is None else work
        return (make_run(path, device_intervals=intervals, steps=STEPS, counters=rows, **more),)

    return make


THRESHOLD_RUNS: dict[str, Make] = {
    "clock_throttled": sampled(samples(M.THROTTLE, [HOT] * 11)),
    "clock_below_max": sampled(samples(M.SM_CLOCK, [1_400.0] * 11) + constant(M.SM_CLOCK_MAX, 1_980.0)),
    "pcie_link_below_max": sampled(link([4.0] * 11, 8)),
    "host_memory_growth": sampled(
        process("rss_bytes", ramp(1_000, 1_800, 40), start=-4_000 * MS),
        meta=TIMED,
    ),
    "cpu_bound_process": sampled(process("cpu_percent", [101.0] * 11, unit="%"), work=IDLE_ROWS),
}
