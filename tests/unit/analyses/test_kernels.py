from __future__ import annotations

import math
from typing import TYPE_CHECKING

import pytest
from tracekit.analyses.kernels import NO_OPS_NOTE, OUTSIDE_OPS_NOTE, UNLINKED_NOTE
from tracekit.analyses.shared.common import NO_DEVICE
from tracekit.analyses.shared.tensor_shapes import parse_shapes

from tests.builders import Row, device, host, kernel, make_run, memcpy, memset
from tracekit.analysis import analyze, kernel_names
from tracekit.analysis.kernel_names import MAX_SEARCHED, family, search_each, uses_tensor_cores
from tracekit.runs.meta import Collector
from tracekit.schema import C, DeviceKind, HostKind

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from tests.shared_runs import SharedRuns
    from tests.thresholds import Make
    from tracekit.analysis import Finding
    from tracekit.runs.run import Run


@pytest.mark.parametrize("more", [[], ["größe_launch"], ["a\nlaunch"], [MAX_SEARCHED * "x" + "launch"]])
def test_many_texts_are_searched_like_few(more: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    texts = ["cudaLaunchKernel", "launch", "cudaLaunchHostFunc", "relaunch", "", "x_1 y", "Launch$", *more]
    patterns = [r"(?i)launch", r"^launch$", r"(?i)launch(?!host)", r"\blaunch", r"\w+_\d+\s", r"^.launch", ""]
    found = [search_each(texts, pattern).tolist() for pattern in patterns]
    assert found[0][:3] == [True, True, True]
    assert found[0][7:] == [len(text) <= MAX_SEARCHED for text in more]
    monkeypatch.setattr(kernel_names, "_MANY_TEXTS", 0)
    assert [search_each(texts, pattern).tolist() for pattern in patterns] == found


def test_sums_unions_and_medians_by_family_and_op(tmp_path: Path) -> None:
    run = make_run(
        tmp_path,
        host_intervals=[host("aten::relu", 0, 10, input_shapes="[[8]]")],
        device_intervals=[
            kernel(10, 20, name="void relu<4, float>(int)", op_row=0),
            kernel(15, 35, name="void relu<8, float>(int)", op_row=0),
            kernel(15, 18, name="void relu<8, float>(int)", **{C.DEVICE: 1}),
            kernel(50, 57, name="gemm_h884"),
        ],
    )
    tables = analyze(run, "kernels").tables
    assert tables["families"].to_numpy().tolist() == [
        ["relu<float>", False, 3, 33, 28, 3, 10, 20, 33 / 40],
        ["gemm_h884", True, 1, 7, 7, 7, 7, 7, 7 / 40],
    ]
    assert tables["by_op"].to_numpy().tolist() == [
        ["aten::relu", 2, 30, 25, 10, 10, 20, 0.75],
        ["(no op recorded)", 2, 10, 10, 3, 3, 7, 0.25],
    ]
    assert tables["by_shape"].iloc[0][:3].tolist() == ["aten::relu", "[[8]]", "relu<float>"]


def test_only_a_first_launch_far_above_the_others_is_listed(tmp_path: Path) -> None:
    slow = [kernel(0, 50_000, name="a"), *(kernel(t, t + 5_000, name="a") for t in (60_000, 70_000))]
    steady = [kernel(t, t + 50_000, name="b") for t in (100_000, 200_000, 300_000)]
    result = analyze(make_run(tmp_path, device_intervals=slow + steady), "kernels")
    assert result.tables["first_launches"].to_numpy().tolist() == [["a", 0, 0, 50_000, 5_000, 2, 45_000, 0]]
    (finding,) = result.findings
    assert finding.title == "The first launch of one kernel took 45.00 µs longer than later ones"
    assert finding.evidence == {"device_intervals": [0]}
    assert result.notes == (NO_OPS_NOTE,)


def test_communication_that_waits_for_other_ranks_is_no_slow_first_launch(tmp_path: Path) -> None:
    name = "ncclDevKernel_AllReduce_Sum_f32_RING_LL"
    waits = [kernel(0, 50_000, name=name), *(kernel(t, t + 5_000, name=name) for t in (60_000, 70_000))]
    result = analyze(make_run(tmp_path, device_intervals=waits), "kernels")
    assert (len(result.tables["first_launches"]), result.findings) == (1, ())


@pytest.mark.parametrize(
    ("rows", "said"),
    [
        ([memcpy(0, 1)], "1 copy was"),
        ([memcpy(0, 1), memcpy(2, 3), memset(4, 5)], "2 copies and 1 memset were"),
        ([device(DeviceKind.GRAPH, 0, 9)], "1 opaque graph was"),
    ],
)
def test_a_capture_of_copies_alone_says_so(tmp_path: Path, rows: list[Row], said: str) -> None:
    calls = [host("cudaMemcpyAsync", 0, 1, kind=HostKind.RUNTIME)]
    result = analyze(make_run(tmp_path, host_intervals=calls, device_intervals=rows), "kernels")
    note = f"no kernels in this capture, but {said} recorded: see `gpu_breakdown`"
    assert (result.tables, result.notes) == ({}, (note,))


@pytest.mark.slow_except(1)
@pytest.mark.parametrize(("launch", "note"), [({}, UNLINKED_NOTE), ({"launch_row": 1}, OUTSIDE_OPS_NOTE)])
def test_kernels_without_an_op_say_why(tmp_path: Path, launch: Row, note: str) -> None:
    rows = [host("aten::add", 0, 5), host("cudaLaunchKernel", 6, 7, kind=HostKind.RUNTIME)]
    run = make_run(tmp_path, host_intervals=rows, device_intervals=[kernel(8, 9, **launch)])
    assert analyze(run, "kernels").notes == (note,)


def test_a_capture_without_a_device_says_so(tmp_path: Path) -> None:
    assert analyze(make_run(tmp_path), "kernels").notes == (NO_DEVICE,)


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        (
            "void at::native::vectorized_elementwise_kernel<4, at::native::(anonymous namespace)::f(at::T&)"
            "::{lambda()#1}::operator()() const::{lambda(float)#2}, std::array<char*, 3ul> >(int, long)",
            "at::native::vectorized_elementwise_kernel<at::native::f(at::T&)::{lambda}::operator()() const"
            "::{lambda}, std::array<char*> >",
        ),
        ("triton_red_fused_add_12", "triton_red_fused_add"),
        ("void f<(int)64, (bool)1, half, 2>(half*)", "f<half>"),
        ("void g<true, false, -1>()", "g"),
        ("ampere_sgemm_128x64_tn", "ampere_sgemm_tn"),
        ("volta_sgemm_32x32_sliced1x4_tn", "volta_sgemm_sliced_tn"),
        (
            "sm80_xmma_gemm_f32f32_f32f32_f32_tn_n_tilesize32x32x8_stage3_warpsize1x2x1_ffma_aligna4_alignc4"
            "_execute_kernel__5x_cublas",
            "sm80_xmma_gemm_f32f32_f32f32_f32_tn_n_tilesize_stage_warpsize_ffma_aligna_alignc"
            "_execute_kernel__5x_cublas",
        ),
        (
            "sm80_xmma_fprop_implicit_gemm_tf32f32_nhwc_tilesize128x128x16_stage4_warpsize2x2x1_g1"
            "_tensor16x8x8_kernel_cudnn",
            "sm80_xmma_fprop_implicit_gemm_tf32f32_nhwc_tilesize_stage_warpsize_g1_tensor16x8x8_kernel_cudnn",
        ),
        (
            "void cutlass::Kernel2<cutlass_80_tensorop_bf16_s16816gemm_relu_bf16_64x64_64x6_tn_align8>(int)",
            "cutlass::Kernel2<cutlass_80_tensorop_bf16_s16816gemm_relu_bf16_tn_align>",
        ),
        (
            "ampere_bf16_s16816gemm_bf16_128x256_ldg8_relu_f2f_stages_64x3_tn",
            "ampere_bf16_s16816gemm_bf16_ldg_relu_f2f_stages_tn",
        ),
        ("nvjet_tst_256x128_64x4_1x2_h_bz_coopA_NNT", "nvjet_tst_h_bz_coopA_NNT"),
        ("cutlass3x_sm90_s64x128x16gemm_128x128x64_2x1x1_tn", "cutlass3x_sm90_s64x128x16gemm_tn"),
        (
            "Custom_Cijk_Ailk_Bljk_B_BS_BH_HA_S_SAV_UserArgs_MT64x288x64_MI16x16x1_SN_LDSB1_WS64_WG32_8_1",
            "Custom_Cijk_Ailk_Bljk_B_BS_BH_HA_S_SAV_UserArgs_MI16x16x1",
        ),
        ("Cijk_Ailk_Bljk_SB_MT64x64x8_SN_K1_WG16_16_1", "Cijk_Ailk_Bljk_SB"),
        ("void winogradForwardData9x9_5x5<float>(int)", "winogradForwardData9x9_5x5<float>"),
        ("void Functor::operator()(int)", "Functor::operator()"),
        ("", ""),
        ("(weird", "(weird"),
    ],
)
def test_family(name: str, expected: str) -> None:
    assert family(name) == expected


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("sm80_xmma_gemm_f16f16_f16f32_f32_tn_n_tilesize128x128x32_tensor16x8x16_kernel", True),
        ("sm80_xmma_gemm_f32f32_f32f32_f32_tn_n_tilesize32x32x8_stage3_ffma_aligna4_alignc4_kernel", False),
        ("void cutlass::Kernel<cutlass_80_simt_sgemm_128x64_8x5_nn_align1>(int)", False),
        ("void cutlass::Kernel<cutlass_80_tensorop_s1688gemm_64x64_32x6_tn_align4>(int)", True),
        ("ampere_sgemm_128x64_tn", False),
        ("Cijk_Ailk_Bljk_BBS_BH_MT64x64x64_MI16x16x16x1_SN_1LDSB0", True),
        ("Cijk_Ailk_Bljk_SB_MT64x64x8_SN_K1_WG16_16_1", False),
        ("igemm_fwd_gtcx3_nhwc_bf16_bx0_ex1_bt128x128x32_wt32x32x8", True),
    ],
)
def test_tensor_cores_are_told_by_the_name(name: str, expected: bool) -> None:
    assert uses_tensor_cores(name) is expected


