"""Findings on recorded traces agree with an expert's judgement of them.

For each trace the expert lists findings that must be present and findings that must not be. The traces are
other projects' and not part of this one; where they are absent the tests are skipped.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from tests import tiers
from tests.golden.precision import VERDICTS, by_rule, judged, sentences
from tests.shared_runs import analyze, check_host_parts
from tracekit.analysis import Bottleneck, Severity, available
from tracekit.analysis.findings import advise
from tracekit.analysis.verdict import judge
from tracekit.render.findings import render
from tracekit.schema import C

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.shared_runs import SharedRuns
    from tracekit.analysis.findings import Advice

LEAST_RIGHT = 0.9
ROUNDED = 1e-6
"""Savings are whole nanoseconds per step."""
SHARED = Path(__file__).parents[2] / ".." / "shared"
FILE = SHARED / "traces" / "JUDGEMENTS.json"
_ALL: dict[str, Any] = json.loads(FILE.read_text()) if FILE.is_file() else {}
JUDGED = {name: one for name, one in _ALL.items() if "findings" in one}
REPRESENTATIVE = ("pytorch__benchmark/h2d_pinned_a100.json.gz",)
"""The trace of the default tier: a small one, with rules that most programs meet."""
BOUNDS = {f"{one.name}:{rule.code}": rule.bound for one in available() for rule in one.rules}
ANALYSES = {rule.code: one.name for one in available() for rule in one.rules}
NAMES = tiers.thinned(JUDGED, default=REPRESENTATIVE)


@pytest.mark.skipif(bool(JUDGED), reason="the judgements are there")
def test_judgements_are_absent() -> None:
    pytest.skip(f"no judgements at {FILE}: the advice was not checked")


def traces(name: str) -> tuple[Path, ...]:
    """The files of a judged run: a file or folder, or the traces of two ranks."""
    if name in FURTHER_JUDGED:
        return (FURTHER / ("nsys" if name.endswith(".sqlite") else "traces") / name,)
    known, _, ranks = name.partition(" ")
    for folder in (SHARED / "traces", SHARED / "nsys"):
        if (folder / known).exists():
            return (folder / known,)
    single = [
        SHARED / "traces" / trace
        for trace, one in _ALL.items()
        if ranks
        and trace != name
        and (one.get("see") == name or trace.startswith(known.replace("_2rank", "_rank")))
    ]
    return tuple(sorted(single))


@pytest.fixture(scope="module")
def advised(shared_runs: SharedRuns) -> Callable[[str], Advice]:
    """Gives the advice on a judged run, computed once; an analysis that fails raises."""
    named = [one.name for one in available()]
    return cache(lambda name: advise(shared_runs.of(*traces(name)), named, by=analyze))


@pytest.mark.parametrize("name", NAMES)
def test_findings_are_those_of_the_expert(name: str, advised: Callable[[str], Advice]) -> None:
    advice = advised(name)
    codes = {f"{ANALYSES[code]}:{code}" for one in advice.findings for code in one.codes}
    assert set(JUDGED[name]["must"]) - codes == set()
    excepted = {f"{ANALYSES[code]}:{code}" for code in EXCEPTIONS.get(name, {})}
    assert set(JUDGED[name]["must_not"]) & codes == excepted


MAIN = {
    "AMD-AGI__TraceLens/mi210_gpu_only.json.gz": Bottleneck.COMPUTE,
    "AMD-AGI__TraceLens/serving/sglang_decode/capture_bs32_rank0.json.gz": Bottleneck.UNKNOWN,
    "AMD-AGI__TraceLens/serving/sglang_decode/execution.json.gz": Bottleneck.COMPUTE,
    "AMD-AGI__TraceLens/serving/vllm_decode_full/capture_rank0.json.gz": Bottleneck.UNKNOWN,
    "AMD-AGI__TraceLens/vllm_decode_full_hipgraph.json.gz": Bottleneck.COMPUTE,
    "0x822a5b87__test-cuda/report1.sqlite": Bottleneck.COPIES,
    "0x822a5b87__test-cuda/report2.sqlite": Bottleneck.COPIES,
    "GindaChen__nsys-ai/mfu_2gpu_before.sqlite": Bottleneck.COMPUTE,
    "extra-p__extrap/con_kernel.sqlite": Bottleneck.COMPUTE,
    "facebookresearch__HolisticTraceAnalysis/large_integer_handmade.json.gz": Bottleneck.UNKNOWN,
    "facebookresearch__HolisticTraceAnalysis/ns_resolution_v100.json.gz": Bottleneck.COMPUTE,
    "facebookresearch__HolisticTraceAnalysis/sampled_2rank (rank0+rank1)": Bottleneck.UNKNOWN,
    "facebookresearch__HolisticTraceAnalysis/sampled_rank0of128.json.gz": Bottleneck.UNKNOWN,
    "facebookresearch__HolisticTraceAnalysis/sampled_rank1of128.json.gz": Bottleneck.UNKNOWN,
    "facebookresearch__HolisticTraceAnalysis/trace_diff_test_v100_r1of2.json.gz": Bottleneck.COPIES,
    "facebookresearch__HolisticTraceAnalysis/triton_example.json.gz": Bottleneck.UNKNOWN,
    "harrisonvshen__triton-accelerated-attention/rtx3060_no_gpu_events.json.gz": Bottleneck.UNKNOWN,
    "lighttransport__gemm/profile_no_kernels.sqlite": Bottleneck.UNKNOWN,
    "nevakrien__python_c_nvidia/report1_osrt_only.sqlite": Bottleneck.UNKNOWN,
    "pytorch__benchmark/h2d_pinned_a100.json.gz": Bottleneck.COPIES,
}
"""What the expert says first of a trace beside the rules that must speak."""


@pytest.mark.parametrize("name", NAMES)
def test_the_verdict_is_the_experts_main_statement(name: str, advised: Callable[[str], Advice]) -> None:
    verdict = advised(name).verdict
    assert verdict is not None
    assert sum(part.dur_ns for part in verdict.parts) == verdict.window_ns
    said = {BOUNDS.get(code) for code in JUDGED[name]["must"]} | {MAIN.get(name)} - {None}
    told = {verdict.bound, verdict.loss}
    if verdict.sentence.startswith("Start-up"):
        told.add(Bottleneck.HOST)  # calls that are slow at first only
    if told & LATE:
        told |= LATE  # which count together
    assert not said or told & said


LATE = {Bottleneck.LAUNCH, Bottleneck.HOST}
FURTHER = SHARED / "round3"
FURTHER_FILE = FURTHER / "JUDGEMENTS.json"
FURTHER_JUDGED: dict[str, Any] = json.loads(FURTHER_FILE.read_text()) if FURTHER_FILE.is_file() else {}
FURTHER_NAMES = tiers.thinned(FURTHER_JUDGED, default=("marcalph__kernelforge/gh200_transformer.json.gz",))
"""Runs of the third round, whose experts also judged the first sentence."""


@pytest.mark.parametrize("name", [*NAMES, *FURTHER_NAMES])
def test_every_high_finding_has_a_verdict(name: str, advised: Callable[[str], Advice]) -> None:
    """A new one is judged from the raw events first; see `precision`."""
    found = [one for one in advised(name).findings if one.finding.severity in (Severity.HIGH, Severity.WARN)]
    known = {one["code"] for one in judged().get(name, {"findings": []})["findings"]}
    assert {f"{one.analysis}:{one.finding.code}" for one in found} <= known


@pytest.mark.parametrize("name", [*NAMES, *FURTHER_NAMES])
def test_the_first_sentence_is_the_judged_one(name: str, advised: Callable[[str], Advice]) -> None:
    """One with other words is judged anew from the raw events; numbers are checked elsewhere."""
    if name not in judged():
        pytest.skip("a rank that is judged with the other one of its job")
    verdict = advised(name).verdict
    assert verdict is not None
    assert _without_numbers(verdict.sentence) == _without_numbers(judged()[name]["sentence"]["text"])


def _without_numbers(text: str) -> str:
    return re.sub(r"\d[\d,.]*", "0", text)


SENTENCES = {
    "AMD-AGI__TraceLens/mi300x_flux1_aiter_hipgraph.json.gz": (Bottleneck.COMPUTE, "MI16x16x1 (65.8%"),
    "AMD-AGI__TraceLens/mi300x_resnet_act_checkpoint_r0of8.json.gz": (Bottleneck.COMMUNICATION, ""),
    "AMD-AGI__TraceLens/mi300x_sglang_qwen3_decode_hipgraph.json.gz": (Bottleneck.COMPUTE, ""),
    "CodingPlatelets__SwitchTransformers/a100pcie_switch_moe.json.gz": (
        Bottleneck.COMPUTE,
        "ampere_sgemm_tn (89.3% of kernel time, at 70.2% of the FP32 peak",
    ),
    "andrewlala__ResNet50/t4_resnet50_infer.json.gz": (Bottleneck.LAUNCH, ""),
    "eikehmueller__NeuralPDE/rtx4090_neuralpde.json.gz": (Bottleneck.QUEUED, "late submission"),
    "facebookresearch__param/resnet_2080ti.json.gz": (Bottleneck.INPUT, "Start-up takes"),
    "gpu-mode__profiling-cuda-in-torch/a10g_square.json.gz": (Bottleneck.HOST, "in aten::normal_"),
    "harryjmoss__particle_transformer/a100pcie_particle_transformer.json.gz": (
        Bottleneck.LAUNCH,
        "in one gap of 303.15 ms",
    ),
    "incredere__gpu-profiling-pytorch-lab/t4_amp_train.json.gz": (Bottleneck.INPUT, ""),
    "marcalph__kernelforge/gh200_transformer.json.gz": (Bottleneck.LAUNCH, ""),
    "pytorch__kineto/resnet50_autograd_api_w0_2021.json.gz": (Bottleneck.COMPUTE, "Largest loss: input"),
    "sqrt57__solve-cifar10/rtx500ada_cuda13.json.gz": (Bottleneck.COMPUTE, ""),
    "willding123__Shift-Equivariant-Vision-Transformers/a4000_vit.json.gz": (
        Bottleneck.HOST,
        "Start-up takes",
    ),
    "NVIDIA__Fuser/report1_2024-12.sqlite": (Bottleneck.START_UP, "99.7% of the capture"),
    "NVIDIA__Fuser/report1_2025-03.sqlite": (Bottleneck.HOST, "Start-up takes"),
    "bwyogatama__Mordred-Deprecated/report1_a.sqlite": (Bottleneck.HOST, "in getc"),
    "AMD-AGI__TraceLens/sglang_qwen3_prefilldecode_mi300x.json.gz": (
        Bottleneck.COMPUTE,
        "excluding 493.36 ms with work from before the capture",
    ),
    "facebookresearch__HolisticTraceAnalysis/mtia_train_rank0.json.gz": (Bottleneck.COMPUTE, ""),
    "solangii__gpu-practice/cpu_operator_schema.json.gz": (Bottleneck.COMPUTE, "largest: aten::normal_"),
    "Aldo-Zhang__CS521-mp2-private/a10g_inductor.json.gz": (Bottleneck.HOST, "Start-up takes 2.65 s"),
    "GindaChen__nsys-ai/h100_2gpu_1s.sqlite": (Bottleneck.COPIES, ""),
    "KeondoPark__luxmea/legacy_autograd_profiler.json.gz": (Bottleneck.UNKNOWN, "a GPU"),
    "astra-sim__astra-sim/a100_megatron_tp8": (Bottleneck.HOST, "the CPUs of all ranks are late"),
    "facebookresearch__HolisticTraceAnalysis/negative_queue_length_a100_r0of16.json.gz": (
        Bottleneck.UNKNOWN,
        "graph",
    ),
    "marcalph__kernelforge/t4_pageable.json.gz": (Bottleneck.HOST, "in aten::normal_"),
}
"""What these experts say first, and words that the sentence must have."""


@pytest.mark.skipif(bool(FURTHER_JUDGED), reason="the judgements are there")
def test_further_judgements_are_absent() -> None:
    pytest.skip(f"no judgements at {FURTHER_FILE}: their advice was not checked")


@pytest.mark.parametrize("name", FURTHER_NAMES)
def test_the_first_sentence_names_what_bounds_the_run(name: str, shared_runs: SharedRuns) -> None:
    verdict = judge(shared_runs.of(*traces(name)), by=analyze)
    bound, words = SENTENCES[name]
    assert verdict.bound is bound
    assert words in verdict.sentence


EXCEPTIONS: dict[str, dict[str, str]] = {
    "facebookresearch__HolisticTraceAnalysis/alexnet_critical_path.json.gz": {
        "idle_slow_call": "it named the 12.8 s of the marked warm-up; now it names two cudaMalloc of the "
        "measured forward, of 14.7 and 7.1 ms, for which the device waits there",
    },
    "marcalph__kernelforge/t4_pageable.json.gz": {
        "idle_host_work": "it advised to prepare requests and no longer does: aten::normal_ runs for 26.7 of "
        "43.8 ms on the launching thread; of another run, which spends its time in the same op, this code is "
        "demanded",
    },
}
"""Codes for which a run does not follow its expert, with the reason."""


@pytest.mark.parametrize("name", FURTHER_NAMES)
def test_findings_are_those_of_the_further_experts(name: str, advised: Callable[[str], Advice]) -> None:
    codes = {code for one in advised(name).findings for code in one.codes}
    must, must_not = (
        {code.rpartition(":")[2] for code in FURTHER_JUDGED[name][key]} for key in ("must", "must_not")
    )
    excepted = set(EXCEPTIONS.get(name, {}))
    assert must - codes - excepted == set()
    assert must_not & codes - excepted == set()
    assert excepted <= (must - codes) | (must_not & codes)


MAX_TITLE, MAX_LINES = 99, 24
SAMPLES = Path(__file__).parents[2] / "samples"
FILES = sorted([*SAMPLES.glob("recorded/*/trace.json.gz"), *SAMPLES.glob("bounds/*.json.gz")])
RECORDED = tiers.thinned(
    [str(path.relative_to(SAMPLES)) for path in FILES], default=("recorded/gpt-train-cuda/trace.json.gz",)
)
CLAIMED_IN_PARTS = (Bottleneck.LAUNCH, Bottleneck.HOST, Bottleneck.INPUT, Bottleneck.COMMUNICATION)
"""Bounds of which the verdict states the time that findings can claim."""


@pytest.mark.parametrize("name", RECORDED)
def test_advice_on_samples_is_short_and_claims_no_time_twice(name: str, shared_runs: SharedRuns) -> None:
    named = [one.name for one in available()]
    check_advice(advise(shared_runs.of(SAMPLES / name), named, by=analyze))


@pytest.mark.parametrize("name", RECORDED)
def test_parts_of_the_host_of_samples_sum_to_each_step(name: str, shared_runs: SharedRuns) -> None:
    check_host_parts(shared_runs.of(SAMPLES / name))


@pytest.mark.parametrize("name", [*NAMES, *FURTHER_NAMES])
def test_advice_is_short_and_claims_no_time_twice(name: str, advised: Callable[[str], Advice]) -> None:
    check_advice(advised(name))


def check_advice(advice: Advice) -> None:
    """Titles are short, a run without findings fits on a screen, and findings of one bound share no time."""
    assert max((len(one.finding.title) for one in advice.findings), default=0) <= MAX_TITLE
    printed = render("run", advice.findings, advice, "table", more="tracekit findings run --more")
    assert advice.findings or len(printed.splitlines()) <= MAX_LINES
    verdict = advice.verdict
    if verdict is None or not verdict.window_ns or "devices" in verdict.window:
        return
    aside = {Bottleneck.HOST} if "without start-up" in verdict.window else set()
    for bound in set(CLAIMED_IN_PARTS) - aside:
        claimed = sum(one.share_of_step or 0 for one in advice.findings if one.bound == bound)
        also = [Bottleneck.START_UP, Bottleneck.STRAGGLERS, Bottleneck.EDGES, Bottleneck.PROFILER]
        assert claimed <= sum(map(verdict.share, (bound, *also))) + ROUNDED


@pytest.mark.parametrize("name", NAMES)
def test_no_finding_contradicts_the_verdict(
    name: str, shared_runs: SharedRuns, advised: Callable[[str], Advice]
) -> None:
    """Idle time of a finding is part of that of the verdict where both are of one device and window."""
    advice, tables = advised(name), analyze(shared_runs.of(*traces(name)), "gpu_breakdown").tables
    table = tables.get("profiled_steps", tables.get("whole"))
    verdict = advice.verdict
    if verdict is None or table is None or len(table) > 1 or verdict.window_ns != table["window_ns"].sum():
        return
    for one in advice.findings:
        bound = one.bound
        if one.analysis == "idle_gaps" and bound is not None:
            start_up = verdict.share(Bottleneck.START_UP) if bound == Bottleneck.HOST else 0
            assert (one.share_of_step or 0) <= verdict.share(bound) + start_up + ROUNDED


def test_most_advice_is_right() -> None:
    every = sum(by_rule().values(), Counter[str]())
    for counts in (every, sentences()):
        assert set(counts) <= set(VERDICTS)
        assert counts["right"] >= LEAST_RIGHT * counts.total()


@pytest.mark.parametrize("name", NAMES)
def test_steps_share_no_time_and_savings_are_bounded(
    name: str, shared_runs: SharedRuns, advised: Callable[[str], Advice]
) -> None:
    run, advice = shared_runs.of(*traces(name)), advised(name)
    tables = analyze(run, "gpu_breakdown").tables
    place = [C.RANK, C.DEVICE]
    for measure in ("active_ns", "movement_ns", "copies_union_ns") if "per_step" in tables else ():
        stepped = tables["per_step"].groupby(place)[measure].sum()
        assert (stepped <= tables["whole"].set_index(place)[measure]).all()
    savings = [(one.analysis, one.finding.saving_ns_per_step or 0) for one in advice.findings]
    assert all(saving <= advice.budget.step_ns for _, saving in savings)
    if not any(saving for _, saving in savings):
        return
    idle = sum(saving for analysis, saving in savings if analysis == "idle_gaps")
    alone = [saving for analysis, saving in savings if analysis in ("kernels", "launch_config")]
    table = tables.get("profiled_steps", tables["whole"])
    worst = table.groupby(C.RANK)[["idle_ns", "active_ns"]].max().sum() // advice.budget.steps
    assert idle <= worst["idle_ns"] + 1
    assert max(alone, default=0) <= worst["active_ns"]
