"""Floating point operations of one call of an op, from the shapes and values of its inputs.

A multiplication and an addition count as two. Counted are matrix products (2·m·n·k), convolutions and
attention; the operations of a bias, of a softmax and of anything element-wise are not. With P = Π(weight
shape without its first dimension) = (input channels per group)·Π(kernel size):

* convolution: 2·(elements of the output)·P, since each output element is a dot product of length P; the
  output size is ⌊(i + 2·padding − dilation·(kernel − 1) − 1) / stride⌋ + 1. Padding counts like data.
* transposed convolution: 2·(elements of the input)·P, since each input element is spread over P outputs.
* backward convolution: as much as the forward one for each of the gradients of input and weight asked for;
  the gradient of the output has the forward's output size.
* attention: 2·b·h·s_q·s_k·(d + d_v) forward (QKᵀ and PV), and 2·b·h·s_q·s_k·(3·d + 2·d_v) backward (QKᵀ
  again, dV, dP, dQ, dK; 2.5 times the forward when d = d_v). h is the number of query heads, also where
  several of them share a head of keys and values. A causal mask over as many keys as queries halves it.
  Sequences of variable length are counted where the shapes tell the lengths: one sequence, or all of the
  longest length. With a sliding window the work is unknown, and so it is for a paged cache, whose lengths are
  values.

These are the definitions of `torch.utils.flop_counter`, but for causal attention, which torch does not halve,
and for the weight gradient of a grouped convolution: there torch counts the channels of all groups, which is
too much by the number of groups.

Missing data is unknown, never guessed: without `Concrete Inputs` (which PyTorch 2 records with
`record_shapes=True`) strides are unknown, and so is the work of a convolution.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache, partial
from math import prod
from typing import Any, TypeAlias

import msgspec

Shape: TypeAlias = list[int]
Shapes: TypeAlias = list[Shape]
Values: TypeAlias = list[Any]

_LIMIT = 1 << 63
_SPATIAL = 2  # dimensions before the spatial ones: batch and channels


def count(name: str, dims: bytes, concrete: bytes) -> int | None:
    """Return the floating point operations of a call; None if the op or its inputs are unknown.

    Args:
        name: The op.
        dims: `Input Dims`, JSON: the shape of each input.
        concrete: `Concrete Inputs`, JSON: the text of each input that is no tensor; empty when not recorded.

    Example:
        >>> count("aten::mm", b"[[2,3],[3,5]]", b"")
        60
    """
    formula = _FORMULAS.get(name)
    return _counted(name, dims, concrete) if formula and dims else None


@lru_cache(maxsize=1 << 14)
def _counted(name: str, dims: bytes, concrete: bytes) -> int | None:
    try:
        shapes = [_shape(entry) for entry in msgspec.json.decode(dims, type=list[Any])]
        values = [_value(text) for text in msgspec.json.decode(concrete, type=list[Any])] if concrete else []
        work = _FORMULAS[name](shapes, values)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return None
    except (ArithmeticError, LookupError, TypeError, ValueError):
        return None  # shapes that are invalid for the op
    return work if type(work) is int and 0 <= work < _LIMIT else None


def _shape(entry: Any) -> Shape:
    """Return a shape; empty for other values, such as a list of tensors."""
    is_shape = isinstance(entry, list) and all(type(size) is int and size >= 0 for size in entry)
    return entry if is_shape else []


def _value(text: Any) -> Any:
    """Parse a concrete input, in Python syntax: `[1, 1]`, `True`; None for a tensor."""
    if not isinstance(text, str) or not text:
        return None
    try:
        return msgspec.json.decode(text.lower())
    except (msgspec.DecodeError, RecursionError):
        return None


def _product(left: Shape, right: Shape) -> int:
    """Count a product of matrices, or of batches of matrices."""
    *stack, m, k = left
    *other, inner, n = right
    if inner != k or other != stack:
        raise ValueError
    return 2 * prod(stack) * m * n * k


def _products(first: int) -> Callable[[Shapes, Values], int]:
    """Return the formula of an op that multiplies inputs `first` and `first + 1`."""
    return lambda shapes, _values: _product(shapes[first], shapes[first + 1])


def _vector(first: int) -> Callable[[Shapes, Values], int]:
    """Return the formula of a matrix (or a vector) times a vector."""

    def formula(shapes: Shapes, _values: Values) -> int:
        left, right = shapes[first], shapes[first + 1]
        if len(right) != 1 or left[-1] != right[0]:
            raise ValueError
        return 2 * prod(left)

    return formula


def _linear(shapes: Shapes, _values: Values) -> int:
    inputs, weight = shapes[0], shapes[1]
    if inputs[-1] != weight[-1]:
        raise ValueError
    return 2 * prod(inputs) * prod(weight[:-1])


def _convolution(shapes: Shapes, values: Values) -> int:
    inputs, weight = shapes[0], shapes[1]
    stride, padding, dilation, transposed = values[3:7]
    if transposed is True:
        return _per_element(inputs, weight)
    if transposed is not False or len(inputs) != len(weight):
        raise ValueError
    reach = [_of(dilation, axis) * (size - 1) + 1 for axis, size in enumerate(weight[_SPATIAL:])]
    outputs = [
        (size + 2 * _of(padding, axis) - reach[axis]) // _of(stride, axis) + 1
        for axis, size in enumerate(inputs[_SPATIAL:])
    ]
    if min(outputs) < 1:
        raise ValueError
    return _per_element([inputs[0], weight[0], *outputs], weight)


def _per_element(shape: Shape, weight: Shape) -> int:
    """Count one dot product of the length of an output channel of the weight per element."""
    if len(shape) != len(weight) or len(shape) <= _SPATIAL:
        raise ValueError
    return 2 * prod(shape) * prod(weight[1:])


def _of(numbers: list[int], axis: int) -> int:
    """Return the value of an axis; a list of one value applies to all axes."""
    return numbers[axis] if len(numbers) > 1 else numbers[0]


def _transposed_convolution(shapes: Shapes, _values: Values) -> int:
    return _per_element(shapes[0], shapes[1])


def _convolution_backward(shapes: Shapes, values: Values) -> int:
    gradient, inputs, weight = shapes[:3]
    transposed, (of_input, of_weight, _) = values[7], values[10]
    if not all(isinstance(flag, bool) for flag in (transposed, of_input, of_weight)):
        raise ValueError
    forward = _per_element(inputs if transposed else gradient, weight)
    return forward * (int(of_input) + int(of_weight))


def _attention(
    first: int, *, matmuls: tuple[int, int], causal: int, heads: int = 1, window: int | None = None
) -> Callable[[Shapes, Values], int]:
    """Return the formula of fused attention, from the index of the input with the queries.

    `matmuls` are the numbers of products over d and over d_v; `heads` is the dimension of the heads, 1 or 2.
    `causal` and `window` are indices of the flag of a causal mask, and of the size of a sliding window.
    """

    def formula(shapes: Shapes, values: Values) -> int:
        query, key, value = shapes[first : first + 3]
        batch, wide = query[0], query[heads]
        if any(len(shape) != 4 or shape[0] != batch for shape in (query, key, value)):
            raise ValueError
        if query[3] != key[3] or key[1:3] != value[1:3]:
            raise ValueError
        if window is not None and window < len(values) and values[window] >= 0:  # negative: no window
            raise ValueError
        depth = matmuls[0] * query[3] + matmuls[1] * value[3]
        pairs = _pairs(query[3 - heads], key[3 - heads], is_causal=causal < len(values) and values[causal])
        return 2 * batch * wide * pairs * depth

    return formula


def _pairs(queries: int, keys: int, *, is_causal: bool) -> int:
    """Count the pairs of queries and keys, half of them under a causal mask over equally many."""
    return queries * keys // 2 if is_causal and queries == keys else queries * keys


def _packed_attention(causal: int) -> Callable[[Shapes, Values], int]:
    """Return the formula of attention over packed sequences, whose bounds are inputs 3 and 4."""

    def formula(shapes: Shapes, values: Values) -> int:
        query, key, value, bounds, key_bounds = shapes[:5]
        sequences, longest, longest_key = bounds[0] - 1, values[5], values[6]
        if any(len(shape) != 3 for shape in (query, key, value)) or bounds != key_bounds or sequences < 1:
            raise ValueError
        if query[0] != sequences * longest or key[0] != sequences * longest_key or query[2] != key[2]:
            raise ValueError  # of different lengths, which are values of the bounds
        pairs = _pairs(longest, longest_key, is_causal=values[causal])
        return 2 * sequences * query[1] * pairs * (query[2] + value[2])

    return formula


_FUSED = {
    "flash_attention": (4, 11),
    "efficient_attention": (6, 11),
    "cudnn_attention": (6, 14),
    "flash_attention_for_cpu": (4, 7),
}
"""Index of `is_causal` among the inputs of the forward op and of the backward one."""


def _fused_attention() -> dict[str, Callable[[Shapes, Values], int]]:
    forward, backward = partial(_attention, 0, matmuls=(1, 1)), partial(_attention, 1, matmuls=(3, 2))
    names = {
        "flash_attn::_flash_attn_forward": forward(causal=5, window=6, heads=2),
        "flash_attn::_flash_attn_backward": backward(causal=11, window=12, heads=2),
        "aten::_flash_attention_forward": _packed_attention(causal=8),
        "flash_attn::_flash_attn_varlen_forward": _packed_attention(causal=9),
    }
    for kind, (in_forward, in_backward) in _FUSED.items():
        names[f"aten::_scaled_dot_product_{kind}"] = forward(causal=in_forward)
        names[f"aten::_scaled_dot_product_{kind}_backward"] = backward(causal=in_backward)
    return names


_FORMULAS: dict[str, Callable[[Shapes, Values], int]] = {
    **dict.fromkeys(("aten::mm", "aten::bmm", "aten::_int_mm", "aten::_scaled_mm"), _products(0)),
    **dict.fromkeys(("aten::addmm", "aten::addmm_", "aten::_addmm_activation"), _products(1)),
    **dict.fromkeys(("aten::baddbmm", "aten::baddbmm_", "aten::addbmm"), _products(1)),
    **dict.fromkeys(("aten::mv", "aten::dot", "aten::vdot"), _vector(0)),
    **dict.fromkeys(("aten::addmv", "aten::addmv_"), _vector(1)),
    "aten::linear": _linear,
    **dict.fromkeys(
        ("aten::convolution", "aten::_convolution", "aten::convolution_overrideable"), _convolution
    ),
    **dict.fromkeys(
        ("aten::cudnn_convolution_transpose", "aten::miopen_convolution_transpose"), _transposed_convolution
    ),
    **dict.fromkeys(("aten::slow_conv_transpose2d", "aten::slow_conv_transpose3d"), _transposed_convolution),
    "aten::convolution_backward": _convolution_backward,
    **_fused_attention(),
}
COUNTED = frozenset(_FORMULAS)
"""Ops that are counted if their inputs are known."""
