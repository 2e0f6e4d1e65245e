"""Findings on compiled code: guards, graph breaks and compilations during which the device is idle."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tracekit.analysis import EVIDENCE_ROWS, Basis, Finding, Rule
from tracekit.render import human
from tracekit.schema import C

from .._shared.ranges import largest
from . import reading

if TYPE_CHECKING:
    import pandas as pd

    from tracekit.run import Run
    from tracekit.savings import Budget

    from .reading import Compiled

_WHY = "two runs of one program differ by up to 1%"
GUARDS = Rule(
    "compile_guards",
    states="all devices were idle for at least 1% of the steps while guards were checked",
    why=f"guards run before each call of compiled code; they cost the time the device idles. {_WHY}",
)
BREAKS = Rule(
    "compile_breaks",
    states=(
        "all devices were idle for at least 1% of the steps between compiled regions separated by a graph "
        "break; needs Python frames"
    ),
    why=f"at a break a graph ends and the host runs Python; it costs the time the device idles. {_WHY}",
)
COMPILES = Rule(
    "compile_in_steps",
    states="code was compiled in profiled steps, with the device idle for at least 1% of the steps meanwhile",
    why=f"steps after the warm-up should not compile; if they do, inputs keep failing guards. {_WHY}",
)
RULES = (GUARDS, BREAKS, COMPILES)


def findings(run: Run, parts: Compiled, steps: Budget) -> tuple[Finding, ...]:
    """Findings on the compiled code of a run, largest saving first."""
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
        title=f"GPU idle during guard checks: {calls:,.0f} checks {steps.per}",
        advice=(
            "compile one outer function instead of many inner ones, pass tensors rather than containers and "
            "module attributes, which need many guards, and list the guards with `TORCH_LOGS=guards`"
        ),
        how="measured time of the cache lookups with all devices of the rank idle",
        confidence=0.8,
    )


def _breaks(run: Run, gaps: pd.DataFrame, steps: Budget) -> Finding | None:
    changes = len(gaps) / steps.steps
    return _finding(
        run,
        gaps,
        steps,
        BREAKS,
        title=f"GPU idle at graph breaks: {changes:,.0f} {steps.per}",
        advice=(
            "find the graph breaks with `TORCH_LOGS=graph_breaks`, or make them errors with "
            "`torch.compile(fullgraph=True)`; calls such as `.item()`, printing and unsupported library "
            "calls end a graph. Compile functions that always follow each other together"
        ),
        how="measured time from one region to the next with all devices of the rank idle",
        confidence=0.8,
    )


def _compiles(run: Run, parts: Compiled, steps: Budget) -> Finding | None:
    return _finding(
        run,
        parts.compilations,
        steps,
        COMPILES,
        title=f"{len(parts.compilations):,} compilations during {steps.steps:,} profiled steps",
        advice=(
            "find the failing guards with `TORCH_LOGS=recompiles`; mark varying dimensions with "
            "`torch._dynamo.mark_dynamic` or `dynamic=True`, pad inputs to few shapes, and warm up with each "
            "shape before measuring"
        ),
        how="measured time of the compilations with all devices of the rank idle",
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
        evidence={"host_intervals": largest(rows, C.DUR_NS, EVIDENCE_ROWS)},
    )
