"""Copies from a device to the host: how many, how large, what asked for them, and how long the host waited.

All times are integer nanoseconds; GB/s are 10⁹ bytes per second. A copy belongs to the step in which it was
launched; those launched outside of profiled steps have no step.

* sum = Σ of durations; union = time at least one of them ran, per device; exposed = the part of the union
  that no kernel or opaque graph of the device hides.
* blocked = duration of the launching call plus that of the synchronize call directly after it inside the same
  op (`aten::copy_` of `.cpu()`, `aten::_local_scalar_dense` of `.item()`). It holds the wait for kernels
  queued before, so it may be much longer than the copy. Outside of an op it is the launching call alone.
  Missing where the launch was not recorded.

Source: TorchBench (Hao et al., 2023), 4.1.2.

Example:
    >>> import tracekit
    >>> result = tracekit.analyze(tracekit.open("latest"), "d2h_copies")  # doctest: +SKIP
    >>> result.tables["groups"].head(10)  # doctest: +SKIP
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tracekit.analysis import Analysis, Remark, Result, Rule, TableSpec
from tracekit.run import busy
from tracekit.savings import budget
from tracekit.schema import C, CopyKind

from ._copies import tables as copy_tables
from ._copies.hiding import Hiding
from ._copies.reading import BLOCKED_NS, counted, described, read
from ._copies.scalars import SCALARS_WHY, scalars
from ._shared.common import absent_device_note

if TYPE_CHECKING:
    from tracekit.run import Run

NO_COPIES = Remark(
    "no copies from a device to the host were recorded; what the devices did is in `gpu_breakdown`"
)
SCALARS = "d2h_scalars"
_TITLE = "{count} scalar reads from the device {per} block the host {blocked}"
_ADVICE = (
    "Keep the value on the device, or read it less often (every N steps, or all values in one copy): "
    "{places}."
)

RULES = (
    Rule(
        SCALARS,
        "copies of at most 8 bytes from the device within profiled steps; the gaps between kernels in "
        "which they end, each at most as long as the host was blocked in them, are at least 1% of the step",
        SCALARS_WHY,
    ),
)


def compute(run: Run) -> Result:
    """Describe the copies from the devices of a run."""
    copies = read(run, CopyKind.D2H)
    if copies.empty:
        return Result(notes=(absent_device_note(run) if busy(run, [C.DUR_NS]).empty else NO_COPIES,))
    copies = described(run, copies)
    hiding, marked = Hiding(run), run.rows("steps")
    tables = {
        "per_step": copy_tables.per_step(copies, hiding, [BLOCKED_NS]),
        "groups": copy_tables.groups(copies, hiding, marked),
        "sizes": copy_tables.sizes(copies),
    }
    steps = budget(run)
    recurring = counted(copies, marked=steps.marked)
    found = scalars(recurring, hiding, steps, SCALARS, _TITLE, _ADVICE) if steps.marked else []
    return Result(tables, tuple(found), copy_tables.notes(copies, marked))


ANALYSIS = Analysis(
    name="d2h_copies",
    title="Device-to-host copies",
    question="What is copied back to the host, what asked for it, and how long did the host wait for it?",
    definition=(
        "Copies of kind D2H by the step that launched them. exposed = their union minus what kernels and "
        "opaque graphs cover; blocked = launching call plus the synchronize call directly after it inside "
        "the same op, with the wait for kernels queued before."
    ),
    tables=(
        TableSpec(
            "per_step",
            "Per device and step; without a step outside of all",
            (*copy_tables.PER_STEP, copy_tables.BLOCKED),
        ),
        TableSpec("groups", "By what launched them", copy_tables.GROUPS),
        copy_tables.SIZES,
    ),
    sources=("TorchBench, 4.1.2",),
    order=51,
    compute=compute,
    rules=RULES,
)
