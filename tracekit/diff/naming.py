"""Names as data: what a kernel does, and what an op is called whatever the version or the compiler's count.

The rules are tried in order, the first match decides; kernels are identified by their canonical name
(`tracekit.analysis.kernel_names.family`), so that equal names play one role. Raise `RULES_VERSION` with any
change of either: a comparison says which rules it used, and a test holds what each version gives.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from enum import StrEnum
from functools import lru_cache
from typing import TypeAlias

import numpy as np
import numpy.typing as npt
import pandas as pd

from tracekit.analysis.kernel_names import COMMUNICATION, family

RULES_VERSION = 4


class Role(StrEnum):
    """Category of a kernel, copy or op."""

    COLLECTIVE = "collective"
    ATTENTION = "attention"
    CONV = "conv"
    GEMM = "gemm"
    NORM = "norm"
    SOFTMAX = "softmax"
    EMBEDDING = "embedding"
    OPTIMIZER = "optimizer"
    POOL = "pool"
    SORT = "sort"
    REDUCTION = "reduction"
    FILL = "fill"
    COPY = "copy"
    ELEMENTWISE = "elementwise"
    OTHER = "other"


_KERNEL_RULES = (
    (Role.COLLECTIVE, COMMUNICATION),
    # Inductor names every op that it fused, whatever is left of it: what the loop does decides first.
    (Role.ELEMENTWISE, r"^triton_(?:poi|for)_"),
    (Role.SOFTMAX, r"^triton_(?:per|red)_\w*softmax"),
    (Role.NORM, r"^triton_(?:per|red)_\w*(?:layer|batch|group|rms|instance)_norm"),
    (Role.REDUCTION, r"^triton_(?:per|red)_"),
    (Role.CONV, r"^triton_tem_\w*conv"),
    (Role.ATTENTION, r"^triton_tem_\w*attention"),
    (Role.GEMM, r"^triton_tem_"),
    (Role.COPY, r"reshape_and_cache"),
    (Role.ATTENTION, r"(?i)flash(?!infer)|fmha|attention|_attn|attn_|paged"),
    (
        Role.CONV,
        r"(?i)conv(?!ert)|cudnn.*(?:dgrad|wgrad|fprop)|winograd|implicit_?gemm|_scudnn_|dgrad|wgrad|fprop"
        r"|miopen.*gemm|im2col|im2d2col|col2im|igemm|cask_cudnn|fft2d_(?:r2c|c2r)",
    ),
    (Role.EMBEDDING, r"(?i)split_embedding|_embs_"),
    (
        Role.GEMM,
        r"(?i)(?<!fb)gemm|gemv|cutlass|cublas|xmma|nvjet|matmul|_mm(?:_|$)|^bmm_|hipblas|tensile|(?:^|_)Cijk_"
        r"|dot_kernel|splitk",
    ),
    (
        Role.NORM,
        r"(?i)layer_?norm|batch_?norm|group_?norm|rms_?norm|bn_(?:fw|bw)|cudnn::bn|instance_?norm"
        r"|GammaBeta|RowwiseMoments",
    ),
    (Role.SOFTMAX, r"(?i)softmax"),
    (Role.ELEMENTWISE, r"(?i)rotary"),
    (
        Role.EMBEDDING,
        r"(?i)embedding|index_?select|indexselect|gather|scatter|indexing_backward|index_kernel|index_put",
    ),
    (Role.OPTIMIZER, r"(?i)multi_?tensor|adam|sgd|fused_optimizer"),
    (Role.POOL, r"(?i)pool(?!ed)"),
    (Role.SORT, r"(?i)sort|top_?k|radix"),
    (Role.REDUCTION, r"(?i)reduce|reduction|norm_kernel|cumsum|scan_|DeviceScan|nll_loss"),
    (Role.FILL, r"(?i)fill|memset|zero_"),
    (Role.COPY, r"(?i)memcpy|copy|CatArray|transpose|nchwToNhwc|nhwcToNchw"),
    (Role.ELEMENTWISE, r"(?i)elementwise|pointwise|dropout|relu|gelu|foreach"),
)
_OP_RULES = (
    (Role.COLLECTIVE, COMMUNICATION + r"|c10d::|all_to_all|broadcast_coalesced"),
    (Role.ATTENTION, r"(?i)attention"),
    (Role.CONV, r"(?i)conv(?!ert)"),
    (
        Role.GEMM,
        r"(?i)::(?:addmm|mm|bmm|baddbmm|matmul|linear|addbmm|einsum|_scaled_mm|addmv|mv)(?:_|\b)|AddmmBackward|MmBackward",
    ),
    (Role.NORM, r"(?i)(?:layer|batch|group|rms|instance)_?norm"),
    (Role.SOFTMAX, r"(?i)softmax"),
    (Role.EMBEDDING, r"(?i)embedding|::index|gather|scatter"),
    (Role.OPTIMIZER, r"(?i)_fused_adam|_fused_sgd|Optimizer\.step"),
    (Role.POOL, r"(?i)pool"),
    (Role.SORT, r"(?i)::(?:sort|topk|argsort)"),
    (Role.REDUCTION, r"(?i)::(?:sum|mean|max|min|norm|var|std|nll_loss|cumsum|prod)(?:_|\b)"),
    (Role.FILL, r"(?i)::(?:fill|zero|zeros|ones)(?:_|\b)"),
    (Role.COPY, r"(?i)::(?:copy|to|_to_copy|clone|contiguous|cat|stack)(?:_|\b)"),
    (Role.ELEMENTWISE, r"(?i)::(?:add|mul|sub|div|relu|gelu|sigmoid|tanh|exp|dropout|threshold)(?:_|\b)"),
)
_COMPILED = tuple((role, re.compile(pattern)) for role, pattern in _KERNEL_RULES)
_COMPILED_OPS = tuple((role, re.compile(pattern)) for role, pattern in _OP_RULES)

PATH_ARROW = " > "
SPECIFIC = frozenset(Role) - {Role.OTHER, Role.ELEMENTWISE, Role.COPY, Role.FILL, Role.REDUCTION}
"""Categories that are specific enough to match kernels by them alone."""

_COMPILED_UNITS = r"CompiledFxGraph|CompiledFunction(?:Backward)?|Torch-Compiled Region:?"
_OP_RENAMES = (
    (re.compile(r"^autograd::engine::evaluate_function: "), ""),
    (re.compile(r"\b0x[0-9a-fA-F]+\b"), ""),
    (re.compile(rf"({_COMPILED_UNITS})(?:[\s_]+[\w/]+|\d[\d/]*)"), r"\1"),
    (re.compile(r"^(?:graph_\d+_)?((?:triton|cpp)_\w+?)(?:_\d+|_[0-9a-f]{8,})+$"), r"\1"),
    (re.compile(r"(Backward)\d+$"), r"\1"),
    (re.compile(r"#\d+$"), ""),
    (re.compile(r"\s+"), " "),
)


@lru_cache(maxsize=65536)
def role(kernel: str, op: str = "") -> Role:
    """Return the category of a kernel by its name, else by the op that launched it.

    Example:
        >>> role("ampere_sgemm_128x64_tn").value, role("Cijk_Ailk_Bljk_SB_MT64").value
        ('gemm', 'gemm')
        >>> role("k", "aten::convolution").value, role("ncclDevKernel_AllReduce_Sum_f32").value
        ('conv', 'collective')
    """
    name = family(kernel)
    kernel_role = next((role for role, pattern in _COMPILED if pattern.search(name)), Role.OTHER)
    return op_role(op) if kernel_role is Role.OTHER and op else kernel_role


@lru_cache(maxsize=65536)
def op_role(op: str) -> Role:
    """Return the category of an op by its name."""
    return next((role for role, pattern in _COMPILED_OPS if pattern.search(op)), Role.OTHER)


@lru_cache(maxsize=65536)
def op_name(name: str) -> str:
    """Return an op's name without addresses, counters, autograd's wrapper, and hashes of the compiler."""
    for pattern, replacement in _OP_RENAMES:
        name = pattern.sub(replacement, name)
    return name.strip()


Hashes: TypeAlias = npt.NDArray[np.uint64]

NOTHING = np.uint64(0)
_ODD = np.uint64(0x9E3779B97F4A7C15)


def mix(values: Hashes) -> Hashes:
    """Spread every bit of a value over all bits (the finalizer of SplitMix64).

    Example:
        >>> mix(np.array([0, 1], np.uint64)).tolist()
        [16294208416658607535, 10451216379200822465]
    """
    with np.errstate(over="ignore"):
        spread = values + _ODD
        spread = (spread ^ (spread >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        spread = (spread ^ (spread >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
        result: Hashes = spread ^ (spread >> np.uint64(31))
    return result


def combine(first: Hashes, second: Hashes) -> Hashes:
    """Combine two hashes; the order matters."""
    with np.errstate(over="ignore"):
        return mix(first * np.uint64(3) + mix(second))


def hash_texts(values: pd.Series, rename: Callable[[str], str] = str) -> Hashes:
    """Hash each renamed text of a categorical series, once per distinct text; `NOTHING` where missing."""
    names = np.array([rename(str(name)) for name in values.cat.categories], object)
    hashes = pd.util.hash_array(names, categorize=False) if len(names) else np.empty(0, np.uint64)
    table = np.append(hashes.astype(np.uint64), NOTHING)
    hashed: Hashes = table[values.cat.codes.to_numpy()]  # the code of a missing text is -1: the last place
    return hashed
