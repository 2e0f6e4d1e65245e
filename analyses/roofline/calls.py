"""Calls of ops that launched kernels, with the FLOPs and the bytes of each.

FLOPs are recorded for ops whose inputs determine them, some of which enclose each other (`aten::linear`
encloses `aten::addmm`). Only the innermost of them is counted, so no work counts twice. A kernel belongs to
the nearest such call that encloses its launch (a convolution owns the layout changes it launches), else to
the op that launched it.
"""

from __future__ import annotations

import re

import numpy as np
import pandas as pd
import pyarrow.compute as pc

from tracekit.analysis.kernel_names import matches, uses_tensor_cores
from tracekit.ingest.kineto import flops as formulas
from tracekit.runs.intervals import Ints
from tracekit.runs.run import Run
from tracekit.schema import C, DeviceKind, HostKind

from ..shared.common import NO_PARENT, is_kind, map_texts, positions
from ..shared.host_columns import climb_to
from ..shared.host_rows import NO_OP, NO_SHAPES, fill_missing_text, host_rows
from ..shared.tensor_shapes import tensors
from .minimum_bytes import minimum_bytes

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
    rows = pd.Series(kernels[C.OP_ROW].dropna().unique(), dtype="Int64")
    nearest, counted = _nearest(run, rows)
    owner_of_op = dict(zip(rows, nearest, strict=True))
    owners = kernels[C.OP_ROW].map(owner_of_op, na_action="ignore").astype("Int64")
    columns = pd.DataFrame({OWNER: owners, **_by_name(kernels[C.NAME])})
    return kernels.join(columns), counted


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
    host = run.table("host_intervals", columns=[C.ROW_ID, C.PARENT_ROW])
    ids = host[C.ROW_ID].to_numpy(np.int64)
    parent = positions(host[C.ROW_ID], host[C.PARENT_ROW])
    has_work = np.isin(ids, worked)
    own_stop = climb_to(positions(host[C.ROW_ID], rows), parent, has_work)
    outer = climb_to(parent[has_work], parent, has_work)
    counts = has_work.copy()
    counts[outer[outer != NO_PARENT]] = False  # an op that encloses a counted one would count twice
    return np.where(own_stop == NO_PARENT, wanted, ids[own_stop]), ids[counts]


def read_calls(run: Run, kernels: pd.DataFrame, counted: Ints) -> pd.DataFrame:
    """One row per call and device: op, shapes, dtype, precision, FLOPs and bytes (`UNKNOWN` if missing).

    `matrix` means that the op itself multiplies matrices, with known or unknown FLOPs.

    Args:
        run: The run.
        kernels: Its kernels with their calls.
        counted: Ids of counted calls.
    """
    of_calls = kernels[kernels[OWNER].notna()]
    keys = [OWNER, C.RANK, C.DEVICE]
    uses_tensor = of_calls.groupby(keys, sort=False)[[TENSOR]].any()
    table = uses_tensor.join(of_calls.groupby(keys, sort=False)[[C.STEP]].min()).reset_index()
    return _describe(run, table, counted)


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
    columns = [C.NAME, C.INPUT_SHAPES, C.INPUT_DTYPES, C.FLOPS]
    host = host_rows(run, table[OWNER], columns)
    flops = host[C.FLOPS].where(table[OWNER].isin(counted)).fillna(UNKNOWN).to_numpy(np.int64)
    texts_of = {name: fill_missing_text(host[name], "") for name in columns[:3]}
    described = pd.DataFrame({OP: fill_missing_text(host[C.NAME], NO_OP), **texts_of, C.FLOPS: flops})
    described[[MOVED, DTYPE, MATRIX]] = _describe_distinct(described)
    encloses = host[C.FLOPS].notna().to_numpy(bool) & (flops == UNKNOWN)
    described[MATRIX] = described[MATRIX].astype(bool) & ~encloses
    tensor = table[TENSOR].to_numpy(bool)
    precision = described[DTYPE].map(precision_of).to_numpy(object)
    described[PRECISION] = np.where((precision == "fp32") & tensor, "tf32", precision)
    described[C.INPUT_SHAPES] = described[C.INPUT_SHAPES].replace("", NO_SHAPES)
    return table.join(described.drop(columns=[C.NAME, C.INPUT_DTYPES]).set_index(table.index))


def _describe_distinct(described: pd.DataFrame) -> pd.DataFrame:
    """Bytes, dtype and whether it is a matrix product, computed once per distinct call."""
    keys = [C.NAME, C.INPUT_SHAPES, C.INPUT_DTYPES, C.FLOPS]
    codes = described.groupby(keys, sort=False).ngroup().to_numpy()
    rows = described[keys].drop_duplicates().itertuples(index=False, name=None)
    distinct = pd.DataFrame([_describe_call(*row) for row in rows], columns=[MOVED, DTYPE, MATRIX])
    return distinct.iloc[codes].set_axis(described.index)


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
