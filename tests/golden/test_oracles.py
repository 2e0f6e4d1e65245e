"""Definitions of other tools, computed from the raw events of the same files, against this project's numbers.

Each difference is intended and stated where it is asserted. The traces are other projects' and not part of
this one; where they are absent the tests are skipped.
"""

from __future__ import annotations

import gzip
import json
import re
from dataclasses import dataclass
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from tracekit.analysis import analyze
from tracekit.schema import C

if TYPE_CHECKING:
    from tests.shared_runs import SharedRuns
    from tracekit.runs.run import Run

TRACES = Path(__file__).parents[2] / ".." / "shared" / "traces"
NAMES = (
    "facebookresearch__HolisticTraceAnalysis/alexnet_critical_path.json.gz",
    "facebookresearch__HolisticTraceAnalysis/cuda_event_sync_multi_stream.json.gz",
    "facebookresearch__param/v100_dlrm_8rank/rank1.json.gz",
    "sidnb13__torch-profiling-tutorial/h100_transformer.json.gz",
    "tugot17__tokenomics-from-first-principles/rtx4090x2_llama_tp_rank0.json.gz",
)
WITH_SYNC_ROWS = NAMES[:2]
Spans = list[tuple[int, int]]


@dataclass(frozen=True)
class Event:
    category: str
    name: str
    start: int
    end: int
    args: dict[str, Any]


@dataclass(frozen=True)
class Case:
    """One file as its raw events, and as a run; each has one device."""

    events: list[Event]
    run: Run

    def spans(self, *categories: str, talking: bool | None = None) -> Spans:
        """Intervals of these categories; with `talking`, those of communication kernels or of the others."""
        return [
            (event.start, event.end)
            for event in self.events
            if event.category in categories and talking in (None, bool(re.search("(?i)nccl", event.name)))
        ]

    @property
    def on_stream(self) -> Spans:
        """What HTA takes for device activity: every row with a stream."""
        return [(event.start, event.end) for event in self.events if int(event.args.get("stream", -1)) >= 0]

    def whole(self) -> dict[str, int]:
        (row,) = analyze(self.run, "gpu_breakdown").tables["whole"].to_dict("records")
        return row


def union(*parts: Spans) -> int:
    total, reached = 0, -(10**30)
    for start, end in sorted(span for part in parts for span in part):
        total += max(0, end - max(start, reached))
        reached = max(reached, end)
    return total


def without(part: Spans, *others: Spans) -> int:
    """Length of what the part covers and no other does."""
    return union(part, *others) - union(*others)


def total(*parts: Spans) -> int:
    spans = [span for part in parts for span in part]
    return max(end for _, end in spans) - min(start for start, _ in spans)


@pytest.fixture(scope="module")
def cases(shared_runs: SharedRuns) -> dict[str, Case]:
    if not TRACES.is_dir():
        pytest.skip(f"no recorded traces at {TRACES}: other tools' definitions were not checked")
    found = {}
    for name in NAMES:
        document = json.loads(gzip.decompress((TRACES / name).read_bytes()), parse_float=Decimal)
        found[name] = Case(
            [_event(raw) for raw in document["traceEvents"] if raw.get("ph") == "X"],
            shared_runs.of(TRACES / name),
        )
    return found


def _event(raw: dict[str, Any]) -> Event:
    start = int(Decimal(raw["ts"]) * 1000)
    end = start + int(Decimal(raw.get("dur", 0)) * 1000)
    return Event(raw.get("cat", ""), raw["name"], start, end, raw.get("args", {}))


each = pytest.mark.parametrize("name", NAMES)
BUSY = ("kernel", "gpu_memcpy", "gpu_memset")


@each
def test_hta_idle_time_but_for_waits_counted_as_work(name: str, cases: dict[str, Case]) -> None:
    """HTA: total = last end − first start over rows with a stream; idle = total − their union.

    It counts `cuda_sync` rows, which are waits, as busy; and rounds every event to whole microseconds, which
    this computation of it does not.
    """
    case, ours = cases[name], cases[name].whole()
    waits = case.spans("cuda_sync")
    assert bool(waits) == (name in WITH_SYNC_ROWS)
    busy = case.spans(*BUSY)
    hta_idle = total(case.on_stream) - union(case.on_stream)
    if not waits:
        assert (total(case.on_stream), hta_idle) == (ours["window_ns"], ours["idle_ns"])
        return
    assert without(case.on_stream, busy) > 0
    window = total(busy)
    assert ours["idle_ns"] == window - union(busy)
    assert hta_idle == total(case.on_stream) - union(busy) - without(case.on_stream, busy)


