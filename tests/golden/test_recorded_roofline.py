"""Recorded traces: FLOPs equal those worked out by hand from the published architectures."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tracekit.analysis import Result, analyze
from tracekit.runs.devices import find_device
from tracekit.schema import C

if TYPE_CHECKING:
    from tests.shared_runs import SharedRuns

TRACES = Path(__file__).parents[2] / ".." / "shared" / "traces"
there = pytest.mark.skipif(not TRACES.is_dir(), reason=f"no recorded traces at {TRACES}")


def found(shared_runs: SharedRuns, name: str) -> Result:
    return analyze(shared_runs.of(TRACES / name), "roofline")


def flops(result: Result, op: str) -> int:
    families = result.tables["families"].set_index("op")
    return int(families.loc[op, C.FLOPS])


def resnet18() -> list[int]:
    """Multiply-adds of each convolution for one image of 224×224, the first layer first."""
    layers = [112**2 * 64 * 3 * 49]
    channels, width = 64, 56
    for block in range(4):
        inputs, size = channels, (width, channels)
        if block:
            channels, width = 2 * channels, width // 2
            size = (width, channels)
            layers.append(width**2 * channels * inputs)  # the shortcut, 1×1
        pixels, wide = size[0] ** 2, size[1]
        layers += [pixels * wide * inputs * 9, *([pixels * wide * wide * 9] * 3)]
    return layers


@there
def test_resnet18_has_the_flops_of_its_layers_forward_and_backward(shared_runs: SharedRuns) -> None:
    result = found(shared_runs, "AMD-AGI__TraceLens/mi300x_ddp_resnet18.json.gz")
    images, layers = 5 * 512, resnet18()
    assert flops(result, "aten::_convolution") == 2 * images * sum(layers)
    assert flops(result, "aten::convolution_backward") == 2 * images * (2 * sum(layers) - layers[0])
    assert result.tables["summary"]["uncounted_ns"].tolist() == [0]
    assert (result.tables["ops"]["precision"] == "bf16").mean() > 0.9
    (whole,) = result.tables["summary"].to_dict("records")
    total = 2 * images * (3 * sum(layers) - layers[0] + 3 * 512 * 1000)
    assert whole[C.FLOPS] == total
    assert whole["mfu"] == pytest.approx(total / 1_307_400 / whole["window_ns"])


@there
def test_a_transformer_layer_has_the_flops_of_its_products_in_tf32(shared_runs: SharedRuns) -> None:
    result = found(shared_runs, "sidnb13__torch-profiling-tutorial/h100_transformer.json.gz")
    batch, length, wide, hidden = 16, 128, 512, 2048
    projections = 2 * batch * length * wide * (3 * wide + wide + 2 * hidden)
    attention = 2 * 2 * batch * length * length * wide
    assert result.tables["per_step"][C.FLOPS].tolist() == [projections + attention] * 3
    ops = result.tables["ops"]
    assert set(ops.loc[ops["op"].isin(["aten::addmm", "aten::mm"]), "precision"]) == {"tf32"}


@there
def test_fused_attention_of_a_small_bert(shared_runs: SharedRuns) -> None:
    result = found(shared_runs, "AMD-AGI__TraceLens/h100_bert_small.json.gz")
    layers, heads, length, deep = 4, 8, 141, 64
    assert flops(result, "aten::_scaled_dot_product_flash_attention") == layers * 4 * heads * length**2 * deep


@there
def test_the_work_of_convolutions_without_strides_is_unknown_not_zero(shared_runs: SharedRuns) -> None:
    result = found(shared_runs, "pytorch__kineto/resnet50_w0_torch19.json.gz")
    (whole,) = result.tables["summary"].to_dict("records")
    assert whole["uncounted_ns"] > 0.3 * whole["window_ns"]
    assert whole["mfu"] != whole["mfu"]
    assert not result.tables["families"]["op"].str.contains("conv").any()
    assert any("MFU is missing" in note for note in result.notes)


RECORDED = {
    "AMD-AGI__TraceLens/b200_eager_r0of8.json.gz": "B200",
    "AMD-AGI__TraceLens/b300_sglang_qwen3_decode_cudagraph.json.gz": "B300",
    "AMD-AGI__TraceLens/mi210_gpu_only.json.gz": "MI210",
    "AMD-AGI__TraceLens/mi300x_ddp_resnet18.json.gz": "MI300X",
    "KellerJordan__modded-nanogpt/h100_h2dprefetch_rank0.json.gz": "H100 SXM",
    "Yeok-c__sustainbench/a5000_infer_pageable.json.gz": "RTX A5000",
    "facebookresearch__HolisticTraceAnalysis/alexnet_critical_path.json.gz": "A100 40 GB",
    "facebookresearch__HolisticTraceAnalysis/amd_mi250_minitoy_train.json.gz": "MI250",
    "facebookresearch__HolisticTraceAnalysis/ns_resolution_v100.json.gz": "V100 SXM2",
    "facebookresearch__param/linear_relu_2080ti.json.gz": "GeForce RTX 2080 Ti",
    "harrisonvshen__triton-accelerated-attention/rtx3060_no_gpu_events.json.gz": None,  # a laptop's
    "pytorch__benchmark/h2d_pinned_a100.json.gz": "A100 40 GB",
    "pytorch__kineto/cudagraph_after_fix.json.gz": None,  # an H100 with 96 GB
    "pytorch__kineto/resnet50_w0_torch19.json.gz": "V100 SXM2",
    "tugot17__tokenomics-from-first-principles/rtx4090x2_llama_tp_rank0.json.gz": "GeForce RTX 4090",
}


@there
@pytest.mark.parametrize("name", RECORDED)
def test_recorded_devices_have_the_peaks_of_their_kind(name: str) -> None:
    with gzip.open(TRACES / name, "rt", errors="replace") as stream:
        head = stream.read(400_000)
    gpu = json.JSONDecoder().raw_decode(head[head.index("[", head.index('"deviceProperties"')) :])[0][0]
    device = find_device(gpu["name"], gpu["numSms"], gpu["totalGlobalMem"])
    assert (device.name if device else None) == RECORDED[name]
