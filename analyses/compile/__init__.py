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
matched by `tracekit.diff`. `tracekit.analyses.compile.compare.geomeans` compares many pairs, with geometric
means.

Source: TorchBench (Hao et al., 2023), section 3.2, Fig. 3 and 4.

Example:
    >>> import tracekit
    >>> result = tracekit.analyze(tracekit.open("latest"), "compile")  # doctest: +SKIP
    >>> result.tables["kernels"]  # doctest: +SKIP
    >>> tracekit.compare(tracekit.open("latest~1"), tracekit.open("latest"), "compile")  # doctest: +SKIP
"""

from __future__ import annotations

from tracekit.analysis import Analysis, Result
from tracekit.analysis.savings import budget
from tracekit.runs import compilation
from tracekit.runs.run import Run

from ..shared.common import absent_device_note
from . import compare, kernels, tables
from .findings import RULES, findings
from .regions import FRAME, CompiledRun, read_compiled

NOTHING_COMPILED = (
    "no compiled code in this capture: `torch.compile` was not used, or CPU activity was not recorded"
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
        }
        results |= {"lines": kernels.sum_lines(rows)} if len(rows) else {}
        results |= {
            "regions": tables.sum_calls(compiled.regions, tables.REGIONS),
            "graphs": tables.sum_calls(compiled.graphs, tables.GRAPHS),
        }
        notes += kernels.notes(run, rows) if len(rows) else ()
    results |= tables.list_counters(run, counters) if counters else {}
    return Result(results, findings(run, compiled, counters, budget(run)), notes)


def _notes(run: Run, compiled: CompiledRun) -> tuple[str, ...]:
    if not compiled.any:
        return (NOTHING_COMPILED,)
    notes = [] if len(compiled.kernels) else [absent_device_note(run)]
    return (*notes, *([NO_NUMBERS] if compiled.regions[FRAME].isna().any() else []))


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
    compare=compare.compare,
    comparison=compare.TABLES,
)
