from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pytest

from samples.simulator import Program, trace
from samples.simulator.planted.graphs import BATCH, LAYER, LAYERS, STEPS, capture, kernels, replay
from tests.traces import table
from tracekit.errors import UnusableInputError
from tracekit.ingest.importer import import_each, import_traces
from tracekit.ingest.kineto import captures
from tracekit.ingest.kineto.captures import Capture, Launch
from tracekit.ingest.link.graphs import launches_graph
from tracekit.ingest.link.replays import Candidate, Difference, Replays
from tracekit.ingest.spool.text_columns import Strings
from tracekit.runs.run import Run
from tracekit.schema import C, DeviceKind

if TYPE_CHECKING:
    from pathlib import Path

    from tracekit.runs.store import Store

COLUMNS = [C.CAPTURED_OP, C.CAPTURED_CALL, C.CAPTURED_PATH, C.CAPTURED_MODULE, C.CAPTURED_SHAPES]


def imported(store: Store, replayed: Program, *captured: Program) -> Run:
    folder = store.path.parent
    folder.mkdir(exist_ok=True)
    paths = [folder / f"capture{number}.json" for number in range(len(captured))]
    for path, program in zip(paths, captured, strict=True):
        path.write_bytes(trace(program))
    own = folder / "replay.json"
    own.write_bytes(trace(replayed))
    (run,) = import_each(store, [own], captures=paths)
    assert isinstance(run, Run)
    return run


def messages(run: Run) -> dict[str, str]:
    return {found.code: found.message for found in run.meta.diagnostics}


def test_kernels_of_every_replay_belong_to_the_ops_that_captured_them(store: Store) -> None:
    run = imported(store, replay(), capture())
    rows = table(run, "device_intervals")
    graph = rows[rows[C.GRAPH_ID].notna()]
    assert len(graph) == STEPS * len(kernels())
    assert graph[C.CAPTURED_OP].notna().all()
    assert rows.loc[rows[C.GRAPH_ID].isna(), COLUMNS].isna().all(axis=None)
    first = graph[graph[C.STEP] == 0].reset_index(drop=True)
    for step in range(1, STEPS):
        again = graph[graph[C.STEP] == step].reset_index(drop=True)
        assert again[COLUMNS].equals(first[COLUMNS])
    assert first.loc[0, COLUMNS[:-1]].tolist() == [
        "aten::gather",
        0,
        "nn.Module: Decoder_0 > aten::embedding",
        "nn.Module: Decoder_0",
    ]
    assert first[C.CAPTURED_SHAPES].isna().sum() == 1  # the inner op of the embedding has none
    attention = first[first[C.CAPTURED_OP] == "vllm::attention"]
    assert attention[C.CAPTURED_CALL].nunique() == LAYERS
    assert attention[C.CAPTURED_MODULE].tolist() == [
        f"nn.Module: Layer_{layer}" for layer in range(LAYERS) for _ in range(2)
    ]
    assert set(attention[C.CAPTURED_SHAPES]) == {f"[[{BATCH},64]]"}
    assert "126 of 126 kernels of 3 graph launches" in messages(run)["graph_ops"]
    assert f"capture0.json (capture_{BATCH}_FULL)" in messages(run)["graph_ops"]


def test_first_difference_is_named(store: Store) -> None:
    run = imported(store, replay(), capture(out="gemm_other"))
    assert table(run, "device_intervals")[C.CAPTURED_OP].isna().all()
    said = messages(run)["graph_capture_differs"]
    assert "3 graph launches: not a replay of capture0.json" in said
    assert "kernel 11 is gemm_out, expected gemm_other (42 kernels were replayed, 42 captured)" in said
    assert "graph_ops" not in messages(run)


@pytest.mark.parametrize(
    ("layers", "expected"),
    [
        (LAYERS - 1, f"kernel {5 * LAYERS - 3} is rms_norm_kernel, expected gemm_head"),
        (LAYERS + 1, f"kernel {5 * LAYERS + 2} is gemm_head, expected rms_norm_kernel"),
    ],
)
def test_captures_of_other_lengths_are_refused(store: Store, layers: int, expected: str) -> None:
    said = messages(imported(store, replay(), capture(layers=layers)))["graph_capture_differs"]
    assert expected in said


def test_captures_without_names_of_kernels_join_by_number(store: Store) -> None:
    run = imported(store, replay(), capture(named=False))
    named = imported(store, replay(), capture())
    columns = [table(each, "device_intervals")[COLUMNS] for each in (run, named)]
    assert columns[0].equals(columns[1])
    assert "the captured launches have no names" in messages(run)["graph_ops"]
    said = messages(imported(store, replay(), capture(named=False, layers=2)))["graph_capture_differs"]
    assert "kernel 13 is gemm_qkv, expected none (42 kernels were replayed, 12 captured)" in said


