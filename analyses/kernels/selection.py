"""Select the kernels that the rules of `kernels` are about, by their names and the ops that launch them."""

from __future__ import annotations

import numpy as np
import pandas as pd

from tracekit.analysis.kernel_names import matches
from tracekit.runs import intervals
from tracekit.runs.intervals import Ints
from tracekit.runs.run import Run
from tracekit.schema import C

from ..roofline.calls import UNKNOWN, minimum_bytes
from ..shared.common import PLACE, Bools, alone_ns, ints, spans
from ..shared.groups import number_by, rows_by_device
from ..shared.host_rows import fill_missing_text, host_rows
from .findings import (
    ALL,
    ALONE_NS,
    BATCH_NORM,
    CASTS,
    CHAINS,
    DOUBLE,
    EAGER,
    FAMILY,
    FP32,
    FUSIBLE,
    LAYOUT,
    LONGEST,
    OP,
    OWN,
    TENSOR,
    TENSOR_CORES,
    UPDATES,
)

MAX_DISTANCE = 8
"""Maximum number of kernels between a softmax and the products of its attention: scale, mask, dropout."""
_SINGLE = (
    r"(?i)(?:^|_|\b)(?:sgemm|scudnn|volta_s|maxwell_s)|convolve_sgemm|(?:grad|wgrad)\w*_engine<float"
    r"|winograd\w*<float|ffma|cijk_\w*_S(?:B|_)(?!\w*_MI\d)"
)
_DOUBLE, _LOWER = r"[<, ]double[,>]", r"(?i)float|half"
"""A name with both types converts, or computes a scalar in double precision."""
_STATISTICS = r"(?i)bn_fw_tr|batch_?norm_collect_statistics|BatchNormFwdTrain"
"""Batch normalization by the statistics of the batch, in cuDNN, PyTorch and MIOpen."""
_BACKWARD = r"(?i)backward|bwd|bn_bw|[dw]grad"
_LAYOUT = r"(?i)nchw_?to_?nhwc|nhwc_?to_?nchw|^batched_transpose_\d"
_ELEMENTWISE = r"elementwise_kernel|\bCatArrayBatchedCopy"
"""Kernels that compute each element alone, with conversions, broadcasting and concatenations."""
_REDUCTION = r"\bat::native::reduce_kernel"
"""Reductions, with which compilers fuse the element-wise kernels before and after them."""
_FOREACH, _FUSED = r"^aten::_foreach_(?:addcdiv|addcmul|div|lerp|sqrt|add|mul)_?$", r"(?i)fused"
"""Ops of optimizers that take lists of parameters, and kernels that update them at once."""
_CASTS = r"(?i)direct_copy_kernel.*LoadWithCast|(?:b?float(?:8|16)\w*|half)_copy_kernel"
"""Copies whose load or store converts, and those between two dtypes."""
_OWN = r"(?i)^(?:void )?(?:\w*_)?(?:mat_?mul|matrix_?mul|[sdh]?gemm)\w*(?:<[^()]*>)?\([^()]*\*"
"""Functions outside of namespaces, with pointers as parameters."""
_SOFTMAX = r"^aten::_?(?:safe_)?softmax$"
_PRODUCT = r"^aten::(?:bmm|baddbmm)$"


def select_slow_kernels(kernels: pd.DataFrame) -> pd.DataFrame:
    """Return the kernels of some ranks that a rule is about, in steps if steps are marked.

    The kernels have their family, their op, and whether they use tensor cores.

    Returns:
        Code of the rule, rank, device, op and its row, family, `row_id`, duration, `alone_ns`, the time in
        which no other kernel runs, and the place in a chain of element-wise kernels; rows without a rule
        (empty text) are sums, with `TENSOR_CORES` or `ALL` as op.
    """
    alone = alone_ns(kernels, kernels)
    in_step = kernels[C.STEP].notna().to_numpy(bool)
    selected = in_step if in_step.any() else ~in_step
    rows, alone = kernels[selected].reset_index(drop=True), alone[selected]
    names, on_tensor_cores = rows[C.NAME], rows[TENSOR].to_numpy(bool)
    stream, _ = number_by(rows, [*PLACE, C.STREAM])
    order = np.lexsort((ints(rows, C.START_NS), stream))
    casts, elementwise = (matches(names, pattern).to_numpy(bool) for pattern in (_CASTS, _ELEMENTWISE))
    flags: dict[str, Bools] = {
        FP32.code: matches(names, _SINGLE).to_numpy(bool) & ~on_tensor_cores,
        DOUBLE.code: (matches(names, _DOUBLE) & ~matches(names, _LOWER)).to_numpy(bool),
        EAGER.code: _find_attention(rows, order, stream),
        LAYOUT.code: matches(names, _LAYOUT).to_numpy(bool),
        CHAINS.code: elementwise,
        CASTS.code: casts,
        OWN.code: matches(names, _OWN).to_numpy(bool),
        UPDATES.code: (matches(rows[OP], _FOREACH) & ~matches(names, _FUSED)).to_numpy(bool),
    }
    if not (matches(names, _BACKWARD) | matches(rows[OP], _BACKWARD)).any():
        flags[BATCH_NORM.code] = matches(names, _STATISTICS).to_numpy(bool)
    table = rows[[*PLACE, C.ROW_ID, C.DUR_NS, C.OP_ROW]].assign(
        alone_ns=alone,
        op=rows[OP].astype(object),
        family=rows[FAMILY].astype(object),
        chain=_find_chains(rows, order, stream[order], elementwise, casts),
    )
    found = [table[of_rule].assign(rule=code) for code, of_rule in flags.items() if of_rule.any()]
    return pd.concat([*found, _sum_by_device(rows, np.where(on_tensor_cores, alone, 0))], ignore_index=True)


