from __future__ import annotations

import gzip
import json
from collections import defaultdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from tracekit.analyses.lifetimes import BEFORE, BY, MOST, NO_MODULE, REST, UNKNOWN
from tracekit.analyses.memory import NO_ADDRESSES, NO_EVENTS
from tracekit.analyses.shared.programs import no_modules

from tests.builders import Row, host, make_run
from tracekit.analysis import analyze
from tracekit.schema import C, HostKind, Phase

if TYPE_CHECKING:
    import pandas as pd

    from tests.shared_runs import SharedRuns
    from tracekit.runs.run import Run

SAMPLE = Path(__file__).parents[3] / "samples" / "recorded" / "gpt-train-stacks-cpu" / "trace.json.gz"


def event(t: int, size: int, address: int, total: int, op: int | None = None) -> Row:
    """One event on device 0, with the total after it."""
    more = {C.TOTAL_ALLOCATED: total, C.TOTAL_RESERVED: 9_000, C.OP_ROW: op}
    return {C.T_NS: t, C.BYTES: size, C.ADDRESS: address, **more}


def phased(name: str, start: int, end: int, phase: Phase, **more: Any) -> Row:
    return host(name, start, end, **{C.PHASE: str(phase)}, **more)


def training(path: Path) -> Run:
    """A step in whose phases memory is allocated that outlives them, and that does not."""
    return make_run(
        path,
        host_intervals=[
            phased("load", 0, 10, Phase.DATALOAD),  # 0
            host("nn.Module: Net_0", 10, 30, kind=HostKind.PYTHON, **{C.PHASE: str(Phase.FORWARD)}),  # 1
            phased("mm", 10, 30, Phase.FORWARD, parent_row=1, sequence=4, fwd_tid=0),  # 2
            phased("MmBackward0", 30, 50, Phase.BACKWARD, tid=2, sequence=4, fwd_tid=1),  # 3
            phased("adam", 60, 80, Phase.OPTIMIZER),  # 4
            host("other", 80, 90),  # 5
        ],
        allocations=[
            event(1, 1, 10, 1_001, 0),  # input: freed in the forward pass
            event(11, 2, 20, 1_003, 2),  # temporary: freed when the backward pass begins
            event(12, 4, 30, 1_007, 2),  # activation: freed in the backward pass
            event(13, -1, 10, 1_006),
            event(30, -2, 20, 1_004),
            event(31, 8, 40, 1_012, 3),  # temporary: freed in the backward pass
            event(32, 16, 50, 1_028, 3),  # gradient: freed in the optimizer
            event(33, -4, 30, 1_024),
            event(34, -8, 40, 1_016),
            event(61, 32, 60, 1_048, 4),  # optimizer state: never freed
            event(62, 64, 70, 1_112, 4),  # temporary
            event(63, -64, 70, 1_048),
            event(64, -16, 50, 1_032),
            event(65, -300, 80, 732),  # allocated before the capture
            event(81, 128, 90, 860, 5),  # unknown
        ],
    )


def records(frame: pd.DataFrame, *columns: str) -> list[list[Any]]:
    return frame[list(columns)].astype(object).where(frame[list(columns)].notna(), None).values.tolist()


def test_each_allocation_has_its_life_op_module_and_category(tmp_path: Path) -> None:
    lives = analyze(training(tmp_path), "lifetimes").tables["lifetimes"]
    columns = ("size", C.START_NS, "freed_ns", "life_ns", "edge", "op", C.MODULE, "category", "host_row")
    assert records(lives, *columns) == [
        [700, 1, None, 80, "start and end", BEFORE, BEFORE, BEFORE, None],
        [300, 1, 65, 64, "start", BEFORE, BEFORE, BEFORE, None],
        [128, 81, None, 0, "end", "other", NO_MODULE, "unknown", 5],
        [64, 62, 63, 1, "", "adam", NO_MODULE, "temporary", 4],
        [32, 61, None, 20, "end", "adam", NO_MODULE, "optimizer state", 4],
        [16, 32, 64, 32, "", "MmBackward0", "Net_0", "gradient", 3],
        [8, 31, 34, 3, "", "MmBackward0", "Net_0", "temporary", 3],
        [4, 12, 33, 21, "", "mm", "Net_0", "activation", 2],
        [2, 11, 30, 19, "", "mm", "Net_0", "temporary", 2],
        [1, 1, 13, 12, "", "load", NO_MODULE, "input", 0],
    ]
    assert lives["at_peak"].tolist() == [700, 300, 0, 64, 32, 16, 0, 0, 0, 0]


