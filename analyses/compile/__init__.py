"""Traces of torch.compile: what was compiled, what guards and graph breaks cost, and what compiling changed.

Compiled code is identified by the names that PyTorch records, in profiled steps if steps are marked.

* A region is one call of compiled code. j > 0 is a recompilation, because an input failed a guard. Older
  versions of PyTorch record no numbers: then frames are unknown.
* `graph_calls` are `CompiledFxGraph` calls. `compilations` are the outermost ranges whose names end in
  `(dynamo_timed)`; recorded if code is compiled during the capture.
* `resumes` are regions inside a Python function `torch_dynamo_resume_in_…`, which runs the code after a graph
  break. If no Python frames were recorded, a graph break and a separately compiled function look the same.
* For a workload that tracekit ran at level `compile`, the tables `compilation`, `graph_breaks` and
  `compilations` hold torch's own counters from the first call on.
* `lines` has the kernels of compiled code with the lines of the program and the ops that they compute, if the
  artifacts of torch.compile were kept (`--compile-artifacts`). A kernel of several lines counts once, so the
  times add up. `producers` divides the time of all kernels by what made them; without a device, that of ops.

`compare` compares an eager base with a compiled head, per step; `level`, shapes of ops and the profiler's
flags may differ. Peaks are those of the allocator and of the process. `fusion` lists the changed kernels,
matched by `tracekit.diff`. `tracekit suite` compares many pairs, with geometric means.

Source: TorchBench (Hao et al., 2023), section 3.2, Fig. 3 and 4.

Example:
    >>> tracekit.analyze(run, "compile").tables["kernels"]  # doctest: +SKIP
    >>> tracekit.compare(tracekit.open("latest~1"), tracekit.open("latest"), "compile")  # doctest: +SKIP
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pandas as pd

from tracekit.analysis import Analysis, Column, Result, TableSpec
from tracekit.analysis.savings import budget
from tracekit.runs import compilation
from tracekit.runs.run import Run
from tracekit.schema import C, DeviceKind

from ..shared import run_pairs
from ..shared.common import absent_device_note, ints
from ..shared.run_pairs import Line
from . import kernels, tables
from .findings import RULES, compare_findings, findings
from .regions import FRAME, GENERATED, INSIDE, ORIGIN, VARIANT, CompiledRun, read_compiled

if TYPE_CHECKING:
    from tracekit.diff import Diff
    from tracekit.diff.breakdowns import Group

NOTHING_COMPILED = (
    "no compiled code in this capture: `torch.compile` was not used, or CPU activity was not recorded"
)
NOT_GENERATED = (
    "compiled functions (`CompiledFunction`) run, but no region of `torch.compile` and no kernel that it "
    "generates was recorded: their backend generates none (`aot_eager`), or their PyTorch is older"
)
NO_NUMBERS = "region names have no numbers (older versions of PyTorch): frames and variants are unknown"


def compute(run: Run) -> Result:
    """Describe the compiled parts of a run."""
    compiled = read_compiled(run)
    counters = compilation.read(run.meta)
    results = {"kernels": tables.sum_kernels(compiled)} if len(compiled.kernels) else {}
    notes = _notes(run, compiled)
    if compiled.any:
        rows = kernels.measure_kernels(run, compiled)
        results |= {
            "summary": tables.summarize(run, compiled),
            "producers": kernels.sum_producers(run, compiled),
            **({"lines": kernels.sum_lines(rows)} if len(rows) else {}),
            "regions": tables.sum_calls(compiled.regions, tables.REGIONS),
            "graphs": tables.sum_calls(compiled.graphs, tables.GRAPHS),
        }
        notes += kernels.notes(run, rows) if len(rows) else ()
    results |= tables.list_counters(run, counters) if counters else {}
    return Result(results, findings(run, compiled, counters, budget(run)), notes)


def _notes(run: Run, compiled: CompiledRun) -> tuple[str, ...]:
    if not compiled.any:
        return (NOT_GENERATED if compiled.kernels[INSIDE].any() else NOTHING_COMPILED,)
    notes = [] if len(compiled.kernels) else [absent_device_note(run)]
    return (*notes, *([NO_NUMBERS] if compiled.regions[FRAME].isna().any() else []))


VARYING = (
    "level",
    "backend",
    "shapes",
    "profiler_record_shapes",
    "profiler_profile_memory",
    "profiler_with_stack",
)
"""Fields that may differ: those changed by compiling, and recording options needed to observe it."""
MAX_GROUPS = 50
_ON_DEVICE = (
    "kernels",
    "Inductor kernels",
    "kernel time",
    "kernel launch calls",
    "CUDA graph replays",
)
"""Quantities that need a device."""
NEITHER = "neither run has compiled code: this is not a comparison of eager and compiled"
BASE_TOO = "the base has compiled code too: this compares two compiled programs"
NOT_THE_HEAD = "the base has compiled code and the head has not: swap the sides"


def compare(base: Run, head: Run) -> Result:
    """Compare an eager base with a compiled head."""
    parts = (read_compiled(base), read_compiled(head))
    if not any(part.any for part in parts):
        return Result(notes=(NEITHER,))
    diff = run_pairs.diff_runs(base, head, VARYING)
    if why := run_pairs.refusal_note(diff):
        return Result(notes=(why,))
    lines = [
        *run_pairs.metric_lines(diff.metrics),
        *_first_steps(base, head),
        *_count_per_step(base, head, parts),
        *_measure_idle(base, head, diff),
    ]
    tables = {"ratios": run_pairs.ratios(lines)}
    if any(_is_kernel(group) for group in diff.groups):
        tables["fusion"] = _list_fused(diff)
    wrong = (BASE_TOO if parts[1].any else NOT_THE_HEAD,) if parts[0].any else ()
    return Result(tables, compare_findings(diff, parts[1]), wrong)


def _first_steps(base: Run, head: Run) -> list[Line]:
    """First step of each warm-up, in which the head compiles; empty if neither was timed."""
    warmups = (run.meta.timings.warmup_ns if run.meta.timings else [] for run in (base, head))
    first = [warmup[0] if warmup else None for warmup in warmups]
    return [Line("first warm-up step", "ns", *first)] if any(first) else []


def _count_per_step(base: Run, head: Run, parts: tuple[CompiledRun, CompiledRun]) -> list[Line]:
    """Counts and sums in the profiled steps of each side, per step."""
    sides = [_per_step(run, part) for run, part in zip((base, head), parts, strict=True)]
    if not any(len(part.kernels) or len(part.replays) for part in parts):
        sides = [{name: side[name] for name in side if name not in _ON_DEVICE} for side in sides]
    units = {name: "ns" if name.endswith("time") else "count" for name in sides[0]}
    return [Line(f"{name}, per step", units[name], sides[0][name], sides[1][name]) for name in sides[0]]


def _per_step(run: Run, part: CompiledRun) -> dict[str, float]:
    steps, kernels = budget(run).steps, part.kernels
    on_device = {
        "kernels": len(kernels),
        "Inductor kernels": int((kernels[ORIGIN] == GENERATED).sum()),
        "kernel time": int(ints(kernels, C.DUR_NS).sum()),
        "kernel launch calls": int(kernels[C.LAUNCH_ROW].nunique()),
        "CUDA graph replays": len(part.replays),
    }
    on_host = {
        "compiled regions": len(part.regions),
        "recompiled regions": int((part.regions[VARIANT] > 0).sum()),
        "Inductor graphs": len(part.graphs),
        "guard checks": len(part.lookups),
        "guard check host time": int(ints(part.lookups, C.DUR_NS).sum()),
        "compilations": len(part.compilations),
        "compilation host time": int(ints(part.compilations, C.DUR_NS).sum()),
    }
    return {name: value / steps for name, value in (on_device | on_host).items()}


def _measure_idle(base: Run, head: Run, diff: Diff) -> list[Line]:
    """Device idle time of the compared steps, per step, and its launch-bound part."""
    from tracekit.diff.step_time_breakdown import LAUNCH_BOUND

    if diff.compared is None or not diff.compared.on_device:
        return []
    a, b = (
        {name: length / diff.compared.steps for name, length in side.items() if "idle" in name}
        for side in run_pairs.time_by_activity(base, head)
    )
    lines = [Line("device idle time, per step", "ns", sum(a.values()), sum(b.values()))]
    if LAUNCH_BOUND in a:
        lines.append(Line("launch-bound idle time, per step", "ns", a[LAUNCH_BOUND], b[LAUNCH_BOUND]))
    return lines


def _is_kernel(group: Group) -> bool:
    return group.sort in {str(DeviceKind.KERNEL), str(DeviceKind.GRAPH)}


def _list_fused(diff: Diff) -> pd.DataFrame:
    """The kernels that changed, largest difference first."""
    groups = [group for group in diff.groups if _is_kernel(group)][:MAX_GROUPS]
    rows = [
        {
            "path": " > ".join(group.path),
            "base_kernels": group.a.count,
            "head_kernels": group.b.count,
            "base_ns": group.a.total_ns,
            "head_ns": group.b.total_ns,
            "delta_ns": group.terms.delta,
            "base_name": group.name_a,
            "head_name": group.name_b,
            "rung": group.match_level,
        }
        for group in groups
    ]
    return pd.DataFrame(rows, columns=[column.name for column in _FUSION])


_RATIOS = (
    Column("quantity", "prose", "measured quantity"),
    Column("unit", "", "ns, bytes or count"),
    Column("base", "", "value of the eager base; missing if unknown", unit_in="unit"),
    Column("head", "", "value of the compiled head; missing if unknown", unit_in="unit"),
    Column("ratio", "×", "head over base; missing if the base is 0 or unknown"),
)
_FUSION = (
    Column("path", "", "ops around all of them, outermost first"),
    Column("base_kernels", "count", "kernels of the base in the compared steps"),
    Column("head_kernels", "count", "kernels of the head that replace them"),
    Column("base_ns", "ns", "Σ of durations on the base"),
    Column("head_ns", "ns", "Σ of durations on the head"),
    Column("delta_ns", "ns", "head minus base"),
    Column("base_name", "", "canonical name of the base's longest kernel; empty without one"),
    Column("head_name", "", "canonical name of the head's longest kernel; empty without one"),
    Column("rung", "", "how they were matched; empty if only one side has them"),
)
COMPARISON = (
    TableSpec("ratios", "Eager base and compiled head", _RATIOS),
    TableSpec("fusion", f"Changed kernels, the {MAX_GROUPS} largest differences", _FUSION),
)

ANALYSIS = Analysis(
    name="compile",
    title="Compiled code",
    question="What was compiled, what do guards and graph breaks cost, and what did compiling change?",
    definition=(
        "Regions are `Torch-Compiled Region: i/j` (frame i, compilation j); breaks = distinct frames − 1, an "
        "upper bound; recompiled = distinct i/j with j > 0; lookups = `TorchDynamo Cache Lookup`, where "
        "guards run; idle = the part with all devices of the rank idle. Origin of a kernel: inductor (its "
        "name begins with `triton_`), replayed (launched by a CUDA graph), called (another kernel launched "
        "by compiled code) or eager. Compilation: torch's counters from the first call of a workload on; "
        "late = after the warm-up. Kernels of compiled code are the outermost ops in calls of Inductor "
        "graphs, or what they launched; with the artifacts of torch.compile, the k-th op of a name in a call "
        "is the k-th call of that name in the graph's code, whose lines and ops are known. Comparison: eager "
        "base against compiled head, per step."
    ),
    tables=(
        tables.SUMMARY,
        tables.KERNELS,
        kernels.PRODUCERS,
        kernels.LINES,
        tables.REGIONS,
        tables.GRAPHS,
        tables.COMPILATION,
        tables.BREAKS,
        tables.COMPILATIONS,
    ),
    sources=("TorchBench 3.2, Fig. 3 and 4",),
    order=90,
    compute=compute,
    rules=RULES,
    compare=compare,
    comparison=COMPARISON,
)
