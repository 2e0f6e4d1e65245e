"""Recorded traces of inference servers: phase, batch and tokens of their steps, and the device in them.

The traces are other projects' and not part of this one; where they are absent the tests are skipped.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.golden.test_planted import length
from tests.golden.test_recorded_memory_ranks import events, spans
from tests.golden.test_truth import TRACES
from tracekit.analysis import analyze
from tracekit.schema import C

if TYPE_CHECKING:
    from tests.shared_runs import SharedRuns

FOLDER = "AMD-AGI__TraceLens"
STEPS = [
    (f"{FOLDER}/serving/sglang_decode/execution.json.gz", 32, 465_716_634),
    (f"{FOLDER}/vllm_decode_full_hipgraph.json.gz", 32, 2_408_598),
    (f"{FOLDER}/b300_sglang_qwen3_decode_cudagraph.json.gz", 16, 3_692_311),
]
CAPTURES = [
    (f"{FOLDER}/serving/sglang_decode/capture_bs32_rank0.json.gz", ["ProfilerStep#134"]),
    (f"{FOLDER}/serving/vllm_decode_full/capture_rank0.json.gz", []),
]

pytestmark = pytest.mark.skipif(not TRACES.is_dir(), reason=f"no recorded traces at {TRACES}")


@pytest.mark.parametrize(("name", "batch", "host_ns"), STEPS)
def test_a_decode_step_is_read_once(name: str, batch: int, host_ns: int, shared_runs: SharedRuns) -> None:
    """Two of the traces have a range of each form, one within the other."""
    tables = analyze(shared_runs.of(TRACES / name), "serving").tables
    (step,) = tables["steps"].to_dict("records")
    assert (step[C.PHASE], step[C.REQUESTS]) == ("decode", batch)
    assert (step[C.CONTEXT_REQUESTS], step[C.GENERATION_REQUESTS]) == (0, batch)
    assert (step[C.CONTEXT_TOKENS], step[C.GENERATION_TOKENS]) == (0, batch)
    assert step["host_ns"] == host_ns
    (group,) = tables["by_batch"].to_dict("records")
    assert (group[C.PHASE], group[C.REQUESTS], group["count"]) == ("decode", batch, 1)


@pytest.mark.parametrize("name", [name for name, *_ in STEPS[:2]])
def test_the_device_window_is_that_of_the_events(name: str, shared_runs: SharedRuns) -> None:
    """All device work of these traces is launched in their step."""
    trace = events(TRACES / name)
    work = [span for category in ("kernel", "gpu_memcpy") for _, span in spans(trace, category)]
    (step,) = analyze(shared_runs.of(TRACES / name), "serving").tables["steps"].to_dict("records")
    window = max(end for _, end in work) - min(start for start, _ in work)
    assert (step["device_span_ns"], step["device_busy_ns"]) == (window, length(work))
    assert step["device_idle_ns"] == window - length(work)


@pytest.mark.parametrize(("name", "steps"), CAPTURES)
def test_the_capture_of_a_graph_is_no_step_of_a_server(
    name: str, steps: list[str], shared_runs: SharedRuns
) -> None:
    run = shared_runs.of(TRACES / name)
    assert run.table("steps")[C.NAME].tolist() == steps
    assert analyze(run, "serving").tables == {}
