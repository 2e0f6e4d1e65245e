"""Graph replays of recorded serving traces, against TraceLens' tables of the same traces.

The tables agree, but for kernels that no op launched: TraceLens gives them to their launching call, tracekit
leaves their op unknown. TraceLens also removes the numbers that sglang's profiler adds to names of ranges.
"""

from __future__ import annotations

import csv
import re
from collections import defaultdict
from typing import TYPE_CHECKING

import pandas as pd
import pytest
from click.testing import CliRunner

from tests.golden.test_truth import TRACES
from tracekit.analysis import analyze
from tracekit.cli.main import cli
from tracekit.errors import UnusableInputError
from tracekit.ingest.importer import import_each
from tracekit.runs.run import Run
from tracekit.schema import BUSY_KINDS, C

if TYPE_CHECKING:
    from pathlib import Path

    from tests.shared_runs import SharedRuns
    from tracekit.runs.store import Store

FOLDER = TRACES / "AMD-AGI__TraceLens"
VLLM, VLLM_CAPTURE = "vllm_decode_full_hipgraph.json.gz", "serving/vllm_decode_full/capture_rank0.json.gz"
SGLANG, SGLANG_CAPTURE = (
    "serving/sglang_decode/execution.json.gz",
    "serving/sglang_decode/capture_bs32_rank0.json.gz",
)
EAGER_DECODE = "b300_sglang_qwen3_decode_cudagraph.json.gz"
CALLS = {"hipLaunchKernel", "hipModuleLaunchKernel"}
"""Rows of TraceLens for kernels that no op launched."""

pytestmark = pytest.mark.skipif(not TRACES.is_dir(), reason=f"no recorded traces at {TRACES}")

Counts = dict[str, tuple[int, float]]


def imported(store: Store, name: str, capture: str) -> Run:
    (run,) = import_each(store, [FOLDER / name], captures=[FOLDER / capture])
    assert isinstance(run, Run)
    return run


def work(run: Run) -> pd.DataFrame:
    rows = run.table("device_intervals")
    return rows[rows[C.KIND].isin([str(kind) for kind in BUSY_KINDS])]


def reference(folder: str) -> Counts:
    """Calls and direct kernel time (µs) of each op, summed over its modules."""
    found: dict[str, tuple[int, float]] = defaultdict(lambda: (0, 0.0))
    with (FOLDER / "serving" / folder / "reference" / "ops_summary.csv").open(newline="") as stream:
        for row in csv.DictReader(stream):
            count, time = found[row["name"]]
            direct = float(row["total_direct_kernel_time_sum"])
            found[row["name"]] = count + int(row["Count"]), time + direct
    return dict(found)


def own(run: Run) -> Counts:
    """Calls that launched device work, and its time (µs), of each op of a run."""
    rows = work(run)
    host = run.table("host_intervals", columns=[C.ROW_ID, C.NAME]).set_index(C.ROW_ID)
    found: dict[str, tuple[set[tuple[str, int]], int]] = defaultdict(lambda: (set(), 0))
    columns = [C.OP_ROW, C.CAPTURED_OP, C.CAPTURED_CALL, C.DUR_NS]
    for row, captured, number, duration in rows[columns].itertuples(index=False, name=None):
        if not pd.isna(row):
            name, call = str(host.loc[row, C.NAME]), ("host", int(row))
        elif isinstance(captured, str):
            name, call = captured, ("capture", int(number))
        else:
            continue
        calls, time = found[name]
        found[name] = calls | {call}, time + int(duration)
    return {name: (len(calls), time / 1000) for name, (calls, time) in found.items()}


def owned_share(run: Run) -> float:
    rows = work(run)
    owned = rows[C.OP_ROW].notna() | rows[C.CAPTURED_OP].notna()
    return float(rows.loc[owned, C.DUR_NS].sum() / rows[C.DUR_NS].sum())


def test_every_kernel_of_the_replay_has_the_op_of_the_reference_on_vllm(store: Store) -> None:
    run = imported(store, VLLM, VLLM_CAPTURE)
    assert work(run)[C.CAPTURED_OP].notna().sum() == 421
    assert owned_share(run) == 1
    wanted, found = reference("vllm_decode_full"), own(run)
    assert {name: count for name, (count, _) in found.items()} == {
        name: count for name, (count, _) in wanted.items()
    }
    assert (found["vllm::moe_forward"][0], found["aten::addmm"][0]) == (24, 72)
    assert found["vllm::unified_attention_with_output"][0] == 24
    for name, (_, time) in wanted.items():
        assert found[name][1] == pytest.approx(time, abs=0.05), name


