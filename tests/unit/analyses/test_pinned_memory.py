from __future__ import annotations

from itertools import product
from typing import TYPE_CHECKING, Any

import pytest
from tracekit.analyses.pinned_memory import HOST_MEMORY_UNKNOWN, NO_BYTES, NO_CEILING, NO_COPIES
from tracekit.analyses.shared.common import NO_DEVICE

from tests.builders import Row, kernel, make_run, memcpy, step
from tests.unit.analyses.test_h2d_copies import plain
from tracekit.analysis import analyze
from tracekit.schema import C

if TYPE_CHECKING:
    from pathlib import Path

    from tests.thresholds import Make
    from tracekit.runs.run import Run

MIB = 1 << 20
FIXED = ["direction", "memory", "copies", "bytes", "sum_ns", "union_ns", "gb_per_s"]


def copy(kind: str, source: str, target: str, start: int, end: int, size: int | None, **more: Any) -> Row:
    ends = {C.COPY_KIND: kind, C.SRC_MEMORY: source, C.DST_MEMORY: target, C.BYTES: size}
    return memcpy(start, end, **{**ends, **more})


def test_memory_is_that_of_the_host_side(tmp_path: Path) -> None:
    run = make_run(
        tmp_path,
        device_intervals=[
            copy("H2D", "pageable", "device", 0, 10, 100),
            copy("H2D", "pageable", "device", 5, 15, 300),
            copy("H2D", "pinned", "device", 20, 30, 50, **{C.DEVICE: 1}),
            copy("H2D", "unknown", "device", 40, 50, None),
            copy("D2H", "device", "pinned", 60, 70, 70),
            copy("D2H", "device", "unified", 60, 70, 70),
            copy("D2D", "device", "device", 80, 90, 10),
            copy("P2P", "device", "device", 80, 80, 10),
            copy("H2H", "pinned", "pageable", 95, 96, 3),
            memcpy(97, 99),
            kernel(0, 7),
        ],
    )
    result = analyze(run, "pinned_memory")
    table = result.tables["by_memory"]
    assert list(table.columns[: len(FIXED)]) == FIXED
    assert plain(table[FIXED]) == [
        ["D2D", "device", 1, 10, 10, 10, 1.0],
        ["D2H", "pinned", 1, 70, 10, 10, 7.0],
        ["D2H", "unified", 1, 70, 10, 10, 7.0],
        ["H2D", "pageable", 2, 400, 20, 15, 20.0],
        ["H2D", "pinned", 1, 50, 10, 10, 5.0],
        ["H2D", "unknown", 1, None, 10, 10, None],
        ["H2H", "pinned", 1, 3, 1, 1, 3.0],
        ["P2P", "device", 1, 10, 0, 0, None],
        ["unknown", "unknown", 1, None, 2, 2, None],
    ]
    pageable = table[table["memory"] == "pageable"]
    assert plain(pageable[["median_gb_per_s", "exposed_ns", "min_bytes", "max_bytes"]]) == [
        [20.0, 8, 100, 300]
    ]
    assert table["ceiling_gb_per_s"].isna().all()
    assert plain(result.tables["by_device"][[C.RANK, C.DEVICE]].drop_duplicates()) == [[0, 0], [0, 1]]
    assert result.notes == (NO_BYTES, HOST_MEMORY_UNKNOWN, NO_CEILING)


@pytest.mark.slow_except(2)
@pytest.mark.parametrize(
    ("pcie", "pinned_bytes", "ceiling"),
    [
        ({"generation": 4, "width": 16}, MIB, 1.969 * 16),
        ({"generation": 1, "width": 1}, MIB, MIB / 100_000),
        (None, MIB, MIB / 100_000),
        (None, MIB - 1, None),
        ({"generation": 4, "width": 16}, MIB - 1, 1.969 * 16),
        (
            {"generation": 1, "width": 16, "max_generation": 4, "max_width": 16},
            MIB - 1,
            1.969 * 16,
        ),  # at rest
        ({"generation": None, "width": None, "max_generation": 4, "max_width": 8}, MIB - 1, 1.969 * 8),
    ],
)
def test_the_ceiling_is_the_link_or_the_best_large_pinned_copy(
    tmp_path: Path, pcie: dict[str, int] | None, pinned_bytes: int, ceiling: float | None
) -> None:
    run = make_run(
        tmp_path,
        meta={"environment": {"gpus": [{"index": 0, "pcie": pcie}]}},
        device_intervals=[copy("H2D", "pinned", "device", 0, 100_000, pinned_bytes)],
    )
    assert plain(analyze(run, "pinned_memory").tables["by_memory"][["ceiling_gb_per_s"]]) == [[ceiling]]


