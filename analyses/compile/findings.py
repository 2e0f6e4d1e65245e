"""Find what guards, graph breaks and compilations cost, and steps that compiling made slower."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from tracekit.analysis import EVIDENCE_ROWS, Basis, Bottleneck, Finding, Rule, Severity
from tracekit.analysis.savings import CONFIDENT, HIGH_SHARE, MIN_SHARE, Budget
from tracekit.runs.compilation import PROFILED, TIMED, Compilation, Compiled
from tracekit.runs.metrics import STEP_TIME
from tracekit.runs.run import Run
from tracekit.runs.text import human
from tracekit.schema import C
from tracekit.stats.comparison import THRESHOLD

from ..shared.common import ints, largest_rows
from .regions import CompiledRun, idle_during

if TYPE_CHECKING:
    from tracekit.diff import Diff

_NOISE = "runs of one program differ by up to {min_idle_share}"
GUARDS = Rule(
    "compile_guards",
    bound=Bottleneck.COMPUTE,
    states="all devices were idle for at least {min_idle_share} of the steps while guards were checked",
    why=f"guards run before each call of compiled code; they cost the time the device idles. {_NOISE}",
    thresholds={"min_idle_share": MIN_SHARE},
)
BREAKS = Rule(
    "compile_breaks",
    bound=Bottleneck.COMPUTE,
    states="all devices were idle for at least {min_idle_share} of the steps between compiled regions "
    "separated by a graph break; needs Python frames",
    why=f"at a break a graph ends and the host runs Python; it costs the time the device idles. {_NOISE}",
    thresholds={"min_idle_share": MIN_SHARE},
)
COMPILES = Rule(
    "compile_in_steps",
    bound=Bottleneck.COMPUTE,
    states="code was compiled in profiled steps, with the device idle for at least {min_idle_share} of the "
    "steps meanwhile",
    why=f"steps after the warm-up should not compile; if they do, inputs keep failing guards. {_NOISE}",
    thresholds={"min_idle_share": MIN_SHARE},
)
LATE = Rule(
    "compile_late",
    bound=Bottleneck.COMPUTE,
    states="torch compiled code in the timed or the profiled steps, after the warm-up",
    why="a compilation takes longer than many steps: times that include it are not steady-state step times",
)
BROKEN = Rule(
    "compile_graph_breaks",
    bound=Bottleneck.COMPUTE,
    states="torch counted a graph break",
    why="a graph ends there, so nothing is fused across it; torch reports the reason",
)
SLOWER = Rule(
    "compile_slower",
    bound=Bottleneck.COMPUTE,
    states="a step of the compiled head takes at least {min_excess_share} longer than that of the eager base",
    why="runs of one program may differ by less (TorchBench alarms at {min_excess_share})",
    thresholds={"min_excess_share": THRESHOLD},
)
RULES = (GUARDS, BREAKS, COMPILES, LATE, BROKEN, SLOWER)


def findings(
    run: Run, compiled: CompiledRun, counters: Compilation | None, budget: Budget
) -> tuple[Finding, ...]:
    """Return findings on the compiled code of a run, largest saving first, then those by torch's counters."""
    idle = _find_idle(run, compiled, budget)
    if counters is None:
        return tuple(idle)
    parts = [TIMED, PROFILED]
    if any(finding.code == COMPILES.code for finding in idle):
        parts.remove(PROFILED)  # these compilations are reported, with the measured idle time
    late_parts = [(part, [row for row in counters.late if row.part == part]) for part in parts]
    late_findings = [
        _report_late(run, part, compilations) for part, compilations in late_parts if compilations
    ]
    return (*idle, *late_findings, *([_report_broken(counters)] if counters.breaks else []))


