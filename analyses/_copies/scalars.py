"""Findings on copies of single values that block the host."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tracekit.analysis import Basis, Finding
from tracekit.render.cells import human
from tracekit.schema import C

from .reading import BLOCKED_NS, SCALAR_BYTES, WORST, evidence, per, places

if TYPE_CHECKING:
    import pandas as pd

    from tracekit.savings import Budget

    from .hiding import Hiding

SCALARS_WHY = (
    "without the copy the host could be earlier by at most the time it was blocked; a wait costs nothing if "
    "kernels still run after it"
)


def scalars(
    copies: pd.DataFrame, hiding: Hiding, steps: Budget, code: str, title: str, advice: str
) -> list[Finding]:
    """Finding on copies of at most 8 bytes that leave the device without kernels."""
    rows = copies[(copies[C.BYTES] <= SCALAR_BYTES).fillna(value=False) & copies[BLOCKED_NS].notna()]
    saving = hiding.starved(rows)
    if not steps.matters(saving):
        return []
    blocked = int(rows[BLOCKED_NS].sum())
    words = {
        "count": human(len(rows) / steps.steps, "").removesuffix(".00"),
        "per": per(steps),
        "blocked": f"for {human(steps.per_step(blocked), 'ns')}; kernels could start up to "
        f"{human(steps.per_step(saving), 'ns')} earlier",
        "places": places(rows, BLOCKED_NS),
    }
    return [
        Finding(
            code,
            steps.severity(saving),
            title.format(**words),
            advice.format(**words),
            steps.per_step(saving),
            Basis.ESTIMATED,
            "per gap between kernels in which such copies end, the minimum of the time the host was blocked "
            f"in them and the gap since their call, {steps.per}, {WORST}",
            0.7,
            evidence(rows, BLOCKED_NS),
        )
    ]
