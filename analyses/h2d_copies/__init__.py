"""Copies from the host to a device: number, size, duration, launching op, and whether all bytes are needed.

Needed bytes are missing if the shapes or dtypes of one copy are unknown, or if another op reads the tensor as
copied (see `h2d_copies.tensors`). `h2d_copies.compare` explains the difference of two runs, tensor by tensor.

Sources: Levental & Orlova (25.166 MB against 12.583 MB); TorchBench (Hao et al., 2023), 4.1.2.

Example:
    >>> tracekit.analyze(run, "h2d_copies").tables["groups"].head(10)  # doctest: +SKIP
    >>> base = tracekit.open("latest~1")  # doctest: +SKIP
    >>> tracekit.compare(base, tracekit.open("latest"), "h2d_copies").findings  # doctest: +SKIP
"""

from __future__ import annotations

import numpy as np
import pandas as pd

from tracekit.analysis import Analysis, Column, Remark, Result, TableSpec
from tracekit.runs.run import Run
from tracekit.schema import C, CopyKind

from ..copies import tables as copy_tables
from ..copies.read_copies import BLOCKED_NS, describe_copies, read_copies
from ..copies.tables import NEEDED, KernelUnions
from ..shared.common import Floats, nothing_note, select, share
from ..shared.host_rows import NO_SHAPES
from . import compare, findings
from .tensors import ELEMENTS, NEEDED_ITEM, with_conversions, with_tensors

NO_COPIES = Remark("no host-to-device copies were recorded; see `gpu_breakdown` for the devices' activity")
SHAPES_MISSING = (
    "no input shapes and dtypes were recorded, so needed bytes are unknown: record with `record_shapes=True`"
)


def compute(run: Run) -> Result:
    """Describe the host-to-device copies of a run."""
    copies = read_copies(run, CopyKind.H2D)
    if copies.empty:
        return Result(notes=(nothing_note(run, NO_COPIES),))
    copies = with_tensors(describe_copies(run, copies))
    copies = with_conversions(run, copies, min_bytes=findings.WIDER["min_bytes"])
    copies[NEEDED] = copies[ELEMENTS] * copies[NEEDED_ITEM]
    kernels, steps = KernelUnions(run), run.rows("steps")
    per_step = copy_tables.per_step_table(copies, kernels, [NEEDED, BLOCKED_NS])
    per_step["excess"] = _excess(per_step)
    tables = {
        "per_step": select(per_step, _PER_STEP),
        "groups": copy_tables.group_table(copies, kernels, steps),
        "sizes": copy_tables.size_table(copies),
        "rates": copy_tables.rate_table(copies),
    }
    shapeless = (copies[C.INPUT_SHAPES] == NO_SHAPES).all()
    notes = (*((SHAPES_MISSING,) if shapeless else ()), *copy_tables.copy_notes(run, copies, steps))
    down = read_copies(run, CopyKind.D2H)
    return Result(tables, findings.findings(run, copies, down, kernels), notes)


def _excess(table: pd.DataFrame) -> Floats:
    is_known = (table[C.BYTES].notna() & table[NEEDED].notna()).to_numpy(dtype=bool)
    size, needed = (table[column].fillna(0).to_numpy(dtype=np.int64) for column in (C.BYTES, NEEDED))
    return share(size, np.where(is_known, needed, 0))


_PER_STEP = (
    *copy_tables.PER_STEP,
    Column(NEEDED, "bytes", "Σ of elements × narrowest item size in use; missing if one is unknown"),
    Column("excess", "×", "bytes over needed bytes"),
    copy_tables.BLOCKED,
)

ANALYSIS = Analysis(
    name="h2d_copies",
    title="Host-to-device copies",
    question="What is copied to the devices, by which part of the program, and is all of it needed?",
    definition=(
        "Copies of kind H2D by the step that launched them. exposed = the part of their union that no kernel "
        "or opaque graph overlaps; needed bytes = elements × the narrowest item size of source, destination "
        "and the dtype that kernels convert it to; excess = bytes over needed bytes; blocked = launching "
        "call plus the synchronize call directly after it inside the same op. Comparison of two runs: the "
        "first cause that applies, in the order shape, dtype, duplicate, memory kind, link."
    ),
    tables=(
        TableSpec("per_step", "Per device and step; the step is missing outside profiled steps", _PER_STEP),
        TableSpec("groups", "By launching op, size, memory and source line", copy_tables.GROUPS),
        copy_tables.SIZES,
        copy_tables.RATES,
    ),
    sources=("Levental & Orlova, copies of 25.166 MB and 12.583 MB", "TorchBench, 4.1.2"),
    order=50,
    reads=("device_intervals",),
    compute=compute,
    rules=findings.RULES,
    compare=compare.compare,
    comparison=compare.TABLES,
)