def add_work(run: Run, slow: pd.DataFrame) -> pd.DataFrame:
    """Add to the kernels without tensor cores their share of the work of the calls that launched them.

    Returns:
        It with `flops` and `bytes` (the least that must be moved), `UNKNOWN` where they are.
    """
    slow = slow.assign(**{C.FLOPS: UNKNOWN, C.BYTES: UNKNOWN})
    places = np.flatnonzero(
        (slow["rule"] == FP32.code).to_numpy(bool) & slow[C.OP_ROW].notna().to_numpy(bool)
    )
    if not len(places):
        return slow
    ops, call, kernels = np.unique(ints(slow.iloc[places], C.OP_ROW), return_inverse=True, return_counts=True)
    texts = [C.NAME, C.INPUT_SHAPES, C.INPUT_DTYPES]
    calls = host_rows(run, pd.Series(ops, dtype="Int64"), [*texts, C.FLOPS])
    calls = calls.assign(**{name: fill_missing_text(calls[name], "") for name in texts})
    calls[C.FLOPS] = calls[C.FLOPS].fillna(UNKNOWN).astype(np.int64)
    codes, distinct = number_by(calls, [*texts, C.FLOPS])
    moved = [
        minimum_bytes(name, shapes, dtypes, flops if flops != UNKNOWN else None)
        for name, shapes, dtypes, flops in calls.iloc[distinct][[*texts, C.FLOPS]].itertuples(index=False)
    ]
    calls[C.BYTES] = np.array([UNKNOWN if least is None else least for least in moved], np.int64)[codes]
    for name in (C.FLOPS, C.BYTES):
        amounts = slow[name].to_numpy(np.int64, copy=True)
        amounts[places] = np.where(calls[name] == UNKNOWN, UNKNOWN, ints(calls, name) // kernels)[call]
        slow[name] = amounts
    return slow


def _sum_by_device(rows: pd.DataFrame, on_tensor_cores: Ints) -> pd.DataFrame:
    """Time with tensor cores, and time in which any kernel runs, of each device."""
    start, end = spans(rows)
    sums = [
        (rank, device, label, length)
        for (rank, device), mine in rows_by_device(rows).items()
        for label, length in (
            (TENSOR_CORES, int(on_tensor_cores[mine].sum())),
            (ALL, intervals.length(intervals.union(start[mine], end[mine]))),
        )
    ]
    unknown = pd.array([pd.NA] * len(sums), "Int64")
    table = pd.DataFrame(sums, columns=[*PLACE, OP, ALONE_NS])
    return table.assign(rule="", family="", row_id=-1, dur_ns=0, op_row=unknown, chain=0)


def _find_attention(rows: pd.DataFrame, order: Ints, stream: Ints) -> Bools:
    """Softmax kernels between batched products of the same stream, and these products.

    `order` is that of the rows by stream and start.
    """
    flags = np.zeros(len(rows), np.bool_)
    softmax, products = (
        np.flatnonzero(matches(rows[OP], pattern).to_numpy(bool)[order]) for pattern in (_SOFTMAX, _PRODUCT)
    )
    after = np.searchsorted(products, softmax)
    softmax, after = (values[(after > 0) & (after < len(products))] for values in (softmax, after))
    found = np.array([products[after - 1], softmax, products[after]], np.int64)
    of_stream = stream[order][found]
    is_near = (np.diff(found, axis=0) <= MAX_DISTANCE).all(axis=0) & (of_stream[0] == of_stream[2])
    flags[order[found[:, is_near]]] = True
    return flags


def _find_chains(rows: pd.DataFrame, order: Ints, of_stream: Ints, elementwise: Bools, casts: Bools) -> Ints:
    """Tell element-wise kernels next to another one of their stream: `LONGEST` of a chain or `FUSIBLE`.

    The longest is one that computes, so that it stays where conversions are reported on their own. Reductions
    belong to a chain without being one of its kernels. Conversions one after the other are mostly of
    different tensors: only those next to a kernel that computes belong to its chain. `order` is that of the
    rows by stream and start, `of_stream` the streams in it.
    """
    counted = elementwise[order]
    computes = (counted & ~casts[order]) | matches(rows[C.NAME], _REDUCTION).to_numpy(bool)[order]
    same = of_stream[1:] == of_stream[:-1]
    continues = same & ((computes[1:] & (counted | computes)[:-1]) | (computes[:-1] & counted[1:]))
    chain = np.cumsum(np.concatenate(([0], ~continues)))[: len(order)]
    places = np.flatnonzero(counted)
    chain, took = chain[places], ints(rows, C.DUR_NS)[order[places]]
    by_length = np.lexsort((-took, casts[order[places]], chain))
    longest = by_length[np.diff(chain[by_length], prepend=-1) != 0]
    kinds = np.where(np.bincount(chain)[chain] > 1, FUSIBLE, 0) if len(chain) else np.zeros(0, np.int64)
    kinds[longest] = np.where(kinds[longest] > 0, LONGEST, 0)
    flags = np.zeros(len(rows), np.int64)
    flags[order[places]] = kinds
    return flags
