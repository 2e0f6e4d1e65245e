"""Every threshold of rules on samples, steps and kernels decides: past it, runs made by hand have no finding.

The run stays as it is, and the threshold is moved past what the run has. `tests/golden/test_thresholds.py`
does the same for rules that simulated programs reach.
"""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING, Any

import pytest

from samples.simulator.planted import compiled, copies, devices, memory_ranks, pipelines
from tests import tiers
from tests.builders import host, kernel, make_run, memcpy, step
from tests.golden import test_thresholds as golden
from tests.shared_runs import copy_of
from tests.thresholds import RULES, Make, declared_runs, findings, findings_past
from tests.unit.analyses import test_idle_gaps as idle
from tests.unit.analyses import test_ranks as ranks
from tracekit.schema import C, HostKind

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from samples.simulator import Program
    from tests.shared_runs import SharedRuns
    from tracekit.runs.run import Run

    Given = Callable[[str, Make], tuple[tuple[Run, ...], list[str]]]


MIB = 1 << 20


def one_side(path: Path, _shared: SharedRuns) -> tuple[Run, ...]:
    up = {C.COPY_KIND: "H2D", C.SRC_MEMORY: "pageable", C.DST_MEMORY: "device", C.BYTES: 128, C.STEP: 0}
    steps = [step(0, 0, 10)]
    base = make_run(path / "base", device_intervals=[kernel(0, 9)], steps=steps)
    return base, make_run(path / "head", device_intervals=[memcpy(0, 9, **up)], steps=steps)


def unlike_sizes(_path: Path, shared: SharedRuns) -> tuple[Run, ...]:
    head = copies.batches(batch=16, recorded=False, extra_bytes=1_000)
    return shared.simulated(copies.batches(recorded=False)), shared.simulated(head)


def slow_link(path: Path, shared: SharedRuns) -> tuple[Run, ...]:
    gpu = {"index": 0, "name": "Simulated GPU", "pcie": {"generation": 4, "width": 16}}
    slow = shared.simulated(copies.pageable(gb_per_s=6, reference=False))
    return (copy_of(slow, path / "run", environment={"gpus": [gpu]}),)


def moved_back(path: Path, _shared: SharedRuns) -> tuple[Run, ...]:
    managed = {C.SRC_MEMORY: "unified", C.DST_MEMORY: "unified", C.BYTES: MIB}
    moves = [("H2D", 100, 140), ("D2H", 200, 260), ("H2D", 510, 550), ("D2H", 900, 950)]
    rows = [memcpy(start, end, **managed, **{C.COPY_KIND: kind}) for kind, start, end in moves]
    return (make_run(path, device_intervals=[*rows, kernel(500, 900)]),)