def test_a_sampled_link_is_the_ceiling_whatever_it_could_be(tmp_path: Path) -> None:
    pairs = [("pcie_generation", 1.0), ("pcie_width", 8.0), ("pcie_generation", 4.0), ("pcie_width", 8.0)]
    fixed = {C.SOURCE: "nvml", C.DEVICE: 0, C.UNIT: ""}
    link = {"generation": 1, "width": 8, "max_generation": 5, "max_width": 16}
    run = make_run(
        tmp_path,
        meta={"environment": {"gpus": [{"index": 0, "pcie": link}]}},
        device_intervals=[copy("H2D", "pinned", "device", 0, 100_000, MIB - 1)],
        counters=[
            {**fixed, C.T_NS: at, C.METRIC: metric, C.VALUE: value}
            for at, (metric, value) in enumerate(pairs)
        ],
    )
    assert plain(analyze(run, "pinned_memory").tables["by_memory"][["ceiling_gb_per_s"]]) == [[1.969 * 8]]


def test_the_best_copy_of_one_direction_says_nothing_of_the_other(tmp_path: Path) -> None:
    rows = [
        copy("H2D", "pinned", "device", 0, 100_000, MIB, **{C.STEP: 0}),
        copy("D2H", "device", "pageable", 200_000, 900_000, MIB, **{C.STEP: 0}),
    ]
    run = make_run(tmp_path, device_intervals=rows, steps=[step(0, 0, 1_000_000)])
    (finding,) = analyze(run, "pinned_memory").findings
    assert (finding.code, finding.saving_ns_per_step) == ("pageable_copies", None)


@pytest.mark.parametrize("hidden", [False, True])
def test_a_pageable_copy_behind_kernels_saves_nothing(tmp_path: Path, *, hidden: bool) -> None:
    rows = [
        copy("H2D", "pinned", "device", 0, 100_000, MIB, **{C.STEP: 0}),
        copy("H2D", "pageable", "device", 200_000, 900_000, MIB, **{C.STEP: 0}),
        *([kernel(200_000, 900_000, **{C.STEP: 0})] if hidden else []),
    ]
    run = make_run(tmp_path, device_intervals=rows, steps=[step(0, 0, 1_000_000)])
    savings = [finding.saving_ns_per_step for finding in analyze(run, "pinned_memory").findings]
    assert savings == ([] if hidden else [600_000])


def test_a_half_hidden_copy_saves_no_more_than_its_exposed_half(tmp_path: Path) -> None:
    rows = [
        copy("H2D", "pinned", "device", 0, 100_000, MIB, **{C.STEP: 0}),
        copy("H2D", "pageable", "device", 200_000, 900_000, MIB, **{C.STEP: 0}),
        kernel(200_000, 650_000, **{C.STEP: 0}),
    ]
    run = make_run(tmp_path, device_intervals=rows, steps=[step(0, 0, 1_000_000)])
    (finding,) = analyze(run, "pinned_memory").findings
    assert finding.saving_ns_per_step == 250_000


def test_copies_outside_of_steps_do_not_recur(tmp_path: Path) -> None:
    rows = [copy("H2D", "pageable", "device", 0, 900_000, MIB), kernel(900_000, 900_100, **{C.STEP: 0})]
    run = make_run(tmp_path, device_intervals=rows, steps=[step(0, 900_000, 900_100)])
    assert analyze(run, "pinned_memory").findings == ()


@pytest.mark.parametrize(("rows", "note"), [([], NO_DEVICE), ([kernel(0, 5)], NO_COPIES)])
def test_what_is_missing_is_said(tmp_path: Path, rows: list[Row], note: str) -> None:
    assert analyze(make_run(tmp_path, device_intervals=rows), "pinned_memory").notes == (note,)