def test_families_are_stable() -> None:
    name = family("void at::f<4, float, g<2, half> >(int)")
    assert family(name) == name
    assert not uses_tensor_cores(name)


BMM, SOFTMAX = "aten::bmm", "aten::_softmax"
TENSOR, SINGLE = "ampere_bf16_s16816gemm_bf16_128x64_tn", "volta_scudnn_128x64_relu_small_nn_v1"


def choices(path: Path, *kernels: tuple[str, str, int], idle: int = 0) -> list[str]:
    """Codes of the findings on kernels one after the other: op, name and duration of each."""
    return [one.code for one in select(path, *kernels, idle=idle)]


def select(path: Path, *kernels: tuple[str, str, int], idle: int = 0) -> Sequence[Finding]:
    """Findings on kernels one after the other: op, name and duration of each."""
    start, hosts, rows = 0, [], []
    for number, (op, name, taken) in enumerate(kernels):
        hosts.append(host(op, number, number + 1))
        rows.append(kernel(start, start + taken, name=name, op_row=number, stream=7))
        start += taken + idle
    return analyze(make_run(path, host_intervals=hosts, device_intervals=rows), "kernels").findings


def test_single_precision_without_tensor_cores_is_found_on_a_busy_device(tmp_path: Path) -> None:
    convolution, other = ("aten::conv2d", SINGLE, 400), ("aten::relu", "elementwise<float>", 600)
    assert choices(tmp_path / "alone", convolution, other) == ["fp32_without_tensor_cores"]
    assert choices(tmp_path / "idle", convolution, other, idle=1_100) == []
    tensor = ("aten::mm", TENSOR, 500)
    assert choices(tmp_path / "tensor", convolution, tensor, other) == []
    assert choices(tmp_path / "named", ("aten::mm", TENSOR, 400), other) == []