def test_captures_beside_the_execution_give_its_kernels_ops_on_sglang(shared_runs: SharedRuns) -> None:
    run = shared_runs.of(FOLDER / SGLANG)
    assert work(run)[C.CAPTURED_OP].notna().sum() == 544
    assert owned_share(run) > 0.99
    wanted, found = reference("sglang_decode"), own(run)
    found = {re.sub(r"(sglang_profiler::\w+?)_\d+$", r"\1", name): value for name, value in found.items()}
    assert {name: count for name, (count, _) in found.items()} == {
        name: count for name, (count, _) in wanted.items() if name not in CALLS
    }
    for name, (_, time) in wanted.items():
        if name not in CALLS:
            assert found[name][1] == pytest.approx(time, abs=0.05), name


def test_modules_are_those_of_the_reference_on_sglang(shared_runs: SharedRuns) -> None:
    ops = analyze(shared_runs.of(FOLDER / SGLANG), "graphs").tables["ops"]
    by_module = ops.groupby("module")[["calls", "sum_ns"]].sum()
    wanted: dict[str, tuple[int, float]] = defaultdict(lambda: (0, 0.0))
    with (FOLDER / "serving/sglang_decode/reference/ops_summary.csv").open(newline="") as stream:
        for row in csv.DictReader(stream):
            module = row["parent_module"].removeprefix("nn.Module: ")
            count, time = wanted[module]
            wanted[module] = count + int(row["Count"]), time + float(row["total_direct_kernel_time_sum"])
    del wanted["NA"], wanted["Sampler"]  # launched outside of the graph
    assert by_module["calls"].to_dict() == {module: count for module, (count, _) in wanted.items()}
    for module, (_, time) in wanted.items():
        assert by_module.loc[module, "sum_ns"] / 1000 == pytest.approx(time, abs=0.05), module


@pytest.mark.slow_except(1)
@pytest.mark.parametrize(
    ("name", "capture", "first"),
    [
        (VLLM, SGLANG_CAPTURE, "kernel 1 is triton_poi_fused_0, expected void at::native::vectorized_gather"),
        (SGLANG, VLLM_CAPTURE, "expected triton_poi_fused_0"),
    ],
)
def test_the_capture_of_another_engine_is_refused(store: Store, name: str, capture: str, first: str) -> None:
    run = imported(store, name, capture)
    assert work(run)[C.CAPTURED_OP].isna().all()
    (refused,) = [one for one in run.meta.diagnostics if one.code == "graph_capture_differs"]
    assert first in refused.message


@pytest.mark.slow
def test_layers_are_those_of_the_models(shared_runs: SharedRuns, store: Store) -> None:
    """Qwen3-8B has 36 layers, Qwen3-30B-A3B 48; of gpt-oss' 24, every other one attends to a window."""
    runs = {
        36: shared_runs.of(FOLDER / SGLANG),
        48: shared_runs.of(FOLDER / EAGER_DECODE),
        11: imported(store, VLLM, VLLM_CAPTURE),
    }
    for repeats, run in runs.items():
        structure = analyze(run, "graphs").tables["structure"].set_index("part")
        assert structure.loc["layers", "repeats"] == repeats
        assert structure.loc["layers", "share"] > 0.9


def test_attributed_time_rises_from_that_of_ops_outside_the_graph(shared_runs: SharedRuns) -> None:
    """Without the captures 0.1 ms of 9.8 ms have an op on sglang, and 0.3 ms of 10.7 ms on vLLM."""
    rows = work(shared_runs.of(FOLDER / SGLANG))
    eager = int(rows.loc[rows[C.OP_ROW].notna(), C.DUR_NS].sum())
    captured = int(rows.loc[rows[C.CAPTURED_OP].notna(), C.DUR_NS].sum())
    assert (eager, captured, int(rows[C.DUR_NS].sum())) == (104_627, 9_656_404, 9_778_614)


def test_a_capture_can_be_named_on_a_raw_trace(store: Store, tmp_path: Path) -> None:
    arguments = ["analyze", str(FOLDER / VLLM), "graphs", "--table", "ops", "--format", "csv"]
    chosen = ["--capture-trace", str(FOLDER / VLLM_CAPTURE), "--store", str(store.path)]
    printed = CliRunner().invoke(cli, [*arguments, *chosen])
    assert printed.exit_code == 0, printed.output
    assert "vllm::moe_forward,GraphModule,24,72," in printed.stdout
    again = CliRunner().invoke(cli, [*arguments, "--store", str(store.path)])
    assert "vllm::moe_forward" not in again.stdout
    assert len(store.readable()) == 2
    absent = CliRunner().invoke(cli, [*arguments, "--capture-trace", str(tmp_path / "none.json")])
    assert isinstance(absent.exception, UnusableInputError)
