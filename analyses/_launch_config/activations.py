"""Identification of ReLU kernels by the kernel's name and the launching op.

A kernel with relu, threshold or clamp_min in its name is one of:

* `fused`: a convolution or matrix product that can apply a ReLU to its output, as in
  `volta_scudnn_128x64_relu_interior_nn_v1`; its time is that of the convolution;
* `compiled`: a compiled kernel of several ops, including ReLU (`triton_poi_fused_relu_0`);
* `relu`: another kernel, launched by an op that is a ReLU (relu, threshold, clamp_min, their backward), or an
  element-wise one without a recorded op;
* `other`: any other, such as a leaky ReLU or another use of a threshold.

A kernel of another name that a ReLU op launched is a `relu` too.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import numpy as np
import pandas as pd

from tracekit.schema import C, Phase

from .._shared.hosts import NO_OP
from . import configs
from .configs import BLOCK, FAMILY, GRID, OP

if TYPE_CHECKING:
    from .._shared.hosts import Objects

RELU, FUSED, COMPILED, OTHER = "relu", "fused", "compiled", "other"
NAMED = re.compile(r"(?i)relu|threshold|clamp_min")
_LIBRARY = re.compile(r"(?i)(?:cudnn|cutlass|xmma|gemm|convolve|scudnn|winograd|fprop|dgrad|wgrad).*relu")
_COMPILED = re.compile(r"(?i)triton")
_OP = re.compile(r"^(?:aten::|prims::)?(?:relu6?_?|threshold_?|clamp_min_?|threshold_backward)$")
_NODE = re.compile(r"(?:^|\W)(?:Relu|Threshold|ClampMin)\w*Backward\d*$")
_VARIANT = re.compile(r"(?i)leaky|prelu|rrelu|celu|gelu|selu")
_ELEMENTWISE = re.compile(r"(?i)elementwise|clamp_scalar|\brelu_(?:forward_|backward_)?kernel")
_BACKWARD = re.compile(r"(?i)backward")
BY_NAME, BY_OP, BY_BOTH = "name", "op", "name and op"
KEYS = ["kind", "direction", OP, FAMILY, *GRID, *BLOCK, "told_by", C.RANK, C.DEVICE]


def is_op(name: str) -> bool:
    """Whether an op is a ReLU, forward or backward.

    Example:
        >>> is_op("aten::threshold_backward"), is_op("aten::leaky_relu"), is_op("aten::conv2d")
        (True, False, False)
    """
    return bool(_OP.search(name) or _NODE.search(name))


def kind_of(kernel: str, op: str) -> str:
    """Kind of a kernel with a ReLU in its name or op; empty for every other kernel.

    Example:
        >>> kind_of("volta_scudnn_128x64_relu_interior_nn_v1", "aten::cudnn_convolution")
        'fused'
        >>> kind_of("void at::native::(anonymous namespace)::launch_clamp_scalar(int)", "aten::clamp_min")
        'relu'
    """
    named, launched = bool(NAMED.search(kernel)), is_op(op)
    if not named and not launched:
        return ""
    if _LIBRARY.search(kernel):
        return FUSED
    if _COMPILED.search(kernel):
        return COMPILED
    without_op = op == NO_OP and _ELEMENTWISE.search(kernel) and not _VARIANT.search(kernel)
    return RELU if launched or without_op else OTHER


def table(rows: pd.DataFrame) -> pd.DataFrame:
    """ReLU-named kernels and kernels of ReLU ops, by kind, direction, op, family and configuration."""
    pairs = rows[[C.NAME, OP]].drop_duplicates()
    kinds = {(name, op): kind_of(name, op) for name, op in pairs.itertuples(index=False)}
    kind = pd.Series([kinds[pair] for pair in pairs.itertuples(index=False)], index=pairs.index, dtype=object)
    chosen = rows.merge(pairs.assign(kind=kind)[kind != ""], on=[C.NAME, OP])
    chosen = chosen.assign(told_by=_identified_by(chosen), direction=_directions(chosen))
    found = configs.grouped(chosen, KEYS)
    found["share"] = found["total_ns"] / max(int(rows[C.DUR_NS].sum()), 1)
    for name in (*GRID, *BLOCK):
        found[name] = found[name].astype("Int64").mask(found[name] == configs.UNKNOWN)
    order = ["total_ns", *KEYS]
    return found.sort_values(order, ascending=[False, *(True for _ in KEYS)], ignore_index=True)


def _identified_by(rows: pd.DataFrame) -> Objects:
    named = {name: bool(NAMED.search(name)) for name in rows[C.NAME].unique()}
    launched = {name: is_op(name) for name in rows[OP].unique()}
    by_name = rows[C.NAME].map(named).to_numpy(dtype=bool)
    by_op = rows[OP].map(launched).to_numpy(dtype=bool)
    return np.where(by_name & by_op, BY_BOTH, np.where(by_name, BY_NAME, BY_OP)).astype(object)


def _directions(rows: pd.DataFrame) -> Objects:
    """Direction by the op's name or its phase; empty if the op is unknown."""
    named = {name: bool(_BACKWARD.search(name)) for name in rows[OP].unique()}
    backward = rows[OP].map(named).to_numpy(dtype=bool) | (rows[C.PHASE] == Phase.BACKWARD).to_numpy()
    known = (rows[OP] != NO_OP).to_numpy()
    return np.where(~known, "", np.where(backward, "backward", "forward")).astype(object)
