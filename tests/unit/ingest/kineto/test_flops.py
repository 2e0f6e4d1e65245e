"""FLOPs of ops from shapes and values, unknown for invalid inputs."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.tiers import examples
from tracekit.ingest.kineto.flops import COUNTED, count

IMAGE, WEIGHT = [2, 4, 9, 11], [8, 2, 3, 3]
PRODUCTS = 2 * 3 * 3
"""Input channels of a group times the size of the kernel, for `WEIGHT`."""


def counted(name: str, shapes: list[Any], values: list[str] | None = None) -> int | None:
    return count(name, json.dumps(shapes).encode(), json.dumps(values).encode() if values else b"")


def convolution(*, stride: str = "[1, 1]", padding: str = "[0, 0]", dilation: str = "[1, 1]") -> int | None:
    values = ["", "", "", stride, padding, dilation, "False", "[0, 0]", "2"]
    return counted("aten::convolution", [IMAGE, WEIGHT, [8], *([[]] * 6)], values)


@pytest.mark.parametrize(
    ("name", "shapes", "expected"),
    [
        ("aten::mm", [[2, 3], [3, 5]], 60),
        ("aten::mm", [[2, 3], [3, 5], [2, 5]], 60),
        ("aten::bmm", [[7, 2, 3], [7, 3, 5]], 420),
        ("aten::addmm", [[5], [2, 3], [3, 5], [], []], 60),
        ("aten::baddbmm", [[7, 2, 5], [7, 2, 3], [7, 3, 5], [], []], 420),
        ("aten::linear", [[4, 2, 3], [5, 3], [5]], 240),
        ("aten::mv", [[4, 3], [3]], 24),
        ("aten::dot", [[6], [6]], 12),
        ("aten::mm", [[0, 3], [3, 5]], 0),
        ("aten::_scaled_dot_product_flash_attention", [[2, 6, 16, 8], [2, 3, 20, 8], [2, 3, 20, 4]], 92_160),
        (
            "aten::_scaled_dot_product_flash_attention_backward",
            [[2, 6, 16, 4], [2, 6, 16, 8], [2, 3, 20, 8], [2, 3, 20, 4]],
            245_760,
        ),
        ("flash_attn::_flash_attn_forward", [[2, 16, 6, 8], [2, 20, 3, 8], [2, 20, 3, 4]], 92_160),
        ("aten::cudnn_convolution_transpose", [[2, 4, 5, 5], [4, 3, 2, 2]], 2 * 200 * 12),
    ],
)
def test_formulas_of_shapes(name: str, shapes: list[Any], expected: int) -> None:
    assert counted(name, shapes) == expected


HEADS, SHARED = [2, 6, 16, 8], [2, 3, 16, 8]
FULL = 2 * 2 * 6 * 16 * 16 * (8 + 8)
FLASH = "aten::_scaled_dot_product_flash_attention"
PACKED = "aten::_flash_attention_forward"


@pytest.mark.parametrize(
    ("name", "shapes", "values", "expected"),
    [
        (FLASH, [HEADS, SHARED, SHARED], ["", "", "", "0.", "False"], FULL),
        (FLASH, [HEADS, SHARED, SHARED], ["", "", "", "0.", "True"], FULL // 2),
        (FLASH, [[2, 6, 1, 8], SHARED, SHARED], ["", "", "", "0.", "True"], FULL // 16),  # a decode step
        (f"{FLASH}_backward", [HEADS, HEADS, SHARED, SHARED], [*[""] * 11, "True"], FULL * 5 // 4),
        (
            "flash_attn::_flash_attn_forward",
            [[2, 16, 6, 8], [2, 16, 3, 8], [2, 16, 3, 8]],
            [*[""] * 5, "True", "-1"],
            FULL // 2,
        ),
        (
            "flash_attn::_flash_attn_forward",
            [[2, 16, 6, 8], [2, 16, 3, 8], [2, 16, 3, 8]],
            [*[""] * 5, "True", "4"],
            None,  # a sliding window
        ),
        (
            PACKED,
            [[32, 6, 8], [32, 3, 8], [32, 3, 8], [3], [3]],
            [*[""] * 5, "16", "16", "0.", "False"],
            FULL,
        ),
        (
            PACKED,
            [[32, 6, 8], [32, 3, 8], [32, 3, 8], [3], [3]],
            [*[""] * 5, "16", "16", "0.", "True"],
            FULL // 2,
        ),
        (PACKED, [[30, 6, 8], [30, 3, 8], [30, 3, 8], [3], [3]], [*[""] * 5, "16", "16", "0.", "True"], None),
        (PACKED, [[2, 16, 6, 8]] * 3, [*[""] * 5, "16", "16", "0.", "True"], None),  # inside `FLASH`
    ],
)
def test_attention_counts_the_pairs_that_a_mask_leaves(
    name: str, shapes: list[Any], values: list[str], expected: int | None
) -> None:
    assert counted(name, shapes, values) == expected


@pytest.mark.parametrize(
    ("values", "outputs"),
    [
        ({}, 7 * 9),
        ({"padding": "[1, 1]"}, 9 * 11),
        ({"stride": "[2, 1]"}, 4 * 9),
        ({"dilation": "[2, 3]"}, 5 * 5),
        ({"stride": "[2]", "padding": "[1]", "dilation": "[1]"}, 5 * 6),
    ],
)
def test_a_convolution_has_a_product_per_output(values: dict[str, str], outputs: int) -> None:
    assert convolution(**values) == 2 * (2 * 8 * outputs) * PRODUCTS


@pytest.mark.parametrize(("mask", "times"), [("[True, True, True]", 2), ("[False, True, False]", 1)])
def test_a_backward_convolution_counts_each_requested_gradient(mask: str, times: int) -> None:
    values = ["", "", "", "[8]", "[1, 1]", "[0, 0]", "[1, 1]", "False", "[0, 0]", "2", mask]
    got = counted("aten::convolution_backward", [[2, 8, 7, 9], IMAGE, WEIGHT], values)
    assert got == times * 2 * (2 * 8 * 7 * 9) * PRODUCTS


@pytest.mark.parametrize(
    ("name", "shapes"),
    [
        ("aten::mm", [[2, 3], [4, 5]]),
        ("aten::mm", [[2, 3]]),
        ("aten::mm", [[2, 3], [3, "5"]]),
        ("aten::mm", [[2, 3], [3, -5]]),
        ("aten::mm", [[2.5, 3], [3, 5]]),
        ("aten::mm", [[1 << 40, 1 << 40], [1 << 40, 1 << 40]]),
        ("aten::mm", {"a": 1}),
        ("aten::mm", [["a", 1 << 60], [1 << 60, "a"]]),
        ("aten::convolution", [IMAGE, WEIGHT]),
        ("aten::convolution_backward", [[2, 8, 7, 9], IMAGE, WEIGHT]),
        ("aten::_scaled_dot_product_flash_attention", [[16, 8], [20, 8], [20, 8]]),
        ("aten::relu", [[2, 3]]),
    ],
)
def test_flops_of_unknown_inputs_are_unknown(name: str, shapes: Any) -> None:
    assert counted(name, shapes) is None


@pytest.mark.parametrize("text", [b"", b"[[2,3],", b"\xff", b"null", b"[" * 10_000, b"5"])
def test_damaged_shapes_are_unknown(text: bytes) -> None:
    assert count("aten::mm", text, b"") is None


def test_a_kernel_larger_than_the_image_is_unknown() -> None:
    assert convolution(dilation="[8, 8]") is None


@pytest.mark.parametrize("stride", ["", "[0, 0]", "[", "true", "[1, null]", "[]"])
def test_damaged_values_are_unknown(stride: str) -> None:
    assert convolution(stride=stride) is None


@settings(max_examples=examples(100))
@given(
    name=st.sampled_from(sorted(COUNTED)),
    shapes=st.recursive(st.integers(-3, 9) | st.none() | st.text(max_size=2), st.lists, max_leaves=12),
    values=st.lists(st.text("[]0123, TrueFals", max_size=8), max_size=12),
)
def test_any_inputs_are_accepted(name: str, shapes: Any, values: list[str]) -> None:
    found = counted(name, shapes, values)
    assert found is None or 0 <= found < 1 << 63