def test_double_precision_among_lower_ones_is_found(tmp_path: Path) -> None:
    single = ("aten::relu", "vectorized_elementwise_kernel<4, relu<float>>", 900)
    upsample = ("aten::upsample_bilinear2d", "upsample_bilinear2d_out_frame<double, double>", 100)
    assert choices(tmp_path / "some", single, upsample) == ["double_precision"]
    assert choices(tmp_path / "all", upsample) == []
    scalar = ("aten::mul", "BinaryFunctor<float, float, double>", 100)
    assert choices(tmp_path / "scalar", single, scalar) == []


@pytest.mark.slow
def test_softmax_between_batched_products_is_eager_attention(tmp_path: Path) -> None:
    rest = ("aten::relu", "elementwise<float>", 600)
    product, softmax = (BMM, TENSOR, 100), (SOFTMAX, "cunn_SoftMaxForward<float>", 200)
    scale = ("aten::mul", "elementwise<float>", 10)
    assert choices(tmp_path / "eager", product, scale, softmax, product, rest) == ["eager_attention"]
    assert choices(tmp_path / "loss", product, product, softmax, rest) == []
    assert choices(tmp_path / "far", product, *[scale] * 9, softmax, product, rest) == []


GEMM = ("aten::mm", TENSOR, 600)
TRAINS = ("aten::cudnn_batch_norm", "void cudnn::bn_fw_tr_1C11_singleread<float, 512>", 200)
INFERS = ("aten::cudnn_batch_norm", "void cudnn::bn_fw_inf_1C11_kernel_NCHW<float, float>", 200)
CONVERTS = ("aten::cudnn_convolution", "void cudnn::engines_precompiled::nchwToNhwcKernel<float, float>", 200)
ADDS = ("aten::add", "void at::native::vectorized_elementwise_kernel<4, CUDAFunctor_add<float>>", 200)
UPDATES = ("aten::_foreach_addcdiv_", "multi_tensor_apply_kernel<TensorListMetadata<3>>", 200)
CASTS = ("aten::copy_", "void unrolled_elementwise_kernel<direct_copy_kernel_cuda, LoadWithCast<1>>", 200)
OWN = ("aten::mm", "matmul_k(float*, float*, float*, int)", 200)
FUSED = ("aten::_foreach_add_", "multi_tensor_apply_kernel<FusedAdamMathFunctor<float>>", 200)