def up_and_down(path: Path, _shared: SharedRuns) -> tuple[Run, ...]:
    """Two steps in which data goes to the device and back eight times."""
    memory = {C.SRC_MEMORY: "pinned", C.DST_MEMORY: "pinned", C.BYTES: MIB}
    rows = [
        memcpy(start, start + 50, **memory, **{C.COPY_KIND: kind, C.STEP: start // 1_000})
        for pair in range(0, 2_000, 125)
        for kind, start in (("H2D", pair), ("D2H", pair + 60))
    ]
    return (make_run(path, device_intervals=rows, steps=[step(0, 0, 1_000), step(1, 1_000, 2_000)]),)


def late(lateness: list[dict[int, int]], count: int) -> Make:
    """Collectives of so many ranks, each late by the given time."""
    return lambda path, _shared: (make_run(path, device_intervals=ranks.late_by(lateness, count)),)


def allocating(tensors: int, *, every: int = 1) -> Make:
    """Tensors of which every so manieth is allocated and freed at the driver."""

    def make(path: Path, _shared: SharedRuns) -> tuple[Run, ...]:
        ops = [host("aten::empty", 1_000 * k, 1_000 * k + 900) for k in range(tensors)]
        calls = [
            host(name, 1_000 * k + at, 1_000 * k + at + 300, parent_row=k, depth=1, kind=HostKind.RUNTIME)
            for k in range(0, tensors, every)
            for name, at in (("hipMalloc", 10), ("hipFree", 400))
        ]
        busy = [kernel(0, 10), kernel(1_000 * tensors, 1_000 * tensors + 10)]
        return (make_run(path, host_intervals=[*ops, *calls], device_intervals=busy),)

    return make


def frees(path: Path, _shared: SharedRuns) -> tuple[Run, ...]:
    """Three gaps of a device, each while the host frees memory."""
    starts = [1_000_000 * k for k in range(4)]
    calls = [host("cudaLaunchKernel", start + 990_000, start + 994_000, **idle.CALL) for start in starts]
    freeing = [host("cudaFree", start + 110_000, start + 980_000, **idle.CALL) for start in starts[1:]]
    work = [kernel(start + 1_000_000, start + 1_100_000, launch_row=k) for k, start in enumerate(starts)]
    return (make_run(path, host_intervals=[*calls, *freeing], device_intervals=idle.with_idle(work)),)


def all_reduces(path: Path, _shared: SharedRuns) -> tuple[Run, ...]:
    """A step of 60 short all-reduces after a kernel that could hide them."""
    name = "ncclDevKernel_AllReduce_Sum_f32_RING_LL"
    rows = [kernel(0, 100_000, **{C.STREAM: 1, C.STEP: 0})]
    rows += [
        kernel(at, at + 1_000, name=name, **{C.STREAM: 2, C.STEP: 0}) for at in range(100_000, 220_000, 2_000)
    ]
    return (make_run(path, steps=[step(0, 0, 220_000)], device_intervals=rows),)


def waiting(path: Path, _shared: SharedRuns) -> tuple[Run, ...]:
    """A collective that takes four times as long in some steps as in others."""
    steps, rows = [], []
    for number, length in enumerate([1_000_000, 4_000_000, 4_000_000, 3_000_000]):
        begin = 10_000_000 * number
        steps.append(step(number, begin, begin + 10_000_000))
        rows.append(kernel(begin, begin + 5_000_000, **{C.STREAM: 1, C.STEP: number}))
        talk = {"name": "ncclDevKernel_AllReduce_Sum_f32_RING_LL", C.STREAM: 2, C.STEP: number}
        rows.append(kernel(begin + 5_000_000, begin + 5_000_000 + length, **talk))
    return (make_run(path, steps=steps, device_intervals=rows),)


def simulated(*programs: compiled.Compilation) -> Make:
    return lambda _path, shared: tuple(shared.simulated(compiled.program(one)) for one in programs)


def planted(build: Callable[..., Program | list[Program]], *arguments: Any, **options: Any) -> Make:
    """A simulated run of one or several ranks."""

    def make(_path: Path, shared: SharedRuns) -> tuple[Run, ...]:
        built = build(*arguments, **options)
        return (shared.simulated(*(built if isinstance(built, list) else [built])),)

    return make


def short_gain(_path: Path, shared: SharedRuns) -> tuple[Run, ...]:
    lame = devices.Machine(name=devices.H100, sm_count=132, linear=2.0, add=1.25)
    return tuple(shared.simulated(devices.program(one)) for one in (devices.Machine(), lame))


RUNS: dict[str, Make] = declared_runs() | {
    "h2d_compare_one_side": one_side,
    "h2d_compare_unknown": unlike_sizes,
    "slow_link": slow_link,
    "managed_memory_back": moved_back,
    "caching_allocator_off": allocating(100),
    "compile_breaks": simulated(compiled.Compilation(breaks=2)),
    "compile_in_steps": simulated(compiled.Compilation(compiles=True)),
    "compile_slower": simulated(
        compiled.Compilation(compiled=False), compiled.Compilation(lookup_ns=compiled.SLOW_LOOKUP_NS)
    ),
    "device_gain_short": short_gain,
}
"""Runs on which a rule gives its finding, by its code; two where it compares. Most are in the rule's test."""
SOME: list[tuple[str, Make, list[str]]] = [
    ("allocator_churn", allocating(300, every=3), ["min_frees"]),
    ("idle_slow_call", frees, ["min_recurring_calls"]),
    ("exposed_communication", all_reduces, ["min_calls", "max_call_ns"]),
    ("exposed_communication", waiting, ["min_steps", "min_time_ratio"]),
    ("pipeline_bubble", planted(pipelines.pipeline, 4, 8), ["max_microbatch_factor"]),
    ("straggler", planted(memory_ranks.job, late=2), ["max_first_share", "min_caused_share"]),
    ("straggler", late([{2: 300_000}, {5: 300_000}] * 6, 8), ["max_blamed_share"]),
    (
        "straggler",
        late([{0: 400_000}] * 3 + [{0: 5_000}] * 9, 2),
        ["min_early_wait_share", "max_early_share"],
    ),
    ("h2d_ping_pong", up_and_down, ["min_pairs"]),
]
"""Runs for some thresholds of rules whose other ones are in `tests/golden/test_thresholds.py`."""
PACED = (
    *("fp32_without_tensor_cores", "batch_norm_training", "layout_conversions"),
    *("unfused_elementwise", "optimizer_not_fused", "dtype_conversions"),
)
CHANGED = {
    *((code, "min_paced_share") for code in PACED),
    ("idle_slow_call", "min_recurring_calls"),
    ("pipeline_bubble", "max_microbatch_factor"),
    *(("straggler", name) for name in ("max_first_share", "min_early_wait_share", "max_early_share")),
    *(
        ("exposed_communication", name)
        for name in ("min_calls", "max_call_ns", "min_steps", "min_time_ratio")
    ),
}
"""Thresholds past which there is a finding, but another one."""
THRESHOLDS = [(code, make, name) for code, make in RUNS.items() for name in RULES[code][1].thresholds]
THRESHOLDS += [(code, make, name) for code, make, some in SOME for name in some]
FIRST = list({(code, make): (code, make, name) for code, make, name in reversed(THRESHOLDS)}.values())
"""One threshold for each run, for the default tier."""
FURTHER = [case for case in THRESHOLDS if case[0] in {"clock_throttled", "cpu_bound_process", "slow_link"}]
"""Thresholds of rules that no other test takes past all of theirs."""


def test_every_threshold_is_moved() -> None:
    moved = [*golden.THRESHOLDS, *((code, name) for code, _, name in THRESHOLDS)]
    assert sorted(moved) == sorted(
        (code, name) for code, (_, rule) in RULES.items() for name in rule.thresholds
    )


@pytest.fixture(scope="module")
def given(tmp_path_factory: pytest.TempPathFactory, shared_runs: SharedRuns) -> Given:
    """The runs of a rule and its findings on them."""

    @cache
    def of(code: str, make: Make) -> tuple[tuple[Run, ...], list[str]]:
        runs = make(tmp_path_factory.mktemp(code) / "run", shared_runs)
        return runs, findings(code, runs)

    return of


@pytest.mark.parametrize(
    ("code", "make", "name"),
    tiers.thinned(THRESHOLDS, default=[*FIRST, *FURTHER]),
    ids=[f"{code}-{name}" for code, _, name in THRESHOLDS],
)
def test_past_its_threshold_a_rule_is_silent(code: str, make: Make, name: str, given: Given) -> None:
    runs, before = given(code, make)
    assert before
    after = findings_past(code, name, runs)
    assert (after != before) if (code, name) in CHANGED else (after == [])
