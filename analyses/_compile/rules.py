"""Advice on compiled code: guards, graph breaks and compilations that a device waits for."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tracekit.analysis import EVIDENCE_ROWS, Basis, Finding, Rule
from tracekit.render import human
from tracekit.schema import C

from .._shared.ranges import weightiest
from . import reading

if TYPE_CHECKING:
    import pandas as pd

    from tracekit.run import Run
    from tracekit.savings import Budget

    from .reading import Compiled

_WHY = "below 1% two runs of one program differ by as much"
GUARDS = Rule(
    "compile_guards",
    states="no device ran anything during 1% of the steps or more while guards were checked",
    why=f"guards run before each call of compiled code; they cost what the device waits for them. {_WHY}",
)
BREAKS = Rule(
    "compile_breaks",
    states=(
        "no device ran anything during 1% of the steps or more from a compiled region to the one after a "
        "graph break; told only where Python frames were recorded"
    ),
    why=f"at a break a graph ends and the host runs Python; it costs what the device waits for. {_WHY}",
)
COMPILES = Rule(
    "compile_in_steps",
    states="code was compiled in profiled steps, and the device was idle for 1% of them or more meanwhile",
    why=f"steps after warm-up should compile nothing; where they do, inputs keep failing guards. {_WHY}",
)
RULES = (GUARDS, BREAKS, COMPILES)


def findings(run: Run, parts: Compiled, steps: Budget) -> tuple[Finding, ...]:
    """What the compiled code of a run should do otherwise, the largest saving first."""
    found = [_guards(run, parts, steps)]
    if parts.breaks is not None:
        found.append(_breaks(run, parts.breaks, steps))
    if steps.marked:
        found.append(_compiles(run, parts, steps))
    given = [one for one in found if one]
    return tuple(sorted(given, key=lambda one: (-(one.saving_ns_per_step or 0), one.code)))


def _guards(run: Run, parts: Compiled, steps: Budget) -> Finding | None:
    calls = len(parts.lookups) / steps.steps
    return _finding(
        run,
        parts.lookups,
        steps,
        GUARDS,
        title=f"the device waits for guards: {calls:,.0f} checks {steps.per}",
        advice=(
            "compile one outer function in place of many inner ones, pass tensors rather than containers and "
            "module attributes that guards look through, and see what they check with `TORCH_LOGS=guards`"
        ),
        how="time of the cache lookups in which no device of the rank ran anything, measured",
        confidence=0.8,
    )


def _breaks(run: Run, gaps: pd.DataFrame, steps: Budget) -> Finding | None:
    changes = len(gaps) / steps.steps
    return _finding(
        run,
        gaps,
        steps,
        BREAKS,
        title=f"the device waits at graph breaks: {changes:,.0f} {steps.per}",
        advice=(
            "find the graph breaks with `TORCH_LOGS=graph_breaks`, or let `torch.compile(fullgraph=True)` "
            "refuse them; calls such as `.item()`, printing and unsupported library calls end a graph. "
            "Compile functions that always follow each other together"
        ),
        how="time from one region to the next in which no device of the rank ran anything, measured",
        confidence=0.8,
    )


def _compiles(run: Run, parts: Compiled, steps: Budget) -> Finding | None:
    return _finding(
        run,
        parts.compilations,
        steps,
        COMPILES,
        title=f"{len(parts.compilations):,} compilations run inside of {steps.steps:,} profiled steps",
        advice=(
            "see which guards fail with `TORCH_LOGS=recompiles`; mark what varies with "
            "`torch._dynamo.mark_dynamic` or `dynamic=True`, pad inputs to few shapes, and warm up "
            "with each of them before measuring"
        ),
        how="time of the compilations in which no device of the rank ran anything, measured",
        confidence=0.9,
    )


def _finding(
    run: Run,
    rows: pd.DataFrame,
    steps: Budget,
    rule: Rule,
    *,
    title: str,
    advice: str,
    how: str,
    confidence: float,
) -> Finding | None:
    saving = sum(reading.idle_during(run, rows).values())
    if not steps.matters(saving):
        return None
    return Finding(
        code=rule.code,
        severity=steps.severity(saving),
        title=f"{title}, {human(steps.per_step(saving), 'ns')} idle",
        advice=advice,
        saving_ns_per_step=steps.per_step(saving),
        basis=Basis.ESTIMATED,
        how=how,
        confidence=confidence,
        evidence={"host_intervals": weightiest(rows, C.DUR_NS, EVIDENCE_ROWS)},
    )
