"""Rule on copies of scalars, in either direction."""

from __future__ import annotations

import pandas as pd

from tracekit.analysis import Bottleneck, Finding, Rule
from tracekit.analysis.savings import MIN_SHARE, Budget
from tracekit.runs.text import human
from tracekit.schema import C

from .read_copies import BLOCKED_NS, WORST, describe_places, evidence_of_copies
from .tables import KernelUnions


def scalar_rule(code: str, direction: str) -> Rule:
    """Return the rule on copies of scalars in a direction, such as `host-to-device`."""
    return Rule(
        code,
        states=f"{direction} copies of at most {{max_bytes}} in profiled steps; the gaps between kernels "
        "in which they end, each capped at the time the host was blocked in them, are at least "
        "{min_saving_share} of the step",
        why="without the copy the host could be earlier by at most the time it was blocked; a wait costs "
        "nothing if kernels still run after it",
        bound=Bottleneck.COPIES,
        thresholds={"max_bytes": 8, "min_saving_share": MIN_SHARE},
    )


def per_device(rows: pd.DataFrame, steps: Budget) -> str:
    """What amounts of copies are per: those of one device of each rank, as their times are."""
    several = rows.groupby(C.RANK)[C.DEVICE].nunique().max() > 1
    return f"{steps.per} and device" if several else steps.per


def scalar_findings(
    rule: Rule, copies: pd.DataFrame, kernels: KernelUnions, steps: Budget, *, title: str, advice: str
) -> list[Finding]:
    """Finding on copies of scalars that leave the device without kernels.

    The title is a template with `count`, `per` and `blocked`, the advice one with `places`.
    """
    rows = copies[(copies[C.BYTES] <= rule["max_bytes"]).fillna(value=False) & copies[BLOCKED_NS].notna()]
    saving = kernels.start_delay_ns(rows) if steps.marked else 0
    if not steps.matters(saving, least=rule["min_saving_share"]):
        return []
    blocked = int(rows[BLOCKED_NS].sum())
    words = {
        "count": human(len(rows) / steps.steps, "").removesuffix(".00"),
        "per": steps.per,
        "blocked": f"for {human(steps.per_step(blocked), 'ns')}; kernels could start up to "
        f"{human(steps.per_step(saving), 'ns')} earlier",
        "places": describe_places(rows, BLOCKED_NS),
    }
    return [
        steps.finding(
            rule,
            saving,
            title.format(**words),
            advice.format(**words),
            "per gap between kernels in which such copies end, the minimum of the time the host was blocked "
            f"in them and the gap since their call, {steps.per}, {WORST}",
            confidence=0.7,
            evidence=evidence_of_copies(rows, BLOCKED_NS),
        )
    ]
