"""Modules of recorded traces: times sum to those of the op table, and backward ops are linked as recorded."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pandas as pd
import pyarrow.compute as pc
import pytest

from tests import tiers
from tracekit.analysis import analyze
from tracekit.analysis.modules import read_modules
from tracekit.schema import C, HostKind

if TYPE_CHECKING:
    from tests.shared_runs import SharedRuns

TRACES = Path(__file__).parents[2] / ".." / "shared" / "traces"
LENS = "AMD-AGI__TraceLens"
WITH_MODULES = {
    f"{LENS}/h100_bert_small.json.gz": ("BertLMHeadModel_0", 84),
    f"{LENS}/mi300x_bert_small.json.gz": ("BertLMHeadModel_0", 84),
    f"{LENS}/h100_owlv2.json.gz": ("Owlv2ForObjectDetection_0", 467),
    f"{LENS}/mi300x_owlv2.json.gz": ("Owlv2ForObjectDetection_0", 467),
    f"{LENS}/b200_eager_r0of8.json.gz": (None, 436),
    f"{LENS}/mi300x_ddp_resnet18.json.gz": ("ResNet_0", 68),
    f"{LENS}/b300_sglang_qwen3_decode_cudagraph.json.gz": ("Sampler_0", 1),
    f"{LENS}/vllm_decode_full_hipgraph.json.gz": ("LogitsProcessor_0", 1),
    f"{LENS}/serving/sglang_decode/execution.json.gz": ("Sampler_0", 1),
    f"{LENS}/serving/sglang_decode/capture_bs32_rank0.json.gz": (None, 508),
    f"{LENS}/serving/vllm_decode_full/capture_rank0.json.gz": ("GptOssForCausalLM_0", 3),
    "sidnb13__torch-profiling-tutorial/h100_transformer.json.gz": ("SimpleTransformerLayer_0", 11),
}
"""Traces with calls of modules: the first module of the table, and the number of nodes."""
TRAINED = f"{LENS}/mi300x_ddp_resnet18.json.gz"
there = pytest.mark.skipif(not TRACES.is_dir(), reason=f"no recorded traces at {TRACES}")


@there
@pytest.mark.parametrize("name", tiers.thinned(WITH_MODULES, default=[*WITH_MODULES][:2]))
def test_times_of_modules_sum_to_those_of_the_op_table(name: str, shared_runs: SharedRuns) -> None:
    run = shared_runs.of(TRACES / name)
    tree, ops = analyze(run, "modules").tables["tree"], analyze(run, "ops").tables["ops"]
    first, nodes = WITH_MODULES[name]
    assert len(tree) == nodes + 1
    assert first in (None, tree[C.MODULE].iloc[0])
    assert int(tree["host_self_ns"].sum()) == int(ops["host_self_ns"].sum())
    in_ops = tree["device_self_ns"] - tree["no_op_ns"]
    assert int(in_ops.sum()) == int(ops["device_self_ns"].sum())
    for side in ("host", "device"):
        roots = tree.loc[tree["parent"].isna(), f"{side}_total_ns"]
        assert int(roots.sum()) == int(tree[f"{side}_self_ns"].sum())


@there
def test_backward_ops_are_in_the_modules_of_the_forward_ops_that_the_profiler_linked(
    shared_runs: SharedRuns,
) -> None:
    run = shared_runs.of(TRACES / TRAINED)
    modules = read_modules(run)
    assert modules is not None
    where = pc.field(C.KIND) == str(HostKind.OP)
    ops = run.table("host_intervals", columns=[C.ROW_ID, C.TID, C.START_NS], where=where)
    links = _links(ops, run.meta.t0_unix_ns)
    assert len(links) == 355
    assert (modules.of(links["forward"]) == modules.of(links["backward"])).all()
    assert modules.unlinked == 0


def _links(ops: pd.DataFrame, t0_ns: int) -> pd.DataFrame:
    """Row ids of the ops that the trace's flows of category `fwdbwd` join."""
    trace: dict[str, Any] = json.loads(gzip.decompress((TRACES / TRAINED).read_bytes()), parse_float=str)
    flows = [event for event in trace["traceEvents"] if event.get("cat") == "fwdbwd"]
    base = int(trace.get("baseTimeNanoseconds", 0))
    sides = {
        phase: pd.DataFrame(
            [
                (one["id"], int(one["tid"]), _ns(str(one["ts"])) + base - t0_ns)
                for one in flows
                if one["ph"] == phase
            ],
            columns=["id", C.TID, C.START_NS],
        )
        for phase in ("s", "f")
    }
    forward = sides["s"].merge(ops, on=[C.TID, C.START_NS]).groupby("id")[C.ROW_ID].max()
    after = sides["f"].merge(ops, on=[C.TID, C.START_NS]).groupby("id")[C.ROW_ID].min()
    return pd.DataFrame({"forward": forward, "backward": after}).dropna().reset_index(drop=True)


def _ns(microseconds: str) -> int:
    whole, _, part = microseconds.partition(".")
    return int(whole) * 1000 + int((part + "000")[:3])