@pytest.mark.parametrize(
    ("planted", "twin", "code"),
    [
        ([TRAINS, GEMM], [INFERS, GEMM], "batch_norm_training"),
        (
            [TRAINS, GEMM],
            [TRAINS, ("aten::cudnn_batch_norm_backward", "bn_bw_1C11", 600)],
            "batch_norm_training",
        ),
        ([CONVERTS, GEMM], [(CONVERTS[0], "cudnn::conv_nhwc", 200), GEMM], "layout_conversions"),
        ([ADDS, ADDS, GEMM], [ADDS, GEMM, ADDS], "unfused_elementwise"),
        ([UPDATES, GEMM], [FUSED, GEMM], "optimizer_not_fused"),
        ([CASTS, GEMM], [(*CASTS[:2], 100), GEMM], "dtype_conversions"),
        ([CASTS, GEMM], [("aten::clone", "void direct_copy_kernel_cuda", 200), GEMM], "dtype_conversions"),
        ([OWN, GEMM], [("aten::mm", "void my::gemm(float*, float*)", 200), GEMM], "own_product"),
        ([OWN, GEMM], [(*OWN[:2], 66), GEMM], "own_product"),
    ],
)
def test_kernels_that_a_program_can_do_without_are_found(
    tmp_path: Path, planted: list[tuple[str, str, int]], twin: list[tuple[str, str, int]], code: str
) -> None:
    assert choices(tmp_path / "planted", *planted) == [code]
    assert choices(tmp_path / "twin", *twin) == []


HALF = ("aten::to", "void vectorized_elementwise_kernel<4, at::native::bfloat16_copy_kernel_cuda>", 20)
MEAN = ("aten::mean", "void at::native::reduce_kernel<512, 1, ReduceOp<float, MeanOps<float>>>", 20)
CAT = ("aten::cat", "void at::native::CatArrayBatchedCopy<OpaqueType<2u>, unsigned int, 4>", 40)
SPREADS = ("aten::mul", "void at::native::elementwise_kernel<128, 2, BinaryFunctor<float>>", 60)


