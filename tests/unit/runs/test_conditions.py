"""What NVML's samples say of the conditions of runs, by counters made by hand."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from tests.builders import kernel, make_run, step
from tracekit.runs.conditions import Conditions, mean_clock, of_run, warnings
from tracekit.schema import C

if TYPE_CHECKING:
    from pathlib import Path


def sample(t_ns: int, metric: str, value: float, *, device: int = 0, source: str = "nvml") -> dict[str, Any]:
    return {
        C.T_NS: t_ns,
        C.SOURCE: source,
        C.DEVICE: device,
        C.METRIC: metric,
        C.UNIT: "",
        C.VALUE: value,
    }


def clocks(*values: float, device: int = 0, start: int = 0) -> list[dict[str, Any]]:
    return [sample(start + at, "sm_clock_mhz", value, device=device) for at, value in enumerate(values)]


def conditions(path: Path, rows: list[dict[str, Any]], **tables: Any) -> Conditions:
    return of_run(make_run(path, counters=rows, **tables))


def test_a_run_without_samples_knows_nothing(tmp_path: Path) -> None:
    foreign = sample(0, "sm_clock_mhz", 1_000.0, source="torch")
    assert conditions(tmp_path, [foreign], steps=[step(0, 0, 10)]) == Conditions()


def test_the_clock_is_the_mean_inside_of_the_steps(tmp_path: Path) -> None:
    rows = clocks(345.0, 345.0) + clocks(1_900.0, 2_000.0, start=100) + clocks(345.0, start=900)
    steps = [step(0, 100, 150), step(1, 150, 200)]
    assert conditions(tmp_path / "in", rows, steps=steps).clock_mhz == 1_950.0
    assert conditions(tmp_path / "out", clocks(1_000.0, 1_100.0), steps=steps).clock_mhz == 1_050.0
    assert conditions(tmp_path / "no", clocks(1_000.0, 0.0, float("nan"), -1.0)).clock_mhz == 1_000.0


def test_devices_that_did_not_work_do_not_count(tmp_path: Path) -> None:
    rows = clocks(1_900.0) + clocks(345.0, device=1)
    assert conditions(tmp_path / "a", rows, device_intervals=[kernel(0, 5)]).clock_mhz == 1_900.0
    assert conditions(tmp_path / "b", rows).clock_mhz == pytest.approx(1_122.5)


def test_heat_throttling_and_company_are_read(tmp_path: Path) -> None:
    rows = [
        sample(0, "temperature_c", 61.0),
        sample(1, "temperature_c", 83.0),
        sample(0, "throttle_reasons", float(0x1)),  # idle
        sample(1, "throttle_reasons", float(0x4 | 0x20)),
        sample(0, "other_processes", 0.0),
        sample(1, "other_processes", 2.0),
    ]
    found = conditions(tmp_path, rows)
    assert found == Conditions(None, 83.0, ("its power limit", "its temperature (software)"), 2)


def test_processes_that_were_not_listed_are_unknown(tmp_path: Path) -> None:
    assert conditions(tmp_path / "none", [sample(0, "temperature_c", 61.0)]).others is None
    assert conditions(tmp_path / "zero", [sample(0, "other_processes", 0.0)]).others == 0


def test_an_idle_device_is_not_held_down(tmp_path: Path) -> None:
    assert conditions(tmp_path, [sample(0, "throttle_reasons", 1.0)]).throttled == ()


def test_a_side_has_the_mean_of_the_clocks_it_knows() -> None:
    assert mean_clock([Conditions(1_000.0), Conditions(), Conditions(2_000.0)]) == 1_500.0
    assert mean_clock([Conditions()]) is None


def test_equal_conditions_are_not_worth_a_word() -> None:
    own = [Conditions(1_980.0, 60.0)]
    assert warnings(own, [Conditions(1_950.0, 69.0)]) == ()
    assert warnings(own, [Conditions()]) == ()


def test_what_differs_or_disturbs_is_said() -> None:
    base = [Conditions(1_980.0, 60.0), Conditions(1_980.0, 58.0, (), 1)]
    head = [Conditions(1_400.0, 84.0, ("its power limit",)), Conditions(1_400.0, 80.0)]
    assert warnings(base, head) == (
        "the mean SM clock was 1980 MHz in the base and 1400 MHz in the head, more than 2% apart; "
        "lock it with `nvidia-smi --lock-gpu-clocks`",
        "the device reached 60 °C in the base and 84 °C in the head",
        "other processes used the device in 1 of 2 runs of the base",
        "the clock was throttled by its power limit in 1 of 2 runs of the head",
    )
