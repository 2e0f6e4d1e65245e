"""Work of ops on a device: FLOPs and bytes of each call, and its kernels.

FLOPs are recorded for ops whose inputs determine them, some of which enclose each other (`aten::linear`
encloses `aten::addmm`). Only the innermost of them is counted, so no work counts twice. A kernel belongs to
the nearest such call that encloses its launch (a convolution owns the layout changes it launches), else to
the op that launched it.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import numpy as np
import pandas as pd
import pyarrow.compute as pc

from tracekit.ingest import flops as formulas
from tracekit.kernel_names import uses_tensor_cores
from tracekit.schema import C, DeviceKind, HostKind

from .._shared.common import NO_PARENT, positions
from .._shared.hosts import NO_OP, NO_SHAPES, host_rows, texts
from .._shared.tensors import tensors
from .traffic import minimum_bytes

if TYPE_CHECKING:
    from tracekit.intervals import Ints
    from tracekit.run import Run

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
    texts_of = {name: texts(found[name], "") for name in columns[:3]}
    described = pd.DataFrame({OP: texts(found[C.NAME], NO_OP), **texts_of, C.FLOPS: flops})
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