@each
def test_hta_compute_time_is_active_time_without_communication(name: str, cases: dict[str, Case]) -> None:
    """HTA's compute is the union of kernels that neither communicate nor move memory."""
    case, ours = cases[name], cases[name].whole()
    compute = union(case.spans("kernel", talking=False))
    assert compute == ours["active_ns"] - ours["communication_exposed_ns"]


@each
def test_tracelens_exposed_parts(name: str, cases: dict[str, Case]) -> None:
    """TraceLens: computation |C| with memsets in it, exposed communication |M∖C|, exposed memcpy |(P∖C)∖M|.

    Here a memset is movement, so the two agree once memsets are put where TraceLens has them.
    """
    case, ours = cases[name], cases[name].whole()
    compute = case.spans("kernel", talking=False) + case.spans("gpu_memset")
    talk, copies = case.spans("kernel", talking=True), case.spans("gpu_memcpy")
    parts = (union(compute), without(talk, compute), without(copies, compute, talk))
    assert sum(parts) == union(compute, talk, copies) == ours["active_ns"] + ours["movement_ns"]
    assert parts[2] <= ours["movement_ns"] <= parts[2] + ours["memset_sum_ns"]
    if not case.spans("gpu_memset"):
        assert parts[1:] == (ours["communication_exposed_ns"], ours["movement_ns"])


@each
def test_torchexpert_takes_overlap_away_twice(name: str, cases: dict[str, Case]) -> None:
    """TorchExpert: active = busy − Σ copies. A copy behind a kernel is then taken from the kernel's time."""
    case, ours = cases[name], cases[name].whole()
    copies = case.spans("gpu_memcpy", "gpu_memset")
    theirs = union(case.spans(*BUSY)) - sum(end - start for start, end in copies)
    hidden_or_counted_twice = ours["memcpy_sum_ns"] + ours["memset_sum_ns"] - ours["movement_ns"]
    assert ours["active_ns"] - theirs == hidden_or_counted_twice >= 0


@each
def test_tensorboard_slots_kernel_then_memcpy_then_memset(name: str, cases: dict[str, Case]) -> None:
    """The TensorBoard plugin gives each instant of a step to the first of kernel, memcpy, memset, ...

    Its memcpy and memset slots are together this project's movement; it takes the step as its host marker,
    this project to the end of the device's work, so the comparison is over the capture.
    """
    case, ours = cases[name], cases[name].whole()
    kernels, copies, sets = (case.spans(kind) for kind in BUSY)
    assert union(kernels) == ours["active_ns"]
    assert without(copies, kernels) + without(sets, kernels, copies) == ours["movement_ns"]


@each
def test_nsys_utilization_can_exceed_the_whole_and_unions_cannot(name: str, cases: dict[str, Case]) -> None:
    """The nsys rule sums concurrent operations; ours over the same window is at most 1."""
    case, ours = cases[name], cases[name].whole()
    summed = sum(end - start for start, end in case.spans(*BUSY))
    assert ours["kernel_sum_ns"] + ours["memcpy_sum_ns"] + ours["memset_sum_ns"] == summed
    assert ours["active_ns"] + ours["movement_ns"] <= min(summed, ours["window_ns"])


@each
def test_hta_launch_delay_pairs_are_linked_by_correlation(name: str, cases: dict[str, Case]) -> None:
    """Every device event whose correlation a runtime call carries is linked to that call here too."""
    case = cases[name]
    calls = {
        event.args["correlation"]: event.name
        for event in case.events
        if event.category in {"cuda_runtime", "cuda_driver"} and "correlation" in event.args
    }
    expected = sum(event.category in BUSY and event.args["correlation"] in calls for event in case.events)
    rows = case.run.table("device_intervals", columns=[C.KIND, C.LAUNCH_ROW])
    assert rows.loc[~rows[C.KIND].isin(["idle", "sync"]), C.LAUNCH_ROW].notna().sum() == expected
