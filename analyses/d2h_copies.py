"""Copies from a device to the host: number, size, launching op, and time the host was blocked.

The launching op of `.cpu()` is `aten::copy_`, that of `.item()` `aten::_local_scalar_dense`. The host is
blocked in the launching call and in the synchronize call directly after it (`copies.read_copies` has the
definition). That may take much longer than the copy, because the host also waits for kernels queued before.

Source: TorchBench (Hao et al., 2023), 4.1.2.

Example:
    >>> tracekit.analyze(run, "d2h_copies").tables["groups"].head(10)  # doctest: +SKIP
"""

from __future__ import annotations

from tracekit.analysis import Analysis, Remark, Result, TableSpec
from tracekit.analysis.savings import budget
from tracekit.runs.run import Run
from tracekit.schema import CopyKind

from .copies import tables as copy_tables
from .copies.findings import scalar_findings, scalar_rule
from .copies.read_copies import BLOCKED_NS, describe_copies, read_copies
from .copies.tables import KernelUnions
from .shared.common import in_steps, nothing_note

NO_COPIES = Remark("no device-to-host copies were recorded; see `gpu_breakdown` for the devices' activity")
SCALARS = scalar_rule("d2h_scalars", "device-to-host")
_TITLE = "{count} scalar reads from the device {per} block the host {blocked}"
_ADVICE = (
    "Keep the value on the device, or read it less often (every N steps, or all values in one copy): "
    "{places}."
)


def compute(run: Run) -> Result:
    """Describe the device-to-host copies of a run."""
    copies = read_copies(run, CopyKind.D2H)
    if copies.empty:
        return Result(notes=(nothing_note(run, NO_COPIES),))
    copies = describe_copies(run, copies)
    kernels, step_count = KernelUnions(run), run.rows("steps")
    tables = {
        "per_step": copy_tables.per_step_table(copies, kernels, [BLOCKED_NS]),
        "groups": copy_tables.group_table(copies, kernels, step_count),
        "sizes": copy_tables.size_table(copies),
        "rates": copy_tables.rate_table(copies),
    }
    # Without marked steps no copy is known to recur: the rule is about copies in profiled steps only.
    stepped = in_steps(copies, marked=True)
    findings = scalar_findings(SCALARS, stepped, kernels, budget(run), title=_TITLE, advice=_ADVICE)
    return Result(tables, tuple(findings), copy_tables.copy_notes(run, copies, step_count))


ANALYSIS = Analysis(
    name="d2h_copies",
    title="Device-to-host copies",
    question="What is copied back to the host, which op launched it, and how long was the host blocked?",
    definition=(
        "Copies of kind D2H by the step that launched them. exposed = the part of their union that no kernel "
        "or opaque graph overlaps; blocked = launching call plus the synchronize call directly after it "
        "inside the same op, including the wait for kernels queued before."
    ),
    tables=(
        TableSpec(
            "per_step",
            "Per device and step; the step is missing outside profiled steps",
            (*copy_tables.PER_STEP, copy_tables.BLOCKED),
        ),
        TableSpec("groups", "By launching op, size, memory and source line", copy_tables.GROUPS),
        copy_tables.SIZES,
        copy_tables.RATES,
    ),
    sources=("TorchBench, 4.1.2",),
    order=51,
    reads=("device_intervals",),
    compute=compute,
    rules=(SCALARS,),
)
