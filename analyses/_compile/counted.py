"""Compilation counters of torch: tables, and findings on graph breaks and late compilations."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pandas as pd

from tracekit.analysis import Basis, Column, Finding, Rule, Severity, TableSpec
from tracekit.compilation import TIMED
from tracekit.render import human
from tracekit.savings import CONFIDENT, HIGH_SHARE
from tracekit.schema import C

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tracekit.compilation import Compilation, Compiled
    from tracekit.run import Run

LATE = Rule(
    "compile_late",
    states="torch compiled code in the timed or the profiled steps, after the warm-up",
    why="one compilation takes longer than many steps: times that include it are not steady-state step times",
)
BROKEN = Rule(
    "compile_graph_breaks",
    states="torch counted a graph break",
    why="a graph ends there, so nothing is fused across it; torch reports the reason",
)
RULES = (LATE, BROKEN)


def tables(run: Run, found: Compilation) -> dict[str, pd.DataFrame]:
    """Tables of all compilations together, of reasons of graph breaks, and of each compilation."""
    found_tables = {"compilation": _frame([_whole(run, found)], _WHOLE)}
    if found.breaks:
        rows = [
            {
                "reason": one.reason,
                "frames": one.frames,
                "times": one.times,
                "functions": ", ".join(one.functions),
                "explanation": one.explanation,
            }
            for one in found.breaks
        ]
        found_tables["graph_breaks"] = _frame(rows, _BREAKS)
    if found.compilations:
        names = [column.name for column in _EACH]
        found_tables["compilations"] = _frame(
            [{name: getattr(one, name) for name in names} for one in found.compilations], _EACH
        )
    return found_tables


def _whole(run: Run, found: Compilation) -> dict[str, Any]:
    every = found.compilations
    return {
        "backend": (run.meta.workload or {}).get("backend", ""),
        "first_call_ns": found.first_call_ns,
        "compile_ns": found.compile_ns,
        "compilations": len(every),
        "compiled_frames": len({one.frame for one in every}),
        "backend_graphs": found.graphs,
        "cached": found.cached,
        "ops": sum(one.ops or 0 for one in every),
        "guards": found.guards,
        "graph_breaks": found.graph_breaks,
        "recompilations": len(found.recompilations),
        "late": len(found.late),
    }


def _frame(rows: list[dict[str, Any]], columns: tuple[Column, ...]) -> pd.DataFrame:
    """Build a table with nullable integers."""
    frame = pd.DataFrame(rows, columns=[column.name for column in columns])
    whole = [column.name for column in columns if column.unit in {"ns", "count"}]
    return frame.astype(dict.fromkeys(whole, "Int64"))


def findings(run: Run, found: Compilation, *, parts: Sequence[str]) -> tuple[Finding, ...]:
    """Findings on torch's compilation counters.

    Args:
        run: The run.
        found: Torch's counters.
        parts: Parts of the recording whose compilations no other rule reports.
    """
    late = [_late(run, part, own) for part in parts if (own := _in(found, part))]
    return (*late, *([_broken(found)] if found.breaks else []))


def _in(found: Compilation, part: str) -> list[Compiled]:
    return [one for one in found.late if one.part == part]


def _late(run: Run, part: str, own: list[Compiled]) -> Finding:
    timed = run.meta.timings.step_ns if run.meta.timings and part == TIMED else []
    steps = len(timed) if timed else run.rows("steps") or 1
    total = sum(one.dur_ns for one in own)
    guard = next((f": {one.reason}" for one in own if one.reason), "")
    count = f"{len(own):,} compilation{'s' * (len(own) != 1)}"
    grave = not timed or total >= HIGH_SHARE * sum(timed)
    return Finding(
        code=LATE.code,
        severity=Severity.HIGH if grave else Severity.WARN,
        title=f"{count} ran in {part} steps, {human(total // steps, 'ns')} per step{guard}",
        advice=(
            "mark varying dimensions with `torch._dynamo.mark_dynamic` or `dynamic=True`, pad inputs to few "
            "shapes, or warm up with each shape; `TORCH_LOGS=recompiles` shows each guard that fails"
        ),
        saving_ns_per_step=total // steps,
        basis=Basis.MEASURED,
        how=f"time of these compilations as measured by torch, over the number of {part} steps",
        confidence=CONFIDENT,
    )


def _broken(found: Compilation) -> Finding:
    most, count = found.breaks[0], found.graph_breaks
    title = f"{count:,} graph break{'s' * (count != 1)}"
    others = len(found.breaks) - 1
    more = f" and {others} other reason{'s' * (others != 1)}" if others else ""
    return Finding(
        code=BROKEN.code,
        severity=Severity.INFO,
        title=f"{title}: {most.reason}{more}",
        advice=(
            f"in {', '.join(most.functions) or 'an unnamed function'}: "
            f"{most.explanation or 'see `TORCH_LOGS=graph_breaks`'}"
        ),
        confidence=CONFIDENT,
    )


_WHOLE = (
    Column("backend", "", "backend of torch.compile"),
    Column("first_call_ns", "ns", "time of the first warm-up step, which compiles"),
    Column("compile_ns", "ns", "Σ of the compilation times measured by torch, in whole microseconds"),
    Column("compilations", "count", "compilations, including separate ones of the backward pass"),
    Column("compiled_frames", "count", "distinct frames i of their ids i/j"),
    Column("backend_graphs", "count", "graphs handed to the backend"),
    Column("cached", "count", "graphs whose code Inductor found in its cache, so that compiling was faster"),
    Column("ops", "count", "Σ of the operations of their graphs"),
    Column("guards", "count", "Σ of the guards of all compilations"),
    Column("graph_breaks", "count", "frames ended by a graph break, per reason"),
    Column("recompilations", "count", "recompilations of a frame: ids i/j with j > 0"),
    Column("late", "count", "compilations after the warm-up, in timed or profiled steps"),
)
_BREAKS = (
    Column("reason", "prose", "torch's reason of the graph break"),
    Column("frames", "count", "frames it ended"),
    Column("times", "count", "times that a compilation met it, including recompilations"),
    Column("functions", "", "Python functions it is in"),
    Column("explanation", "prose", "torch's explanation and advice"),
)
_EACH = (
    Column("id", "", "torch's i/j: frame i, its compilation j"),
    Column("function", "", "the Python function, or backward"),
    Column("part", "", "part of the recording: warm-up, timed or profiled steps"),
    Column(C.DUR_NS, "ns", "compilation time, in whole microseconds"),
    Column("ops", "count", "operations of its graph; missing for a backward pass"),
    Column("guards", "count", "guards to check before each call; missing for a backward pass"),
    Column("reason", "prose", "guard that failed; empty for the first compilation of a frame"),
    Column("failed", "prose", "why compilation failed and the frame runs eagerly; else empty"),
)
TABLES = (
    TableSpec("compilation", "Compilation, as counted by torch", _WHOLE),
    TableSpec("graph_breaks", "Graph breaks by reason, most frequent first", _BREAKS),
    TableSpec("compilations", "Compilations, in order", _EACH),
)