@pytest.mark.slow_except(2)
@pytest.mark.parametrize(
    ("kernels", "found"),
    [
        ([(500, 900)], True),  # written by the host after it was moved to the device
        ([(150, 160), (500, 900)], False),  # a kernel ran in between
        ([(50, 900)], False),  # a kernel asked for the pages
    ],
)
def test_managed_memory_that_comes_back_unused_was_moved_in_vain(
    tmp_path: Path, kernels: list[tuple[int, int]], found: bool
) -> None:
    run = make_run(
        tmp_path,
        device_intervals=[
            copy("H2D", "unified", "unified", 100, 140, MIB),
            copy("D2H", "unified", "unified", 200, 260, MIB),
            *(kernel(start, end) for start, end in kernels),
            copy("H2D", "unified", "unified", 510, 550, MIB),
            copy("D2H", "unified", "unified", 900, 950, MIB),
        ],
    )
    findings = analyze(run, "pinned_memory").findings
    back = [one.saving_ns_per_step for one in findings if one.code == "managed_memory_back"]
    assert back == [100] * found


def faulting(path: Path, *, beside: bool = True, reference: bool = True) -> Run:
    """Managed pages that take 400 ns to the device, while a kernel runs or before it, and a pinned copy."""
    rows = [copy("H2D", "unified", "unified", start, start + 40, 1_000) for start in range(0, 400, 40)]
    rows.append(kernel(0 if beside else 400, 1_000))
    if reference:
        rows.append(copy("H2D", "pinned", "device", 1_000, 1_000 + MIB // 100, MIB))  # 100 GB/s
    return make_run(path, device_intervals=rows)


@pytest.mark.parametrize(
    ("beside", "reference", "savings"),
    [(True, True, [400 - 10 * 10]), (True, False, [None]), (False, True, [])],
)
def test_pages_that_move_while_kernels_run_are_to_be_prefetched(
    tmp_path: Path, beside: bool, reference: bool, savings: list[int | None]
) -> None:
    run = faulting(tmp_path, beside=beside, reference=reference)
    found = [one for one in analyze(run, "pinned_memory").findings if one.code == "managed_memory_faults"]
    assert [one.saving_ns_per_step for one in found] == savings


def offloading(
    path: Path, *, copies: int = 24, copy_ns: int = 1_000, memory: str = "pinned", devices: int = 1
) -> Run:
    """Copies of layers on one stream of each device, each beside a kernel of 300 ns on another."""
    rows = []
    for device, start in product(range(devices), range(0, copies * copy_ns, copy_ns)):
        place = {C.DEVICE: device}
        rows.append(copy("H2D", memory, "device", start, start + copy_ns, 30_000, **{C.STREAM: 8}, **place))
        rows.append(kernel(start, start + 300, stream=7, **place))
    return make_run(path, device_intervals=rows)


@pytest.mark.parametrize(
    ("more", "codes"),
    [
        ({}, ["copies_outlast_kernels"]),
        ({"copy_ns": 850}, []),
        ({"copies": 19}, []),
        ({"memory": "unified"}, ["managed_memory_faults"]),
    ],
    ids=["offload", "hidden", "few", "managed"],
)
def test_many_copies_that_outlast_the_kernels_are_offloaded_layers(
    tmp_path: Path, more: dict[str, Any], codes: list[str]
) -> None:
    found = analyze(offloading(tmp_path, **more), "pinned_memory").findings
    assert [one.code for one in found] == codes
    for one in (
        found if "memory" not in more else ()
    ):  # the exposed 700 ns of each copy, without the 300 ns of a kernel
        assert one.saving_ns_per_step == 24 * (700 - 300)


@pytest.mark.parametrize(
    ("memory", "code"), [("pinned", "copies_outlast_kernels"), ("unified", "managed_memory_faults")]
)
def test_bytes_and_rate_are_of_the_device_whose_time_is_said(tmp_path: Path, memory: str, code: str) -> None:
    titles = []
    for devices in (1, 2):
        run = offloading(tmp_path / str(devices), memory=memory, devices=devices)
        titles.append([one.title for one in analyze(run, "pinned_memory").findings if one.code == code])
    (alone,), (several,) = titles
    assert several == alone.replace(" per capture", " per capture and device", 1) != alone


THRESHOLD_RUNS: dict[str, Make] = {
    "managed_memory_faults": lambda path, _shared: (faulting(path, reference=False),),
    "copies_outlast_kernels": lambda path, _shared: (offloading(path),),
}