@pytest.mark.parametrize(
    ("sequence", "total", "saving"),
    [
        ([ADDS, GEMM, ADDS, HALF], 420, None),  # half of 20 is below 6% of the steps
        ([SPREADS, SPREADS, GEMM, SPREADS], 180, 30),
        ([HALF, SPREADS, MEAN, SPREADS, HALF, GEMM], 160, 50),
        ([SPREADS, CAT, SPREADS, GEMM], 160, 50),
        ([HALF, HALF, HALF, GEMM], 60, None),
        ([SPREADS, HALF, HALF, HALF, SPREADS, GEMM, GEMM], 180, None),
        ([SPREADS, (*HALF[:2], 200), SPREADS, GEMM], 120, 30),  # conversions have their own finding
    ],
    ids=["short", "isolated", "norm", "cat", "casts", "casts between", "conversions"],
)
def test_all_element_wise_kernels_count_and_those_in_chains_save(
    tmp_path: Path, sequence: list[tuple[str, str, int]], total: int, saving: int | None
) -> None:
    found = select(tmp_path, *sequence)
    chained = [one for one in found if one.code == "unfused_elementwise"]
    assert [one.saving_ns_per_step for one in chained] == ([] if saving is None else [saving])
    assert all(f": {total} ns per capture" in one.title for one in chained)


def test_batch_normalization_saves_nothing_where_the_host_paces_the_steps(tmp_path: Path) -> None:
    for idle, saving in ((0, 100), (400, None)):
        rows = [
            kernel(0, 200, name=TRAINS[1], stream=7),
            kernel(200 + idle, 800 + idle, name=TENSOR, stream=7),
        ]
        (finding,) = analyze(make_run(tmp_path / str(idle), device_intervals=rows), "kernels").findings
        assert (finding.code, finding.saving_ns_per_step) == ("batch_norm_training", saving)


def test_advice_fits_the_program_and_its_device(tmp_path: Path) -> None:
    gpus = {"environment": {"gpus": [{"index": 0, "name": "Tesla T4"}]}}
    rows = [kernel(0, 600, name=SINGLE, stream=7)]
    (turing,) = analyze(make_run(tmp_path / "t4", device_intervals=rows, meta=gpus), "kernels").findings
    assert "float16" in turing.advice
    assert "bfloat16" not in turing.advice
    nsys = {"collector": Collector("nsys")}
    (other,) = analyze(make_run(tmp_path / "nsys", device_intervals=rows, meta=nsys), "kernels").findings
    assert "CUBLAS_COMPUTE_32F_FAST_TF32" in other.advice
    assert "torch" not in other.advice


def test_the_saving_of_a_faster_kernel_is_what_ran_alone(tmp_path: Path) -> None:
    rows = [kernel(0, 1_000, name=SINGLE, stream=7), kernel(600, 1_000, name="relu<float>", stream=8)]
    (finding,) = analyze(make_run(tmp_path, device_intervals=rows), "kernels").findings
    assert finding.saving_ns_per_step == 300
    assert finding.title.endswith(": 1 µs per capture, 600 ns alone (60.0%)")


def test_channels_last_needs_a_setting_on_rocm(tmp_path: Path) -> None:
    setting = "PYTORCH_MIOPEN_SUGGEST_NHWC=1"
    rows = [
        kernel(0, 200, name="batched_transpose_16x64_pack_1x4_ediv_1x2_half", stream=7),
        kernel(200, 800, name=TENSOR, stream=7),
    ]
    for name, needed in (("AMD Instinct MI210", True), ("NVIDIA A100", False)):
        gpus = {"environment": {"gpus": [{"index": 0, "name": name}]}}
        run = make_run(tmp_path / name, device_intervals=rows, meta=gpus)
        (finding,) = analyze(run, "kernels").findings
        assert finding.code == "layout_conversions"
        assert (setting in finding.advice) is needed