def test_the_peak_is_parted_exactly(tmp_path: Path) -> None:
    run = training(tmp_path)
    tables = analyze(run, "lifetimes").tables
    assert analyze(run, "memory").tables["summary"]["peak_allocated"].tolist() == [1_112]
    assert records(tables["peak"], "by", C.NAME, "at_peak", "allocations") == [
        ["category", BEFORE, 1_000, None],
        ["category", "temporary", 64, 1],
        ["category", "optimizer state", 32, 1],
        ["category", "gradient", 16, 1],
        ["module", BEFORE, 1_000, None],
        ["module", NO_MODULE, 96, 2],
        ["module", "Net_0", 16, 1],
        ["op", BEFORE, 1_000, None],
        ["op", "adam", 96, 2],
        ["op", "MmBackward0", 16, 1],
    ]


def test_the_rest_is_one_row_and_layers_sum_to_what_is_allocated(tmp_path: Path) -> None:
    """2,000 allocations of growing size, none of which is freed; the largest get rows of their own."""
    count = 2 * MOST
    total, events = 0, []
    for size in range(1, count + 1):
        total += size
        events.append(event(size, size, size, total))
    tables = analyze(make_run(tmp_path, allocations=events), "lifetimes").tables
    lives, active = tables["lifetimes"], tables["active"]
    assert records(lives.tail(1), "size", "at_peak", "op", "allocations") == [
        [MOST * (MOST + 1) // 2, MOST * (MOST + 1) // 2, REST, MOST]
    ]
    assert lives["size"].sum() == lives["at_peak"].sum() == total
    assert lives["allocations"].sum() == count
    layers = active.columns[active.columns.get_loc("others") + 1 :]
    assert (active["largest"] + active[layers].sum(axis=1) == active["allocated"]).all()
    drawn = int(lives["in_active"].sum())
    assert active["largest"].iloc[-1] == sum(range(count - drawn + 1, count + 1))


def test_what_is_missing_is_said(tmp_path: Path) -> None:
    assert analyze(make_run(tmp_path / "none"), "lifetimes").notes == (NO_EVENTS,)
    bare = make_run(tmp_path / "bare", allocations=[{C.T_NS: 1, C.BYTES: 5}])
    assert analyze(bare, "lifetimes").notes == (NO_ADDRESSES,)
    run = make_run(tmp_path / "plain", allocations=[event(1, 5, 1, 5)])
    plain = analyze(run, "lifetimes")
    assert plain.notes == (no_modules(run),)
    assert set(plain.tables["peak"].query("by == 'module'")[C.NAME]) == {UNKNOWN}


@pytest.mark.parametrize("by", BY)
def test_a_recorded_peak_is_that_of_the_events(by: str, shared_runs: SharedRuns) -> None:
    """The events of the trace, replayed here, give the same bytes in use at the peak."""
    peak = analyze(shared_runs.of(SAMPLE), "lifetimes").tables["peak"]
    assert int(peak.loc[peak["by"] == by, "at_peak"].sum()) == replayed_peak()


def replayed_peak() -> int:
    events = json.loads(gzip.decompress(SAMPLE.read_bytes()))["traceEvents"]
    memory = [one for one in events if one.get("name") == "[memory]"]
    live: dict[int, int] = defaultdict(int)
    peak = 0
    for one in sorted(memory, key=lambda one: float(one["ts"])):
        live[one["args"]["Addr"]] += one["args"]["Bytes"]
        peak = max(peak, sum(live.values()))
    return peak


def test_gradients_of_a_recorded_step_are_as_large_as_the_parameters(shared_runs: SharedRuns) -> None:
    peak = analyze(shared_runs.of(SAMPLE), "lifetimes").tables["peak"]
    gradients = peak[(peak["by"] == "category") & (peak[C.NAME] == "gradient")]
    width, vocabulary, context, blocks = 768, 50_257, 1_024, 2
    block = 12 * width * width + 13 * width
    parameters = width * (vocabulary + context) + blocks * block + 2 * width
    assert gradients["at_peak"].tolist() == [4 * parameters]
