"""Copies from the host to a device: how many, how large, how long, what launched them, are they needed.

All times are integer nanoseconds; GB/s are 10⁹ bytes per second. A copy belongs to the step in which it was
launched; those launched outside of profiled steps have no step.

* sum = Σ of durations; union = time at least one of them ran, per device; exposed = the part of the union
  that no kernel or opaque graph of the device hides.
* needed bytes = elements of the copied tensor × the narrower item size of the source's and the destination's
  dtype, or the item size of the dtype that kernels then convert it to where nothing else reads it as copied;
  excess = bytes over needed bytes. Missing where the shapes or dtypes of one copy are unknown (see
  `_copied_tensors`).
* blocked = duration of the launching call plus that of the synchronize call directly after it inside the same
  op: a copy from pageable memory makes the host wait.

`compare` explains the difference of two runs, tensor by tensor, by the first cause that is evident, in this
order: elements (shape or batch), item size (dtype), copies per step (duplicate), pageable against pinned
(memory kind), rate at equal bytes and memory (link). Where shapes are not recorded it says so and names no
cause unless the runs' own batch size, resolution or dtype explain the ratio exactly.

Sources: Levental & Orlova (25.166 MB against 12.583 MB); TorchBench (Hao et al., 2023), 4.1.2.

Example:
    >>> import tracekit
    >>> result = tracekit.analyze(tracekit.open("latest"), "h2d_copies")  # doctest: +SKIP
    >>> result.tables["groups"].head(10)  # doctest: +SKIP
    >>> base = tracekit.open("latest~1")  # doctest: +SKIP
    >>> tracekit.compare(base, tracekit.open("latest"), "h2d_copies").findings  # doctest: +SKIP
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from tracekit.analysis import Analysis, Column, Result, TableSpec
from tracekit.run import busy
from tracekit.schema import C, CopyKind

from . import _copy_compare, _copy_tables, _h2d_rules
from ._common import absent_device_note, share
from ._copied_tensors import ELEMENTS, NEEDED_ITEM, with_conversions, with_tensors
from ._copies import BLOCKED_NS, Hiding, described, read
from ._copy_tables import NEEDED
from ._hosts import NO_SHAPES

if TYPE_CHECKING:
    import pandas as pd

    from tracekit.run import Run

    from ._common import Floats

NO_COPIES = "no copies from the host to a device were recorded; what the devices did is in `gpu_breakdown`"
SHAPES_MISSING = (
    "no input shapes and dtypes were recorded, so the bytes needed are unknown: record with "
    "`record_shapes=True`"
)


def compute(run: Run) -> Result:
    """Describe the copies to the devices of a run."""
    copies = read(run, CopyKind.H2D)
    if copies.empty:
        return Result(notes=(absent_device_note(run) if busy(run, [C.DUR_NS]).empty else NO_COPIES,))
    copies = with_conversions(run, with_tensors(described(run, copies)))
    copies[NEEDED] = copies[ELEMENTS] * copies[NEEDED_ITEM]
    hiding, steps = Hiding(run), run.rows("steps")
    per_step = _copy_tables.per_step(copies, hiding, [NEEDED, BLOCKED_NS])
    per_step["excess"] = _excess(per_step)
    tables = {
        "per_step": per_step[[column.name for column in _PER_STEP]],
        "groups": _copy_tables.groups(copies, hiding, steps),
        "sizes": _copy_tables.sizes(copies),
    }
    down = read(run, CopyKind.D2H)
    return Result(tables, _h2d_rules.findings(run, copies, down, hiding), _notes(copies, steps))


def _excess(table: pd.DataFrame) -> Floats:
    known = (table[C.BYTES].notna() & table[NEEDED].notna()).to_numpy(dtype=bool)
    size, needed = (table[column].fillna(0).to_numpy(dtype=np.int64) for column in (C.BYTES, NEEDED))
    return share(size, np.where(known, needed, 0))


def _notes(copies: pd.DataFrame, steps: int) -> tuple[str, ...]:
    shapeless = (copies[C.INPUT_SHAPES] == NO_SHAPES).all()
    return (*((SHAPES_MISSING,) if shapeless else ()), *_copy_tables.notes(copies, steps))


_PER_STEP = (
    *_copy_tables.PER_STEP,
    Column(NEEDED, "bytes", "Σ of elements × narrowest item size in use; missing where one is unknown"),
    Column("excess", "×", "bytes over needed bytes"),
    _copy_tables.BLOCKED,
)

ANALYSIS = Analysis(
    name="h2d_copies",
    title="Host-to-device copies",
    question="What is copied to the devices, by which part of the program, and is all of it needed?",
    definition=(
        "Copies of kind H2D by the step that launched them. exposed = their union minus what kernels and "
        "opaque graphs cover; needed bytes = elements × the narrower item size of source, destination and "
        "the dtype kernels convert it to; blocked = launching call plus the synchronize call directly "
        "after it inside the same op. Between two runs the first evident cause counts, in the order shape, "
        "dtype, duplicate, memory kind, link."
    ),
    tables=(
        TableSpec("per_step", "Per device and step; without a step outside of all", _PER_STEP),
        TableSpec("groups", "By what launched them", _copy_tables.GROUPS),
        _copy_tables.SIZES,
    ),
    sources=("Levental & Orlova, copies of 25.166 MB and 12.583 MB", "TorchBench, 4.1.2"),
    order=50,
    compute=compute,
    rules=(*_h2d_rules.RULES, *_copy_compare.RULES),
    compare=_copy_compare.compare,
    comparison=_copy_compare.TABLES,
)