def test_all_the_time_of_kernels_is_counted_beside_others_too(tmp_path: Path) -> None:
    """The op with most of it is the one that runs beside communication."""
    ops = [host("aten::mm", 0, 10), host("aten::bmm", 10, 20)]
    rows = [
        kernel(0, 600, name=SINGLE, stream=7, op_row=0),
        kernel(600, 1_000, name=SINGLE, stream=7, op_row=1),
        kernel(100, 600, name="ncclKernel_AllReduce_RING_LL_Sum_float", stream=8),
    ]
    run = make_run(tmp_path / "beside", host_intervals=ops, device_intervals=rows)
    (finding,) = [one for one in analyze(run, "kernels").findings if one.code == "fp32_without_tensor_cores"]
    assert finding.advice.startswith("60.0% of it is aten::mm.")
    assert finding.saving_ns_per_step == 250
    twin = make_run(tmp_path / "apart", host_intervals=ops, device_intervals=rows[:2])
    (finding,) = analyze(twin, "kernels").findings
    assert finding.title.endswith(": 1 µs per capture, 100.0% of the time")


@pytest.mark.parametrize(
    ("ops", "advice"),
    [
        (["CompiledFunctionBackward"] * 3, "Most of them belong to compiled functions but were not fused"),
        (
            ["CompiledFunction", "aten::add", "aten::add"],
            "33% of it belongs to compiled functions but was not",
        ),
        (["aten::add"] * 3, "Compile the function that runs them with `torch.compile`"),
    ],
    ids=["compiled", "partly", "eager"],
)
def test_compiled_functions_are_not_to_be_compiled_again(tmp_path: Path, ops: list[str], advice: str) -> None:
    (finding,) = select(tmp_path, *((name, *ADDS[1:]) for name in ops), GEMM)
    assert finding.code == "unfused_elementwise"
    assert advice in finding.advice
    assert ("check the backend" in finding.advice) is ("Compiled" in ops[0])


LARGE, THIN = "[[1024,1024],[1024,1024]]", "[[4096,8],[8,4096]]"


@pytest.mark.parametrize(
    ("gpu", "shapes", "took_ns", "saving", "how"),
    [
        ("", LARGE, 40_000, 20_000, "half of the time"),
        ("Unlisted", LARGE, 40_000, 20_000, "half of the time"),
        ("NVIDIA H200", "", 40_000, 20_000, "half of the time"),
        ("NVIDIA H200", LARGE, 40_000, 34_583, "upper bound: the time"),  # 32 µs at the peak of FP32
        ("NVIDIA H200", LARGE, 106_000, 91_646, "upper bound: the time"),  # 30% of that peak
        ("NVIDIA H200", LARGE, 108_000, 54_000, "half of the time"),
        ("NVIDIA H200", THIN, 16_000, 1_964, "half of the time"),  # 67 MB take 14 µs
        ("Tesla T4", LARGE, 400_000, 350_000, "upper bound: the time"),  # with FP16, since it has no TF32
    ],
)
def test_tensor_cores_save_as_much_as_the_peaks_and_the_shapes_allow(
    tmp_path: Path, gpu: str, shapes: str, took_ns: int, saving: int, how: str
) -> None:
    dtypes, size = '["float","float"]', parse_shapes(shapes)
    work = 2 * math.prod(size[0]) * size[1][1] if shapes else None
    op = host("aten::mm", 0, 10, input_shapes=shapes or None, input_dtypes=dtypes, flops=work)
    rows = [kernel(0, took_ns, name=SINGLE, stream=7, op_row=0)]
    gpus = {"environment": {"gpus": [{"index": 0, "name": gpu}]}} if gpu else {}
    run = make_run(tmp_path, host_intervals=[op], device_intervals=rows, meta=gpus)
    finding = next(one for one in analyze(run, "kernels").findings if "without_tensor" in one.code)
    assert finding.saving_ns_per_step == pytest.approx(saving, rel=0.001)
    assert finding.how.startswith(how)


