"""Calls of ops that launched kernels, with the FLOPs and the minimum bytes of each.

FLOPs are recorded for ops whose inputs determine them, some of which enclose each other (`aten::linear`
encloses `aten::addmm`). Only the innermost of them is counted, so no work counts twice. A kernel belongs to
the nearest such call that encloses its launch (a convolution owns the layout changes it launches), else to
the op that launched it.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from math import prod
from typing import TypeAlias

import numpy as np
import pandas as pd
import pyarrow.compute as pc

from tracekit.analysis.kernel_names import matches, uses_tensor_cores
from tracekit.ingest.kineto import flops as formulas
from tracekit.ingest.link.nesting import climb_to
from tracekit.runs.intervals import Ints
from tracekit.runs.run import Run
from tracekit.schema import C, DeviceKind, HostKind

from ..shared.common import NO_PARENT, is_kind, map_texts, to_categorical
from ..shared.groups import keys_of, number_by
from ..shared.host_columns import read_parents
from ..shared.host_rows import NO_OP, NO_SHAPES, host_rows, host_texts
from ..shared.intervals_by_class import drop_overruns
from ..shared.tensor_shapes import Tensor, item_bytes, tensors

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
_PRECISIONS = {
    "double": "fp64",
    "float": "fp32",
    "c10::Half": "fp16",
    "c10::BFloat16": "bf16",
    "signed char": "int8",
}


def read_kernels(run: Run) -> tuple[pd.DataFrame, Ints]:
    """The kernels, each with its call (`owner`, null without one), and the ids of counted calls."""
    kernels = run.table("device_intervals", columns=_READ, where=is_kind(DeviceKind.KERNEL))
    kernels = drop_overruns(run, kernels)
    codes, rows = pd.factorize(kernels[C.OP_ROW])
    nearest, counted = _nearest(run, pd.Series(rows, dtype="Int64"))
    owners = pd.arrays.IntegerArray(np.append(nearest, 0)[codes], codes < 0)
    return kernels.assign(**{OWNER: owners}, **_by_name(kernels[C.NAME])), counted


def _by_name(names: pd.Series) -> dict[str, pd.Series]:
    """Bools from kernel names, evaluated once per distinct name."""
    tensor = map_texts(names, _on_tensor_cores).astype(bool)
    return {
        TENSOR: tensor,
        SIMT: matches(names, _SIMT_KERNEL) & ~tensor,
        NARROW: matches(names, r"(?i)align[124](?!\d)"),
        MATRIX: matches(names, _MATRIX_KERNEL),
    }


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
    parents = read_parents(run)
    parent, places = parents.parent, parents.index.of(worked)
    id_at = np.full(len(parent) + 1, NO_PARENT, np.int64)
    id_at[places] = worked
    has_work = id_at[:-1] != NO_PARENT
    own_stop = climb_to(parents.index.of(wanted), parent, has_work)
    outer = climb_to(parent[places], parent, has_work)  # an op that encloses a counted one would count twice
    return np.where(own_stop == NO_PARENT, wanted, id_at[own_stop]), worked[~np.isin(places, outer)]


def read_calls(run: Run, kernels: pd.DataFrame, counted: Ints) -> tuple[pd.DataFrame, Ints]:
    """One row per call and device: op, shapes, dtype, precision, FLOPs and bytes (`UNKNOWN` if missing).

    `matrix` means that the op itself multiplies matrices, with known or unknown FLOPs.

    Returns:
        The calls, and the row of the call of each kernel, `UNKNOWN` without one.
    """
    launched = np.flatnonzero(kernels[OWNER].notna())
    of_calls, keys = kernels.iloc[launched], [OWNER, C.RANK, C.DEVICE]
    codes, first = number_by(of_calls, keys)
    uses_tensor = np.bincount(codes, of_calls[TENSOR]) > 0
    table = of_calls[keys].iloc[first].reset_index(drop=True)
    table[TENSOR], table[C.STEP] = uses_tensor, of_calls[C.STEP].groupby(codes).min()
    call = np.full(len(kernels), UNKNOWN)
    call[launched] = codes
    return _describe(run, table, counted), call


def read_host_calls(run: Run) -> pd.DataFrame:
    """Counted calls on the host, with rank and duration."""
    columns = [C.ROW_ID, C.RANK, C.DUR_NS]
    where = is_kind(HostKind.OP) & pc.field(C.FLOPS).is_valid()
    table = run.table("host_intervals", columns=columns, where=where).rename(columns={C.ROW_ID: OWNER})
    _, counted = _nearest(run, pd.Series(dtype="Int64"))
    table = table[table[OWNER].isin(counted)].reset_index(drop=True)
    table[OWNER], table[TENSOR] = table[OWNER].astype("Int64"), False
    return _describe(run, table, counted)


def _describe(run: Run, table: pd.DataFrame, counted: Ints) -> pd.DataFrame:
    texts = host_texts(run, table[OWNER], {C.NAME: NO_OP, C.INPUT_SHAPES: "", C.INPUT_DTYPES: ""})
    recorded = host_rows(run, table[OWNER], [C.FLOPS])[C.FLOPS].fillna(UNKNOWN).to_numpy(np.int64)
    flops = np.where(table[OWNER].isin(counted), recorded, UNKNOWN)
    described = pd.DataFrame({**texts, C.FLOPS: flops})
    codes, first = number_by(described, [*described])
    distinct = keys_of(described, [*described], first).itertuples(index=False, name=None)
    calls = [_describe_call(*row) for row in distinct]
    moved = np.array([moved for moved, _, _ in calls], np.int64)[codes]
    dtypes = [dtype for _, dtype, _ in calls]
    matrix = np.array([matrix for _, _, matrix in calls], np.bool_)[codes]
    encloses = (recorded != UNKNOWN) & (flops == UNKNOWN)
    precisions = [*map(precision_of, dtypes)]
    on_tensor_cores = ["tf32" if precision == "fp32" else precision for precision in precisions]
    shapes = texts[C.INPUT_SHAPES]
    return table.assign(
        **{
            OP: texts[C.NAME],
            C.INPUT_SHAPES: to_categorical([text or NO_SHAPES for text in shapes.categories], shapes.codes),
            C.FLOPS: flops,
            MOVED: moved,
            DTYPE: to_categorical(dtypes, codes),
            MATRIX: matrix & ~encloses,
            PRECISION: to_categorical(
                [*precisions, *on_tensor_cores], codes + len(calls) * table[TENSOR].to_numpy(bool)
            ),
        }
    )


def _describe_call(name: str, shapes: str, dtypes: str, flops: int) -> tuple[int, str, bool]:
    moved = minimum_bytes(name, shapes, dtypes, flops if flops != UNKNOWN else None)
    first = next((tensor.dtype for tensor in tensors(shapes, dtypes) if tensor and tensor.dtype), "")
    return UNKNOWN if moved is None else moved, first, name in formulas.COUNTED


def precision_of(dtype: str) -> str:
    """Precision of a dtype in the peaks of a device, else the dtype.

    Example:
        >>> precision_of("c10::BFloat16"), precision_of("c10::Float8_e4m3fn"), precision_of("long int")
        ('bf16', 'fp8', 'long int')
    """
    if dtype.startswith("c10::Float8"):
        return "fp8"
    return _PRECISIONS.get(dtype, dtype)


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
_IMPOSSIBLE = 1 << 48  # upper limit of plausible sizes; larger shapes are damaged
_WIDE = 4  # minimum item size at which the output of a softmax has the dtype of its input


def minimum_bytes(name: str, shapes: str, dtypes: str, flops: int | None) -> int | None:
    """Bytes one call must move, each input read once and the output written once; None if unknown.

    Recorded shapes and dtypes determine the size of the output of:

    * matrix products, convolutions and attention; the output of a convolution from its FLOPs. A backward
      convolution reads the output gradient, the input and the weight, and writes the gradients asked for.
    * element-wise ops: the output has the broadcast shape of the inputs; an op whose name ends in `_` writes
      its first input; `copy_` reads its second and writes its first, `fill_` and `zero_` only write.
    * normalizations and softmax, forward and backward: the output is as large as the first input. A softmax
      of 16-bit numbers is excluded: it may write 32-bit ones.

    Reductions, pooling, concatenation, gathers and ops on lists of tensors are excluded. An expanded input
    counts at its full size. Caches are not modeled.

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
