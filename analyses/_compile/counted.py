"""What torch counted while it compiled: tables of it, and advice on breaks and on compiling too late."""

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
    states="torch compiled something in the timed or the profiled steps, after the warm-up",
    why="one compilation takes longer than many steps: times that contain it are not those of steady steps",
)
BROKEN = Rule(
    "compile_graph_breaks",
    states="torch counted a graph break",
    why="a graph ends there, so nothing is fused across it; torch names the reason of each",
)
RULES = (LATE, BROKEN)


def tables(run: Run, found: Compilation) -> dict[str, pd.DataFrame]:
    """One row on all of it, one for each reason of graph breaks, one for each compilation."""
    made = {"compilation": _frame([_whole(run, found)], _WHOLE)}
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
        made["graph_breaks"] = _frame(rows, _BREAKS)
    if found.compilations:
        names = [column.name for column in _EACH]
        made["compilations"] = _frame(
            [{name: getattr(one, name) for name in names} for one in found.compilations], _EACH
        )
    return made


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
    """Whole numbers stay whole where one is missing."""
    frame = pd.DataFrame(rows, columns=[column.name for column in columns])
    whole = [column.name for column in columns if column.unit in {"ns", "count"}]
    return frame.astype(dict.fromkeys(whole, "Int64"))


def findings(run: Run, found: Compilation, *, parts: Sequence[str]) -> tuple[Finding, ...]:
    """Advice on what torch counted.

    Args:
        run: The run.
        found: What torch counted.
        parts: Parts of the recording whose compilations no other rule told of.
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
            "mark what varies with `torch._dynamo.mark_dynamic` or `dynamic=True`, pad inputs to few shapes, "
            "or warm up with each of them; `TORCH_LOGS=recompiles` tells each guard that fails"
        ),
        saving_ns_per_step=total // steps,
        basis=Basis.MEASURED,
        how=f"time of these compilations as torch measured it, over the number of {part} steps",
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
            f"in {', '.join(most.functions) or 'a function that torch does not name'}: "
            f"{most.explanation or 'see `TORCH_LOGS=graph_breaks`'}"
        ),
        confidence=CONFIDENT,
    )


_WHOLE = (
    Column("backend", "", "what compiled"),
    Column("first_call_ns", "ns", "time of the first warm-up step, which compiles"),
    Column("compile_ns", "ns", "Σ of the compilations as torch measured them, to whole microseconds"),
    Column("compilations", "count", "compilations, of the backward pass where it came later too"),
    Column("compiled_frames", "count", "distinct frames i of their ids i/j"),
    Column("backend_graphs", "count", "graphs handed to the backend"),
    Column("cached", "count", "graphs whose code Inductor found in its cache: compiling them took less"),
    Column("ops", "count", "Σ of the operations of their graphs"),
    Column("guards", "count", "Σ of the guards of the frames, compiled again counted again"),
    Column("graph_breaks", "count", "frames that a graph break ended, by reason"),
    Column("recompilations", "count", "compilations of a frame that had been compiled: ids i/j with j > 0"),
    Column("late", "count", "compilations after the warm-up, in timed or profiled steps"),
)
_BREAKS = (
    Column("reason", "prose", "why a graph ended, as torch says it"),
    Column("frames", "count", "frames it ended"),
    Column("times", "count", "times that a compilation met it; compiling again counts again"),
    Column("functions", "", "Python functions it is in"),
    Column("explanation", "prose", "what torch explains and advises"),
)
_EACH = (
    Column("id", "", "torch's i/j: frame i, its compilation j"),
    Column("function", "", "the Python function, or backward"),
    Column("part", "", "when: in the warm-up, in timed or in profiled steps"),
    Column(C.DUR_NS, "ns", "time it took, to whole microseconds"),
    Column("ops", "count", "operations of its graph; missing of a backward pass"),
    Column("guards", "count", "conditions to check before each call; missing likewise"),
    Column("reason", "prose", "the guard that failed; empty of the first compilation of a frame"),
    Column("failed", "prose", "why the frame runs eagerly after all; empty where it does not"),
)
TABLES = (
    TableSpec("compilation", "Compilation; as torch counted it while the run was recorded", _WHOLE),
    TableSpec("graph_breaks", "Graph breaks; by reason, the most met first", _BREAKS),
    TableSpec("compilations", "Compilations; in order", _EACH),
)
