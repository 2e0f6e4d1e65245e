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

FLOPs are recorded for ops whose inputs determine them, some of which enclose each other (`aten::linear`
encloses `aten::addmm`). Only the innermost of them is counted, so no work counts twice. A kernel belongs to
the nearest such call that encloses its launch (a convolution owns the layout changes it launches), else to
the op that launched it.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from math import prod
from typing import TYPE_CHECKING

import numpy as np
import pandas as pd
import pyarrow.compute as pc

from tracekit.analysis.kernel_names import uses_tensor_cores
from tracekit.ingest.kineto import flops as formulas
from tracekit.runs.intervals import Ints
from tracekit.runs.run import Run
from tracekit.schema import C, DeviceKind, HostKind

from ..shared.common import NO_PARENT, positions
from ..shared.host_rows import (
    NO_OP,
    NO_SHAPES,
    fill_missing_text,
    host_rows,
)
from ..shared.tensor_shapes import (
    Tensor,
    item_bytes,
    tensors,
)

if TYPE_CHECKING:
    Inputs = Sequence[Tensor | None]

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
_CONVOLUTIONS = {"aten::convolution", "aten::_convolution", "aten::convolution_overrideable"}
_ATTENTION = "aten::_scaled_dot_product_"
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
    moved = _rule(name)
    if moved is None:
        return None
    try:
        found = moved(tensors(shapes, dtypes), flops)
    except (IndexError, TypeError, ValueError, ZeroDivisionError):
        return None  # an input of unknown size or dtype
    return found if found < _IMPOSSIBLE else None


def _rule(name: str) -> Callable[[Inputs, int | None], int] | None:
    short = name.removeprefix("aten::")
    if short.rstrip("_") in _PRODUCTS:
        first = _PRODUCTS[short.rstrip("_")]
        return lambda inputs, _: _read(inputs[: first + 2]) + _product(*inputs[first : first + 2])
    if short == "linear":
        return _linear
    if name in _CONVOLUTIONS:
        return _convolution
    if name == "aten::convolution_backward":
        return _convolution_backward
    if name.startswith(_ATTENTION):
        return _attention_backward if name.endswith("_backward") else _attention
    return _memory_rule(name)


def _memory_rule(name: str) -> Callable[[Inputs, int | None], int] | None:
    """Rule of an op whose FLOPs are not counted."""
    if name == "aten::copy_":
        return lambda inputs, _: _bytes(inputs[0]) + _bytes(inputs[1])
    if name in {"aten::fill_", "aten::zero_"}:
        return lambda inputs, _: _bytes(inputs[0])
    if name in _MAPS:
        return _mapped(_MAPS[name])
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
    one = _read((gradient, data, weight))
    products = 2 * prod(weight.shape[1:])
    both = flops in {2 * gradient.elements * products, 2 * data.elements * products}
    return one + both * _read((data, weight))


def _attention(inputs: Inputs, _flops: int | None) -> int:
    query, _, value = inputs[:3]
    if query is None or value is None:
        raise ValueError
    return _read(inputs[:3]) + prod(query.shape[:-1]) * value.shape[-1] * _item(query)


def _attention_backward(inputs: Inputs, _flops: int | None) -> int:
    gradient, *given = inputs[:4]
    return 2 * _bytes(gradient) + 2 * sum(_bytes(tensor) for tensor in given)


def _softmax(arity: int) -> Callable[[Inputs, int | None], int]:
    """Rule of a softmax of `arity` tensors; an additional one is the output."""

    def moved(inputs: Inputs, _flops: int | None) -> int:
        if _item(inputs[0]) < _WIDE:
            raise ValueError
        return _read(inputs[:arity]) + _bytes(inputs[0])

    return moved


def _mapped(arity: int) -> Callable[[Inputs, int | None], int]:
    """Rule of an element-wise op of `arity` inputs; an additional tensor is the output."""

    def moved(inputs: Inputs, _flops: int | None) -> int:
        given = inputs[:arity] if len(inputs) > arity and inputs[-1] is not None else inputs
        return _read(given) + _broadcast(given)

    return moved


def _broadcast(inputs: Inputs) -> int:
    """Bytes of an element-wise result: the broadcast shape at the widest floating type, else the widest."""
    present = [tensor for tensor in inputs if tensor is not None]
    sized = [tensor for tensor in present if tensor.shape] or present
    floating = [tensor for tensor in sized if _is_floating(tensor.dtype)] or sized
    return prod(np.broadcast_shapes(*(tensor.shape for tensor in sized))) * max(
        _item(one) for one in floating
    )


