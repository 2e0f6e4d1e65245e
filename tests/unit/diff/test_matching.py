"""Each match level matches what it says, and only what the levels before it left."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from tests.builders import host, kernel, make_run, memcpy, step
from tracekit.diff import Options, diff
from tracekit.diff.naming import Role, op_role, role
from tracekit.schema import C

if TYPE_CHECKING:
    from pathlib import Path

    from tracekit.diff.breakdowns import Group
    from tracekit.runs.run import Run

Launch = tuple[tuple[str, ...], str | None, str, int]
"""Ops from the outermost to the launching one, shapes of that one, name of the kernel, its duration."""


def built(place: Path, launches: list[Launch], *, modules: bool = False) -> Run:
    ops: list[dict[str, Any]] = []
    device: list[dict[str, Any]] = []
    for number, (path, shapes, name, length) in enumerate(launches):
        at, parent = 1000 * number, None
        for depth, op in enumerate(path):
            last = depth == len(path) - 1
            ops.append(
                host(
                    op,
                    at + depth,
                    at + 900 - depth,
                    step=1,
                    **{C.PARENT_ROW: parent, C.DEPTH: depth, C.INPUT_SHAPES: shapes if last else None},
                    **({C.MODULE: f"nn.Module: Layer_{number}"} if modules else {}),
                )
            )
            parent = len(ops) - 1
        make = memcpy if name.startswith("Memcpy") else kernel
        device.append(make(at, at + length, **{C.NAME: name, C.STEP: 1, C.OP_ROW: parent}))
    markers = [step(1, 0, 1000 * len(launches))]
    return make_run(place, host_intervals=ops, device_intervals=device, steps=markers)


def groups(place: Path, a: list[Launch], b: list[Launch], *, by: str = "op", **more: Any) -> list[Group]:
    options = Options(explain=False, varying=("shapes", "mode"), by=by)
    runs = [built(place / name, launches, **more) for name, launches in (("a", a), ("b", b))]
    return list(diff([runs[0]], [runs[1]], options=options).groups)


def reported(found: list[Group]) -> list[tuple[str, str, str]]:
    return [(group.match_level, group.name_a, group.name_b) for group in found]


MM = ("aten::linear", "aten::mm")


@pytest.mark.slow_except(3)
@pytest.mark.parametrize(
    ("level", "before", "after"),
    [
        ("hash", (MM, "[[8]]", "gemm_a", 10), (MM, "[[8]]", "gemm_a", 20)),
        ("op+shape", (MM, "[[8]]", "gemm_a", 10), (MM, "[[8]]", "other_b", 20)),
        ("op", (MM, "[[8]]", "gemm_a", 10), (MM, "[[9]]", "gemm_a", 20)),
        ("launcher", (MM, "[[8]]", "gemm_a", 10), (("aten::matmul", "aten::mm"), "[[9]]", "k", 20)),
        ("canonical", (("aten::x",), None, "k<1>(int)", 10), (("aten::y",), None, "k<2>(int)", 20)),
        ("role", (("aten::x",), None, "a_gemm", 10), (("aten::y",), None, "b_gemm", 20)),
        ("group", (("f", "aten::x"), None, "a", 10), (("f", "aten::y"), None, "b", 20)),
    ],
)
def test_match_levels(tmp_path: Path, level: str, before: Launch, after: Launch) -> None:
    (group,) = groups(tmp_path, [before], [after])
    assert group.match_level == level
    assert group.terms.rate == 10


def test_what_no_level_matches_is_added_and_removed(tmp_path: Path) -> None:
    before, after = (("aten::x",), None, "a", 10), (("aten::y",), None, "b", 20)
    found = groups(tmp_path, [before], [after])
    assert [(group.match_level, group.terms.added, group.terms.removed) for group in found] == [
        ("", 20, 0),
        ("", 0, 10),
    ]


def test_the_largest_difference_comes_first_in_either_direction(tmp_path: Path) -> None:
    before, after = (("aten::x",), None, "a", 30), (("aten::y",), None, "b", 20)
    assert [group.terms.delta for group in groups(tmp_path, [before], [after])] == [-30, 20]


def test_elementwise_kernels_of_different_ops_are_strangers(tmp_path: Path) -> None:
    before = (("aten::x",), None, "elementwise_add", 10)
    after = (("aten::y",), None, "elementwise_mul", 20)
    assert reported(groups(tmp_path, [before], [after])) == [
        ("", "", "elementwise_mul"),
        ("", "elementwise_add", ""),
    ]


def test_the_same_name_within_an_op_goes_before_another_one(tmp_path: Path) -> None:
    before = [(MM, "[[8]]", "gemm", 10), (MM, "[[8]]", "bias", 5)]
    after = [(MM, "[[8]]", "bias", 6), (MM, "[[8]]", "fast_gemm", 7)]
    assert sorted(reported(groups(tmp_path, before, after))) == [
        ("hash", "bias", "bias"),
        ("op+shape", "gemm", "fast_gemm"),
    ]


def test_work_without_an_op_is_matched_by_its_name_alone(tmp_path: Path) -> None:
    (group,) = groups(tmp_path, [((), None, "k", 10)], [((), None, "k", 20)])
    assert (group.match_level, group.path) == ("canonical", ())


def test_a_copy_is_not_matched_with_a_kernel_of_its_op(tmp_path: Path) -> None:
    before = [(("aten::to",), "[[8]]", "Memcpy HtoD", 10), (("aten::mm",), None, "gemm", 5)]
    after = [(("aten::to",), "[[8]]", "convert", 11), (("aten::mm",), None, "gemm", 5)]
    (group,) = groups(tmp_path, before, after)
    assert (group.match_level, group.path) == (
        "group",
        ("aten::to",),
    )  # the op around both, not one of the other


def test_modules_keep_equal_layers_apart(tmp_path: Path) -> None:
    layers = [(MM, "[[8]]", "gemm", 10), (MM, "[[8]]", "gemm", 10)]
    slower = [(MM, "[[8]]", "gemm", 10), (MM, "[[8]]", "gemm", 30)]
    (together,) = groups(tmp_path / "op", layers, slower)
    assert (together.a.count, together.terms.rate) == (2, 20)
    (apart,) = groups(tmp_path / "module", layers, slower, by="module", modules=True)
    assert (apart.a.count, apart.terms.rate, apart.module) == (1, 20, "Layer_1")


def test_what_one_module_gains_is_not_set_against_what_another_loses(tmp_path: Path) -> None:
    base = in_modules(tmp_path / "a", ("one", "mm"), ("one", "extra"), ("two", "mm"))
    head = in_modules(tmp_path / "b", ("one", "mm"), ("two", "mm"), ("two", "extra"))
    assert diff([base], [head], options=Options(explain=False)).groups == ()
    found = diff([base], [head], options=Options(explain=False, by="module"))
    assert [(one.label, one.terms.added, one.terms.removed) for one in found.causes] == [
        ("one", 0, 10),
        ("two", 10, 0),
    ]
    renamed = in_modules(tmp_path / "c", ("three", "mm"), ("three", "extra"), ("four", "mm"))
    assert diff([base], [renamed], options=Options(explain=False, by="module")).groups == ()


def in_modules(place: Path, *launches: tuple[str, str]) -> Run:
    """Ops of modules, each with one kernel of its name."""
    ops, device = [], []
    for number, (module, op) in enumerate(launches):
        at = 100 * number
        ops.append(host(f"aten::{op}", at, at + 50, step=1, **{C.MODULE: module}))
        device.append(kernel(at, at + 10, **{C.NAME: op, C.STEP: 1, C.OP_ROW: number}))
    return make_run(place, host_intervals=ops, device_intervals=device, steps=[step(1, 0, 1000)])


def test_a_comparison_does_not_depend_on_the_order_of_calls(tmp_path: Path) -> None:
    before: list[Launch] = [
        (MM, "[[8]]", "gemm", 10),
        (("f", "aten::x"), None, "a", 10),
        (("f", "aten::z"), None, "c", 4),
        (("aten::to",), None, "Memcpy HtoD", 3),
    ]
    after: list[Launch] = [(MM, "[[9]]", "k", 12), (("f", "aten::y"), None, "b", 20)]
    first = groups(tmp_path / "1", before, after)
    second = groups(tmp_path / "2", before[::-1], after[::-1])
    assert [(one.match_level, one.path, one.a, one.b, one.terms) for one in first] == [
        (one.match_level, one.path, one.a, one.b, one.terms) for one in second
    ]


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("sm80_xmma_fprop_implicit_gemm_f32", Role.CONV),
        ("void cudnn::bn_fw_tr_1C11_kernel_NCHW<float>", Role.NORM),
        ("ampere_bf16_s16816gemm_bf16_128x64", Role.GEMM),
        ("Cijk_Ailk_Bljk_BBS_BH_MT64x64x64", Role.GEMM),
        ("pytorch_flash::flash_fwd_kernel<...>", Role.ATTENTION),
        ("ncclDevKernel_AllReduce_Sum_f32_RING_LL", Role.COLLECTIVE),
        ("void at::native::(anonymous namespace)::softmax_warp_forward<float>", Role.SOFTMAX),
        ("void at::native::vectorized_elementwise_kernel<4, FillFunctor<float>>", Role.FILL),
        ("void at::native::vectorized_elementwise_kernel<4, AddFunctor<float>>", Role.ELEMENTWISE),
        ("void at::native::reduce_kernel<512, 1, ReduceOp<float>>", Role.REDUCTION),
        ("Custom_Cijk_Alik_Bljk_BBS_BH_MT64x64x64", Role.GEMM),
        ("bmm_Bfloat16_Bfloat16Bfloat16_Fp32_t128x8x128u2_s6", Role.GEMM),
        ("triton_tem_fused_addmm_relu_3", Role.GEMM),
        ("triton_tem_fused_convolution_3", Role.CONV),
        ("triton_poi_fused_convolution_relu_0", Role.ELEMENTWISE),
        ("triton_poi_fused_addmm_gelu_1", Role.ELEMENTWISE),
        ("triton_red_fused_mm_sum_2", Role.REDUCTION),
        ("triton_per_fused_native_layer_norm_convolution_4", Role.NORM),
        ("triton_per_fused__softmax_bmm_5", Role.SOFTMAX),
        ("Im2d2Col_v2", Role.CONV),
        ("void cub::DeviceScanKernel<cub::AgentScanPolicy<int>>", Role.REDUCTION),
        ("void at::native::GammaBetaBackwardCUDAKernel<float, float>", Role.NORM),
        ("convert_fp32_to_bf16", Role.OTHER),
        ("k", Role.OTHER),
    ],
)
def test_roles_of_kernels(name: str, expected: Role) -> None:
    assert role(name) is expected


def test_an_op_tells_the_role_where_the_kernel_does_not() -> None:
    assert role("k", "aten::convolution") is Role.CONV
    assert op_role("aten::_log_softmax") is Role.SOFTMAX
    assert op_role("ProfilerStep") is Role.OTHER
    assert op_role("aten::addmm") is Role.GEMM


def test_work_of_ops_without_a_common_path_is_named_by_the_op_with_most_time(tmp_path: Path) -> None:
    before: list[Launch] = [(("aten::x",), None, "a_gemm", 10), (("aten::v",), None, "a_gemm", 10)]
    (group,) = groups(tmp_path, before, [(("aten::y",), None, "b_gemm", 30)])
    assert (group.match_level, group.path) == ("role", ("aten::y and 2 more ops",))


def test_work_of_one_launching_op_in_several_places_is_named_by_what_the_places_share(tmp_path: Path) -> None:
    before: list[Launch] = [(("f", "aten::reshape", "aten::copy_"), None, "k", 10)]
    after: list[Launch] = [(("f", "aten::to", "aten::copy_"), None, "k", 30)]
    (group,) = groups(tmp_path / "1", before, after)
    assert (group.match_level, group.path) == ("launcher", ("f", "…", "aten::copy_"))
    (group,) = groups(tmp_path / "2", before, [(("g", "aten::copy_"), None, "k", 30)])
    assert (group.match_level, group.path) == ("launcher", ("…", "aten::copy_"))
    (turned,) = groups(tmp_path / "3", [(("g", "aten::copy_"), None, "k", 30)], before)
    assert turned.path == group.path


def one_op(place: Path, *kernels: tuple[str, int]) -> Run:
    """One op that launches all of these kernels."""
    device = [
        kernel(100 * number, 100 * number + length, **{C.NAME: name, C.STEP: 1, C.OP_ROW: 0})
        for number, (name, length) in enumerate(kernels)
    ]
    ops = [host("aten::mm", 0, 900, step=1, **{C.INPUT_SHAPES: "[[8]]"})]
    return make_run(place, host_intervals=ops, device_intervals=device, steps=[step(1, 0, 1000)])


def test_of_the_kernels_of_an_op_the_same_name_goes_first(tmp_path: Path) -> None:
    a = one_op(tmp_path / "a", ("gemm", 10), ("bias", 5))
    b = one_op(tmp_path / "b", ("bias", 6), ("fast_gemm", 7))
    found = diff([a], [b], options=Options(explain=False)).groups
    assert sorted(reported(list(found))) == [
        ("op+shape", "bias", "bias"),  # not by hash: the op as a whole launches something else
        ("op+shape", "gemm", "fast_gemm"),
    ]


def test_the_evidence_is_the_longest_interval_and_of_equal_ones_the_first(tmp_path: Path) -> None:
    a = one_op(tmp_path / "a", ("k", 5), ("k", 9), ("k", 9))
    b = one_op(tmp_path / "b", ("k", 20), ("k", 30), ("k", 10))
    (group,) = diff([a], [b], options=Options(explain=False)).groups
    assert group.evidence == {"a": [1], "b": [1]}
