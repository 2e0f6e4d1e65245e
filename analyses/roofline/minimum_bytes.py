"""Minimum bytes a call of an op must move: each input read once and the output written once.

Computed from recorded shapes and dtypes if these determine the size of the output:

* matrix products, convolutions and attention; the output of a convolution from its FLOPs. A backward
  convolution reads the output gradient, the input and the weight, and writes the gradients asked for.
* element-wise ops: the output has the broadcast shape of the inputs; an op whose name ends in `_` writes its
  first input; `copy_` reads its second and writes its first, `fill_` and `zero_` only write.
* normalizations and softmax, forward and backward: the output is as large as the first input. A softmax of
  16-bit numbers is excluded: it may write 32-bit ones.

Reductions, pooling, concatenation, gathers and ops on lists of tensors are excluded: the recorded inputs do
not determine their output. An expanded input counts at its full size. Caches are not modeled.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import prod
from typing import TypeAlias

import numpy as np

from ..shared.tensor_shapes import Tensor, item_bytes, tensors

Inputs: TypeAlias = "Sequence[Tensor | None]"
Formula: TypeAlias = "Callable[[Inputs, int | None], int]"
"""Bytes by the inputs and the FLOPs; ValueError or the like if they do not determine them."""

_ARITIES = {
    1: "abs neg exp log sqrt rsqrt reciprocal square relu silu sigmoid tanh sin cos erf hardswish "
    "hardsigmoid",
    2: "gelu mul div pow maximum minimum leaky_relu clamp_min clamp_max sigmoid_backward tanh_backward "
    "silu_backward hardswish_backward hardsigmoid_backward",
    3: "add sub rsub where lerp clamp hardtanh softplus threshold_backward gelu_backward",
    4: "addcmul addcdiv elu hardtanh_backward leaky_relu_backward softplus_backward",
}
_MAPS = {f"aten::{name}": arity for arity, names in _ARITIES.items() for name in names.split()}
"""Element-wise ops and their number of inputs."""
_LIKE_FIRST = {
    *(f"aten::{kind}_batch_norm{way}" for kind in ("native", "cudnn", "miopen") for way in ("", "_backward")),
    *(f"aten::native_{kind}_norm{way}" for kind in ("layer", "group") for way in ("", "_backward")),
}
_SOFTMAX = {f"aten::_{kind}softmax{way}" for kind in ("", "log_") for way in ("", "_backward_data")}
_PRODUCTS = {"mm": 0, "bmm": 0, "mv": 0, "addmm": 1, "_addmm_activation": 1, "baddbmm": 1, "addmv": 1}
_IMPOSSIBLE = 1 << 48
"""Upper limit of plausible sizes; larger shapes are damaged."""
_WIDE = 4
"""Minimum item size at which the output of a softmax has the dtype of its input."""


def minimum_bytes(name: str, shapes: str, dtypes: str, flops: int | None) -> int | None:
    """Bytes one call must move; None if the inputs do not determine them.

    Args:
        name: The op.
        shapes: Shapes of its inputs as recorded.
        dtypes: Their dtypes as recorded.
        flops: Its FLOPs, which give the output of a convolution.

    Example:
        >>> minimum_bytes("aten::mm", "[[2,3],[3,5]]", '["float","float"]', 60)
        124
        >>> minimum_bytes("aten::add_", "[[8],[8],[]]", '["c10::Half","c10::Half","Scalar"]', None)
        48
    """
    formula = _rule(name)
    if formula is None:
        return None
    try:
        moved = formula(tensors(shapes, dtypes), flops)
    except (IndexError, TypeError, ValueError, ZeroDivisionError):
        return None  # an input of unknown size or dtype
    return moved if moved < _IMPOSSIBLE else None


def _rule(name: str) -> Formula | None:
    short = name.removeprefix("aten::")
    if short.rstrip("_") in _PRODUCTS:
        first = _PRODUCTS[short.rstrip("_")]
        return lambda inputs, _: _read(inputs[: first + 2]) + _product(*inputs[first : first + 2])
    if short == "linear":
        return _linear
    if name in {"aten::convolution", "aten::_convolution", "aten::convolution_overrideable"}:
        return _convolution
    if name == "aten::convolution_backward":
        return _convolution_backward
    if name.startswith("aten::_scaled_dot_product_"):
        return _attention_backward if name.endswith("_backward") else _attention
    return _memory_rule(name)


def _memory_rule(name: str) -> Formula | None:
    """Rule of an op whose FLOPs are not counted."""
    if name == "aten::copy_":
        return lambda inputs, _: _bytes(inputs[0]) + _bytes(inputs[1])
    if name in {"aten::fill_", "aten::zero_"}:
        return lambda inputs, _: _bytes(inputs[0])
    if name in _MAPS:
        return _elementwise(_MAPS[name])
    if name.endswith("_") and name.removesuffix("_") in _MAPS:
        return lambda inputs, _: _read(inputs) + _bytes(inputs[0])
    if name in _LIKE_FIRST:
        return lambda inputs, _: _read(inputs) + _bytes(inputs[0])
    return _softmax(1 + name.endswith("_data")) if name in _SOFTMAX else None


def _bytes(tensor: Tensor | None) -> int:
    if tensor is None or tensor.bytes is None:
        raise ValueError
    return tensor.bytes


def _item(tensor: Tensor | None) -> int:
    size = item_bytes(tensor.dtype) if tensor else None
    if size is None:
        raise ValueError
    return size


def _read(inputs: Inputs) -> int:
    return sum(_bytes(tensor) for tensor in inputs if tensor is not None)


def _product(left: Tensor | None, right: Tensor | None) -> int:
    """Bytes written by a product."""
    if left is None or right is None:
        raise ValueError
    columns = right.shape[-1] if len(right.shape) > 1 else 1
    return prod(left.shape[:-1]) * columns * _item(left)


def _linear(inputs: Inputs, _flops: int | None) -> int:
    data, weight = inputs[:2]
    if data is None or weight is None:
        raise ValueError
    return _read(inputs[:3]) + prod(data.shape[:-1]) * prod(weight.shape[:-1]) * _item(data)


def _convolution(inputs: Inputs, flops: int | None) -> int:
    weight = inputs[1]
    if weight is None or not flops:
        raise ValueError
    return _read(inputs[:3]) + flops // (2 * prod(weight.shape[1:])) * _item(weight)


def _convolution_backward(inputs: Inputs, flops: int | None) -> int:
    gradient, data, weight = inputs[:3]
    if gradient is None or data is None or weight is None or not flops:
        raise ValueError
    read = _read((gradient, data, weight))
    products = 2 * prod(weight.shape[1:])
    both = flops in {2 * gradient.elements * products, 2 * data.elements * products}
    return read + both * _read((data, weight))


def _attention(inputs: Inputs, _flops: int | None) -> int:
    query, _, value = inputs[:3]
    if query is None or value is None:
        raise ValueError
    return _read(inputs[:3]) + prod(query.shape[:-1]) * value.shape[-1] * _item(query)


def _attention_backward(inputs: Inputs, _flops: int | None) -> int:
    gradient, *others = inputs[:4]
    return 2 * _bytes(gradient) + 2 * sum(_bytes(tensor) for tensor in others)


def _softmax(arity: int) -> Formula:
    """Rule of a softmax of `arity` tensors; an additional one is the output."""

    def formula(inputs: Inputs, _flops: int | None) -> int:
        if _item(inputs[0]) < _WIDE:
            raise ValueError
        return _read(inputs[:arity]) + _bytes(inputs[0])

    return formula


def _elementwise(arity: int) -> Formula:
    """Rule of an element-wise op of `arity` inputs; an additional tensor is the output."""

    def formula(inputs: Inputs, _flops: int | None) -> int:
        tensors_ = inputs[:arity] if len(inputs) > arity and inputs[-1] is not None else inputs
        return _read(tensors_) + _broadcast(tensors_)

    return formula


def _broadcast(inputs: Inputs) -> int:
    """Bytes of an element-wise result: the broadcast shape at the widest floating type, else the widest."""
    present = [tensor for tensor in inputs if tensor is not None]
    sized = [tensor for tensor in present if tensor.shape] or present
    floating = [tensor for tensor in sized if _is_floating(tensor.dtype)] or sized
    return prod(np.broadcast_shapes(*(tensor.shape for tensor in sized))) * max(
        _item(tensor) for tensor in floating
    )


def _is_floating(dtype: str) -> bool:
    return dtype in {"float", "double"} or dtype.startswith(("c10::Half", "c10::BFloat16", "c10::Float8"))
