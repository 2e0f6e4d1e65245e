"""Findings on host-to-device copies: wider dtypes, repeated copies, scalars, and offloaded data."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pandas as pd

from tracekit.analysis import Rule
from tracekit.savings import budget
from tracekit.schema import C

from . import ping_pong as copies_ping_pong
from . import repeated, wider
from .reading import counted
from .scalars import SCALARS_WHY, scalars

if TYPE_CHECKING:
    from tracekit.analysis import Finding
    from tracekit.run import Run

    from .hiding import Hiding

SCALARS = "h2d_scalars"
_SCALAR_TITLE = "{count} scalar copies to the device {per} block the host {blocked}"
_SCALAR_ADVICE = (
    "Create the value on the device (`torch.full((), value, device=...)`) or pass it to the op as a Python "
    "number, instead of moving a tensor made on the host: {places}."
)

RULES = (
    wider.RULE,
    repeated.RULE,
    Rule(
        SCALARS,
        "host-to-device copies of at most 8 bytes in profiled steps; the gaps between kernels in which they "
        "end, each capped at the time the host was blocked in them, are at least 1% of the step",
        SCALARS_WHY,
    ),
    copies_ping_pong.RULE,
)


def findings(run: Run, copies: pd.DataFrame, down: pd.DataFrame, hiding: Hiding) -> tuple[Finding, ...]:
    """Findings on described host-to-device copies; device-to-host copies need no description."""
    steps = budget(run)
    up, down = counted(copies, marked=steps.marked), counted(down, marked=steps.marked)
    paired = copies_ping_pong.pairs(pd.concat([up, down], ignore_index=True)) if steps.marked else up[:0]
    ping_pong = copies_ping_pong.ping_pong(paired, hiding, steps)
    offloaded = set(paired[C.BYTES]) if ping_pong else set()
    found = [*wider.wider(up, hiding, steps)]
    if steps.marked:
        not_offloaded = up[~up[C.BYTES].isin(offloaded | set(down[C.BYTES]))]
        found += repeated.repeated(not_offloaded, up, hiding, steps)
        found += scalars(up, hiding, steps, SCALARS, _SCALAR_TITLE, _SCALAR_ADVICE)
    return (*found, *ping_pong)