def _is_floating(dtype: str) -> bool:
    return dtype in {"float", "double"} or dtype.startswith(("c10::Half", "c10::BFloat16", "c10::Float8"))


OWNER, OP, DTYPE, PRECISION, MOVED, MATRIX = "owner", "op", "dtype", "precision", "moved", "matrix"
TENSOR, SIMT, NARROW = "tensor", "simt", "narrow"
UNKNOWN = -1
"""Missing FLOPs and bytes in group keys, which must not be null."""

_READ = (C.ROW_ID, C.NAME, C.RANK, C.DEVICE, C.START_NS, C.DUR_NS, C.STEP, C.OP_ROW)
_MATRIX_KERNEL = (
    r"(?i)(?<!fb)gemm|gemv|conv(?!ert)|xmma|cutlass(?:_\d|__\d|::(?:kernel|device_kernel))|nvjet|fmha"
    r"|flash_(?:fwd|bwd|attn)|winograd|Cijk_|wgrad|dgrad|fprop"
)
_PLAIN = re.compile(r"f32f32_f32f32|cijk_|gtcx")
_SIMT_KERNEL = r"(?i)sgemm|ffma|simt|scudnn|(?:dgrad|wgrad_alg0)_engine<float"
_NARROW_KERNEL = r"(?i)align[124](?!\d)"
_PRECISIONS = {
    "double": "fp64",
    "float": "fp32",
    "c10::Half": "fp16",
    "c10::BFloat16": "bf16",
    "signed char": "int8",
}


def launched(run: Run) -> tuple[pd.DataFrame, Ints]:
    """The kernels, each with its call (`owner`, null without one), and the ids of counted calls."""
    where = pc.field(C.KIND) == str(DeviceKind.KERNEL)
    kernels = run.table("device_intervals", columns=_READ, where=where)
    rows = pd.Series(kernels[C.OP_ROW].dropna().unique(), dtype="Int64")
    nearest, counted = _nearest(run, rows)
    known = dict(zip(rows, nearest, strict=True))
    owners = kernels[C.OP_ROW].map(known, na_action="ignore").astype("Int64")
    columns = pd.DataFrame({OWNER: owners, **_by_name(kernels[C.NAME])})
    return kernels.join(columns), counted


def _by_name(names: pd.Series) -> dict[str, pd.Series]:
    """Flags from kernel names, evaluated once per distinct name."""
    distinct = names.cat.categories.astype(str).to_series(index=names.cat.categories)
    tensor = distinct.map(_on_tensor_cores).astype(bool)
    flags = {
        TENSOR: tensor,
        SIMT: distinct.str.contains(_SIMT_KERNEL, regex=True) & ~tensor,
        NARROW: distinct.str.contains(_NARROW_KERNEL, regex=True),
        MATRIX: distinct.str.contains(_MATRIX_KERNEL, regex=True),
    }
    codes = names.cat.codes.to_numpy()
    return {key: pd.Series(values.to_numpy(bool)[codes], index=names.index) for key, values in flags.items()}


def _on_tensor_cores(name: str) -> bool:
    """Whether a kernel uses tensor cores; libraries also have plain FP32 kernels (such as AMD's)."""
    low = name.lower()
    return "tf32" in low or (uses_tensor_cores(name) and not _PLAIN.search(low))


def _nearest(run: Run, rows: pd.Series) -> tuple[Ints, Ints]:
    """For each row the nearest call with FLOPs among it and its ancestors, else itself; and counted calls."""
    where = pc.field(C.FLOPS).is_valid()
    worked = run.table("host_intervals", columns=[C.ROW_ID], where=where)[C.ROW_ID].to_numpy(np.int64)
    wanted = rows.to_numpy(dtype=np.int64)
    if not len(worked):
        return wanted, worked
    every = run.table("host_intervals", columns=[C.ROW_ID, C.PARENT_ROW])
    ids = every[C.ROW_ID].to_numpy(np.int64)
    parent = positions(every[C.ROW_ID], every[C.PARENT_ROW])
    has_work = np.isin(ids, worked)
    own = _nearest_stop(positions(every[C.ROW_ID], rows), parent, has_work)
    outer = _nearest_stop(parent[has_work], parent, has_work)
    counts = has_work.copy()
    counts[outer[outer != NO_PARENT]] = False
    return np.where(own == NO_PARENT, wanted, ids[own]), ids[counts]


