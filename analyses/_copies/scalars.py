"""Advice on copies of single values, of which the host waits for each."""

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
    "a host that is not blocked is earlier by no more than it was blocked; a wait after which kernels "
    "still run costs nothing"
)


def scalars(
    copies: pd.DataFrame, hiding: Hiding, steps: Budget, code: str, title: str, advice: str
) -> list[Finding]:
    """Copies of at most 8 bytes whose waiting leaves the device without kernels."""
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
            "in each gap between kernels in which such copies end, the shorter of the time the host was "
            f"blocked in them and the gap since their call, {steps.per}, {WORST}",
            0.7,
            evidence(rows, BLOCKED_NS),
        )
    ]