def _find_idle(run: Run, compiled: CompiledRun, budget: Budget) -> list[Finding]:
    """Findings on the time that devices idle during guards, at graph breaks and during compilations."""
    checks = f"{len(compiled.lookups) / budget.steps:,.0f} checks {budget.per}"
    count = f"{len(compiled.compilations):,} compilations during {budget.steps:,} profiled steps"
    cases = [
        (
            GUARDS,
            compiled.lookups,
            f"GPU idle during guard checks: {checks}",
            "compile one outer function instead of many inner ones, pass tensors rather than "
            "containers and module attributes, which need many guards, and list the guards with "
            "`TORCH_LOGS=guards`",
            "of the cache lookups",
        )
    ]
    if compiled.breaks is not None:
        breaks = f"{len(compiled.breaks) / budget.steps:,.0f} {budget.per}"
        cases.append(
            (
                BREAKS,
                compiled.breaks,
                f"GPU idle at graph breaks: {breaks}",
                "find the graph breaks with `TORCH_LOGS=graph_breaks`, or make them errors with "
                "`torch.compile(fullgraph=True)`; calls such as `.item()`, printing and unsupported "
                "library calls end a graph. Compile functions that always follow each other together",
                "from one region to the next",
            )
        )
    if budget.marked:
        cases.append(
            (
                COMPILES,
                compiled.compilations,
                count,
                "find the failing guards with `TORCH_LOGS=recompiles`; mark varying dimensions with "
                "`torch._dynamo.mark_dynamic` or `dynamic=True`, pad inputs to few shapes, and warm up "
                "with each shape before measuring",
                "of the compilations",
            )
        )
    by_cause = []
    for rule, rows, title, advice, measured in cases:
        saving = sum(idle_during(run, rows).values())
        if budget.matters(saving, least=rule["min_idle_share"]):
            finding = budget.finding(
                rule,
                saving,
                f"{title}, {human(budget.per_step(saving), 'ns')} idle",
                advice,
                f"measured time {measured} with all devices of the rank idle",
                confidence=CONFIDENT if rule is COMPILES else 0.8,
                evidence={"host_intervals": largest_rows(rows, C.DUR_NS)},
            )
            by_cause.append(finding)
    return sorted(by_cause, key=lambda finding: (-(finding.saving_ns_per_step or 0), finding.code))


def _report_late(run: Run, part: str, compilations: Sequence[Compiled]) -> Finding:
    timed = run.meta.timings.step_ns if run.meta.timings and part == TIMED else []
    steps = len(timed) if timed else run.rows("steps") or 1
    total = sum(compilation.dur_ns for compilation in compilations)
    guard = next((f": {compilation.reason}" for compilation in compilations if compilation.reason), "")
    count = f"{len(compilations):,} compilation{'s' * (len(compilations) != 1)}"
    is_severe = not timed or total >= HIGH_SHARE * sum(timed)
    return Finding(
        code=LATE.code,
        severity=Severity.HIGH if is_severe else Severity.WARN,
        title=f"{count} ran in {part} steps, {human(total // steps, 'ns')} per step{guard}",
        advice="mark varying dimensions with `torch._dynamo.mark_dynamic` or `dynamic=True`, pad inputs to "
        "few shapes, or warm up with each shape; `TORCH_LOGS=recompiles` shows each guard that fails",
        saving_ns_per_step=total // steps,
        basis=Basis.MEASURED,
        how=f"time of these compilations as measured by torch, over the number of {part} steps",
        confidence=CONFIDENT,
    )


def _report_broken(counters: Compilation) -> Finding:
    first, count = counters.breaks[0], counters.graph_breaks
    title = f"{count:,} graph break{'s' * (count != 1)}"
    others = len(counters.breaks) - 1
    more = f" and {others} other reason{'s' * (others != 1)}" if others else ""
    return Finding(
        code=BROKEN.code,
        severity=Severity.INFO,
        title=f"{title}: {first.reason}{more}",
        advice=f"in {', '.join(first.functions) or 'an unnamed function'}: "
        f"{first.explanation or 'see `TORCH_LOGS=graph_breaks`'}",
        confidence=CONFIDENT,
    )


def compare_findings(diff: Diff, compiled: CompiledRun) -> tuple[Finding, ...]:
    """Return the finding on a step that compiling made slower, from the diff with an eager base."""
    time = next((metric for metric in diff.metrics if metric.name == STEP_TIME), None)
    if not compiled.any or time is None or time.ratio is None or time.ratio < 1 + SLOWER["min_excess_share"]:
        return ()
    rows = compiled.lookups.sort_values([C.DUR_NS, C.ROW_ID], ascending=[False, True]).head(EVIDENCE_ROWS)
    replay = ", compile with `mode='reduce-overhead'` if launch-bound" if len(compiled.kernels) else ""
    finding = Finding(
        code=SLOWER.code,
        severity=Severity.WARN,
        title=f"a compiled step takes {time.ratio:.2f}× the time of an eager one ({time.basis})",
        advice="check the head's overhead: guard checks, regions (graph breaks) and compilations in the "
        "table of quantities, and analyze the head alone with `compile`; check that the backend generates "
        f"code (`inductor` does, `eager` and `aot_eager` do not){replay}, or leave parts eager with "
        "`torch.compiler.disable`",
        saving_ns_per_step=round(time.b - time.a),
        basis=Basis.MEASURED,
        how="step of the head minus step of the base",
        confidence=0.6,
        evidence={"host_intervals": ints(rows, C.ROW_ID).tolist()} if len(rows) else {},
    )
    return (finding,)