def _nearest_stop(at: Ints, parent: Ints, stop: np.ndarray[tuple[int], np.dtype[np.bool_]]) -> Ints:
    """First position among each position and its ancestors at which to stop, else `NO_PARENT`."""
    at = at.copy()
    while (climbing := (at != NO_PARENT) & ~stop[at]).any():
        at[climbing] = parent[at[climbing]]
    return at


def calls(run: Run, kernels: pd.DataFrame, counted: Ints) -> pd.DataFrame:
    """One row per call and device: op, shapes, dtype, precision, FLOPs and bytes (`UNKNOWN` if missing).

    `matrix` means that the op itself multiplies matrices, with known or unknown FLOPs.

    Args:
        run: The run.
        kernels: Its kernels with their calls.
        counted: Ids of counted calls.
    """
    owned = kernels[kernels[OWNER].notna()]
    keys = [OWNER, C.RANK, C.DEVICE]
    uses_tensor = owned.groupby(keys, sort=False)[[TENSOR]].any()
    table = uses_tensor.join(owned.groupby(keys, sort=False)[[C.STEP]].min()).reset_index()
    return _described(run, table, counted)


def host_calls(run: Run) -> pd.DataFrame:
    """Counted calls on the host, with rank and duration."""
    columns = [C.ROW_ID, C.RANK, C.DUR_NS]
    where = (pc.field(C.KIND) == str(HostKind.OP)) & pc.field(C.FLOPS).is_valid()
    table = run.table("host_intervals", columns=columns, where=where).rename(columns={C.ROW_ID: OWNER})
    _, counted = _nearest(run, pd.Series(dtype="Int64"))
    table = table[table[OWNER].isin(counted)].reset_index(drop=True)
    table[OWNER], table[TENSOR] = table[OWNER].astype("Int64"), False
    return _described(run, table, counted)


def _described(run: Run, table: pd.DataFrame, counted: Ints) -> pd.DataFrame:
    columns = [C.NAME, C.INPUT_SHAPES, C.INPUT_DTYPES, C.FLOPS]
    found = host_rows(run, table[OWNER], columns)
    flops = found[C.FLOPS].where(table[OWNER].isin(counted)).fillna(UNKNOWN).to_numpy(np.int64)
    texts_of = {name: fill_missing_text(found[name], "") for name in columns[:3]}
    described = pd.DataFrame({OP: fill_missing_text(found[C.NAME], NO_OP), **texts_of, C.FLOPS: flops})
    described[[MOVED, DTYPE, MATRIX]] = _each(described)
    encloses = found[C.FLOPS].notna().to_numpy(bool) & (flops == UNKNOWN)
    described[MATRIX] = described[MATRIX].astype(bool) & ~encloses
    tensor = table[TENSOR].to_numpy(bool)
    precision = described[DTYPE].map(precision_of).to_numpy(object)
    described[PRECISION] = np.where((precision == "fp32") & tensor, "tf32", precision)
    described[C.INPUT_SHAPES] = described[C.INPUT_SHAPES].replace("", NO_SHAPES)
    return table.join(described.drop(columns=[C.NAME, C.INPUT_DTYPES]).set_index(table.index))


def _each(described: pd.DataFrame) -> pd.DataFrame:
    """Bytes, dtype and whether it is a matrix product, computed once per distinct call."""
    keys = [C.NAME, C.INPUT_SHAPES, C.INPUT_DTYPES, C.FLOPS]
    codes = described.groupby(keys, sort=False).ngroup().to_numpy()
    rows = described[keys].drop_duplicates().itertuples(index=False, name=None)
    found = [_one(*row) for row in rows]
    distinct = pd.DataFrame(found, columns=[MOVED, DTYPE, MATRIX])
    return distinct.iloc[codes].set_axis(described.index)


def _one(name: str, shapes: str, dtypes: str, flops: int) -> tuple[int, str, bool]:
    moved = minimum_bytes(name, shapes, dtypes, flops if flops != UNKNOWN else None)
    return UNKNOWN if moved is None else moved, _dtype(shapes, dtypes), name in formulas.COUNTED


def _dtype(shapes: str, dtypes: str) -> str:
    """The dtype of the first tensor."""
    found = (tensor.dtype for tensor in tensors(shapes, dtypes) if tensor and tensor.dtype)
    return next(found, "")


def precision_of(dtype: str) -> str:
    """Precision of a dtype in the peaks of a device, else the dtype.

    Example:
        >>> precision_of("c10::BFloat16"), precision_of("c10::Float8_e4m3fn"), precision_of("long int")
        ('bf16', 'fp8', 'long int')
    """
    if dtype.startswith("c10::Float8"):
        return "fp8"
    return _PRECISIONS.get(dtype, dtype)