def test_the_capture_that_fits_is_chosen_and_values_that_captures_disagree_on_are_unknown(
    store: Store,
) -> None:
    run = imported(store, replay(), capture(layers=2), capture())
    assert "by capture1.json" in messages(run)["graph_ops"]
    renamed = capture()
    renamed.host = [
        event
        if event.name != "nn.Module: Layer_3"
        else type(event)(**{**vars(event), "name": "nn.Module: X"})
        for event in renamed.host
    ]
    rows = table(imported(store, replay(), capture(), renamed), "device_intervals")
    graph = rows[rows[C.GRAPH_ID].notna()]
    assert graph[C.CAPTURED_OP].notna().all()
    unknown = graph[C.CAPTURED_MODULE].isna()
    assert unknown.sum() == STEPS * len(LAYER)
    assert graph.loc[unknown, C.CAPTURED_PATH].isna().all()


def test_without_a_capture_the_columns_are_null_and_the_fact_is_told(store: Store) -> None:
    run = imported(store, replay())
    assert table(run, "device_intervals")[COLUMNS].isna().all(axis=None)
    assert "the ops of 126 kernels of 3 graph launches are unknown" in messages(run)["graph_ops_unknown"]


def test_captures_beside_a_trace_are_found_and_are_no_runs_of_their_own(store: Store, tmp_path: Path) -> None:
    folder = tmp_path / "job"
    (folder / "capture_traces").mkdir(parents=True)
    (folder / "replay.json").write_bytes(trace(replay()))
    (folder / "capture_traces" / "bs32.json").write_bytes(trace(capture()))
    details = folder / "capture_traces" / "execution_details.json"
    details.write_text('[{"file": "bs32.json", "batch_size": 32, "mode": "FULL"}]')
    (run,) = import_traces(store, [folder])
    assert "126 of 126" in messages(run)["graph_ops"]
    assert [each["name"] for each in run.meta.collector.options["captures"]] == ["bs32.json"]
    (alone,) = import_traces(store, [folder / "capture_traces" / "bs32.json"])
    assert "captures" not in alone.meta.collector.options


def test_a_trace_without_captures_is_no_capture(tmp_path: Path) -> None:
    path = tmp_path / "replay.json"
    path.write_bytes(trace(replay()))
    with pytest.raises(UnusableInputError, match="no launches that were recorded into a graph"):
        captures.read(path)


NAMES = Strings(["a", "b", "c", "__amd_rocclr_fillBufferAligned.kd", "Memset (Device)"], [])
KINDS = Strings(["kernel", "memset"], [])


def launch(names: list[int], *, streams: list[int] | None = None, nodes: list[int] | None = None) -> Replays:
    count = len(names)
    return Replays(
        row=np.arange(count),
        call=np.zeros(count, np.int64),
        name=np.array(names),
        kind=np.array([int(NAMES.values[name].startswith("Memset")) for name in names]),
        stream=np.array(streams or [7] * count),
        node=np.array(nodes or [-1] * count),
    )


def candidate(*launches: str | DeviceKind | None) -> Candidate:
    made = [
        Launch(kind=each, name=None) if isinstance(each, DeviceKind) else Launch(DeviceKind.KERNEL, each)
        for each in launches
    ]
    return Candidate(Capture("x", tuple(made)), NAMES, KINDS)


def found(match: object) -> list[int]:
    assert isinstance(match, np.ndarray)
    return match.tolist()


def test_streams_are_merged_in_the_captured_order() -> None:
    by_stream = launch([1, 0, 2], streams=[9, 7, 7])
    assert found(candidate("a", "b", "c").match(by_stream)) == [1, 0, 2]
    assert found(candidate("a", "c", "b").match(by_stream)) == [2, 0, 1]
    refused = candidate("c", "a", "b").match(by_stream)
    assert isinstance(refused, Difference)
    assert refused.text == "kernel 1 is a or b, expected c (3 kernels were replayed, 3 captured)"


def test_streams_that_could_go_on_with_the_same_kernel_are_refused_unless_nodes_are_numbered() -> None:
    names, streams = [0, 0, 1, 2], [7, 9, 7, 9]
    refused = candidate("a", "b", "a", "c").match(launch(names, streams=streams))
    assert isinstance(refused, Difference)
    assert refused.text == "a runs on 2 streams, in an order that is unknown"
    numbered = launch(names, streams=streams, nodes=[1, 3, 2, 4])
    assert found(candidate("a", "b", "a", "c").match(numbered)) == [0, 2, 1, 3]


def test_memsets_are_no_kernels_but_those_by_which_hip_sets_memory_are() -> None:
    memset = DeviceKind.MEMSET
    assert found(candidate("a", memset).match(launch([0, 4]))) == [0, 1]
    assert found(candidate("a", memset).match(launch([0, 3]))) == [0, 1]
    assert isinstance(candidate("a", memset).match(launch([0, 1])), Difference)
    assert isinstance(candidate("a", None).match(launch([0, 4])), Difference)


def test_leftover_kernels_of_a_stream_are_a_difference() -> None:
    refused = candidate("a").match(launch([0, 1], streams=[7, 9]))
    assert isinstance(refused, Difference)
    assert refused.text == "kernel 2 is b, expected none (2 kernels were replayed, 1 captured)"


def test_calls_that_launch_a_graph() -> None:
    names = ("hipGraphLaunch", "cuGraphLaunch", "cudaLaunchKernel")
    assert [launches_graph(name) for name in names] == [True, True, False]
