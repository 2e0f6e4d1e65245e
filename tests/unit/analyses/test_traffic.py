"""Least bytes of a call: inputs once, output once, unknown where the inputs do not tell the output."""

from __future__ import annotations

import json
from typing import Any

import pytest
from tracekit.analyses.roofline.calls import minimum_bytes


def moved(name: str, shapes: list[Any], dtypes: list[str], flops: int | None = None) -> int | None:
    return minimum_bytes(name, json.dumps(shapes), json.dumps(dtypes), flops)


HALF, FLOAT = "c10::Half", "float"
IMAGE, WEIGHT, RESULT = [2, 4, 9, 9], [8, 4, 3, 3], [2, 8, 7, 7]
FORWARD = 2 * (2 * 8 * 7 * 7) * (4 * 9)
IN, FILTER, OUT = 2 * 4 * 81, 8 * 4 * 9, 2 * 8 * 49


@pytest.mark.parametrize(
    ("name", "shapes", "dtypes", "flops", "expected"),
    [
        ("aten::mm", [[2, 3], [3, 5]], [FLOAT] * 2, 60, 4 * (6 + 15 + 10)),
        ("aten::mm", [[2, 3], [3, 5], [2, 5]], [FLOAT] * 3, 60, 4 * (6 + 15 + 10)),
        (
            "aten::addmm",
            [[5], [2, 3], [3, 5], [], []],
            [HALF] * 3 + ["Scalar"] * 2,
            60,
            2 * (5 + 6 + 15 + 10),
        ),
        ("aten::bmm", [[7, 2, 3], [7, 3, 5]], [FLOAT] * 2, 420, 4 * 7 * 31),
        ("aten::linear", [[4, 2, 3], [5, 3], [5]], [FLOAT] * 3, 240, 4 * (24 + 15 + 5 + 40)),
        ("aten::mv", [[4, 3], [3]], [FLOAT] * 2, 24, 4 * (12 + 3 + 4)),
        ("aten::convolution", [IMAGE, WEIGHT], [HALF] * 2, FORWARD, 2 * (IN + FILTER + OUT)),
        (
            "aten::convolution_backward",
            [RESULT, IMAGE, WEIGHT],
            [HALF] * 3,
            2 * FORWARD,
            2 * (OUT + 2 * (IN + FILTER)),
        ),
        ("aten::convolution_backward", [RESULT, IMAGE, WEIGHT], [HALF] * 3, FORWARD, 2 * (OUT + IN + FILTER)),
        ("aten::_scaled_dot_product_flash_attention", [[2, 3, 16, 8]] * 3, [HALF] * 3, 1, 2 * 4 * 768),
        (
            "aten::_scaled_dot_product_flash_attention_backward",
            [[2, 3, 16, 8]] * 5,
            [HALF] * 5,
            1,
            2 * 8 * 768,
        ),
        ("aten::add", [[4, 1], [3], []], [FLOAT, FLOAT, "Scalar"], None, 4 * (4 + 3 + 12)),
        ("aten::add", [[4], [4], [], [4]], [FLOAT, FLOAT, "Scalar", FLOAT], None, 4 * 12),
        ("aten::clamp_min", [[4], [], [4]], [FLOAT, "Scalar", FLOAT], None, 4 * 8),
        ("aten::mul", [[4], []], ["c10::BFloat16", "double"], None, 2 * 8 + 8),
        ("aten::mul", [[4], [4]], ["long int", FLOAT], None, 32 + 16 + 16),
        ("aten::where", [[4], [4], [4]], ["bool", FLOAT, FLOAT], None, 4 + 3 * 16),
        ("aten::add_", [[4], [4], []], [FLOAT, FLOAT, "Scalar"], None, 48),
        ("aten::copy_", [[4], [4], []], [HALF, FLOAT, "Scalar"], None, 8 + 16),
        ("aten::fill_", [[4], []], [FLOAT, "Scalar"], None, 16),
        ("aten::_softmax", [[4, 4], [], []], [FLOAT, "Scalar", "Scalar"], None, 2 * 64),
        ("aten::_softmax", [[4, 4], [], [], [4, 4]], [FLOAT, "Scalar", "Scalar", FLOAT], None, 2 * 64),
        (
            "aten::_softmax_backward_data",
            [[4, 4], [4, 4], [], []],
            [FLOAT, FLOAT, "Scalar", "Scalar"],
            None,
            192,
        ),
        ("aten::native_layer_norm", [[4, 2], [], [2], [2], []], [HALF, "", HALF, HALF, "Scalar"], None, 40),
    ],
)
def test_each_input_is_read_and_the_output_written_once(
    name: str, shapes: list[Any], dtypes: list[str], flops: int | None, expected: int
) -> None:
    assert moved(name, shapes, dtypes, flops) == expected


@pytest.mark.parametrize(
    ("name", "shapes", "dtypes", "flops"),
    [
        ("aten::sum", [[4]], [FLOAT], None),
        ("aten::cat", [[[4], [4]], []], ["TensorList", "Scalar"], None),
        ("aten::mm", [[2, 3], [3, 5]], [], 60),
        ("aten::add", [[4], [3], []], [FLOAT, FLOAT, "Scalar"], None),
        ("aten::add", [[4], [4], []], [FLOAT, "c10::Novel", "Scalar"], None),
        ("aten::_softmax", [[4, 4], [], []], [HALF, "Scalar", "Scalar"], None),
        ("aten::convolution", [IMAGE, WEIGHT], [HALF] * 2, None),
        ("aten::convolution_backward", [RESULT], [HALF], FORWARD),
        ("aten::_scaled_mm", [[2, 3], [3, 5]], ["c10::Float8_e4m3fn"] * 2, 60),
        ("aten::cudnn_convolution_transpose", [IMAGE, WEIGHT], [HALF] * 2, FORWARD),
        ("aten::copy_", [], [], None),
        ("aten::abs", [[4_000_000_000, 4_000_000_000]], [FLOAT], None),  # no memory holds that
    ],
)
def test_what_the_inputs_do_not_tell_is_unknown(
    name: str, shapes: list[Any], dtypes: list[str], flops: int | None
) -> None:
    assert moved(name, shapes, dtypes, flops) is None