@pytest.mark.parametrize(
    ("gpu", "took_ns", "spoken"),
    [("NVIDIA H200", 106_000, True), ("NVIDIA H200", 108_000, False), ("Tesla T4", 600_000, False)],
)
def test_beside_more_kernels_with_tensor_cores_those_bound_by_fp32_may_use_tf32(
    tmp_path: Path, gpu: str, took_ns: int, *, spoken: bool
) -> None:
    """30% of the peak of FP32 take 107 µs on an H200; a T4 has no TF32."""
    op = host("aten::mm", 0, 10, input_shapes=LARGE, input_dtypes='["float","float"]', flops=1 << 31)
    tensor = kernel(0, took_ns, name=TENSOR, stream=7)
    rows = [tensor, kernel(took_ns, 2 * took_ns, name=SINGLE, stream=7, op_row=0)]
    gpus = {"environment": {"gpus": [{"index": 0, "name": gpu}]}}
    run = make_run(tmp_path, host_intervals=[op], device_intervals=rows, meta=gpus)
    advice = [one.advice for one in analyze(run, "kernels").findings if "without_tensor" in one.code]
    assert [text.startswith("Allow TF32") for text in advice] == [True] * spoken


def test_the_work_of_a_call_is_shared_by_its_kernels(tmp_path: Path) -> None:
    """Two kernels of 20 µs do the work of one of 40."""
    op = host("aten::mm", 0, 10, input_shapes=LARGE, input_dtypes='["float","float"]', flops=1 << 31)
    rows = [kernel(start, start + 20_000, name=SINGLE, stream=7, op_row=0) for start in (0, 20_000)]
    gpus = {"environment": {"gpus": [{"index": 0, "name": "NVIDIA H200"}]}}
    run = make_run(tmp_path, host_intervals=[op], device_intervals=rows, meta=gpus)
    (finding,) = analyze(run, "kernels").findings
    assert finding.saving_ns_per_step == pytest.approx(34_583, abs=100)


@pytest.mark.parametrize(
    ("shapes", "is_slow"), [("[[64]]", True), ("[[8]]", False), ("", True)], ids=["same", "other", "unknown"]
)
def test_a_first_launch_is_compared_with_those_for_its_shapes(
    tmp_path: Path, shapes: str, *, is_slow: bool
) -> None:
    """The first of the other shapes is no first launch of the kernel, and has none to be compared with."""
    later = [host("aten::relu", at, at + 1, input_shapes=shapes or None) for at in range(1, 5)]
    hosts = [host("aten::relu", 0, 1, input_shapes="[[64]]" if shapes else None), *later]
    lengths = [900_000, *[100_000] * 4]
    rows = [
        kernel(1_000_000 * at, 1_000_000 * at + length, name="relu<float>", op_row=at, stream=7)
        for at, length in enumerate(lengths)
    ]
    result = analyze(make_run(tmp_path, host_intervals=hosts, device_intervals=rows), "kernels")
    assert bool(len(result.tables["first_launches"])) == is_slow


def ran(*launched: tuple[str, str, int]) -> Make:
    """Kernels one after the other: op, name and duration of each."""

    def make(path: Path, _shared: SharedRuns) -> tuple[Run, ...]:
        start, hosts, rows = 0, [], []
        for number, (op, name, taken) in enumerate(launched):
            hosts.append(host(op, number, number + 1))
            rows.append(kernel(start, start + taken, name=name, op_row=number, stream=7))
            start += taken
        return (make_run(path, host_intervals=hosts, device_intervals=rows),)

    return make


OTHER = ("aten::relu", "elementwise<float>", 600)
PRODUCT, SOFTENED = (BMM, TENSOR, 100), (SOFTMAX, "cunn_SoftMaxForward<float>", 200)
UPSAMPLE = ("aten::upsample_bilinear2d", "upsample_bilinear2d_out_frame<double, double>", 100)


THRESHOLD_RUNS: dict[str, Make] = {
    "fp32_without_tensor_cores": ran(("aten::conv2d", SINGLE, 400), OTHER),
    "double_precision": ran(("aten::relu", "elementwise<float>", 900), UPSAMPLE),
    "eager_attention": ran(PRODUCT, SOFTENED, PRODUCT, OTHER),
    "batch_norm_training": ran(TRAINS, GEMM),
    "layout_conversions": ran(CONVERTS, GEMM),
    "unfused_elementwise": ran(ADDS, ADDS, GEMM),
    "optimizer_not_fused": ran(UPDATES, GEMM),
    "dtype_conversions": ran(CASTS, GEMM),
    "own_product": ran(OWN, GEMM),
    "slow_first_launches": ran(*[("aten::mm", "a", taken) for taken in (50_000, 5_000, 5_000)]),
}
