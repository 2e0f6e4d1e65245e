"""Confirmation of a culprit by alternating measurements, which are not affected by drift."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from tracekit.stats import blocks
from tracekit.stats.bisection import level, pooled, posterior_jump
from tracekit.stats.effect import quantile
from tracekit.stats.steps import Found, Jump, Options

if TYPE_CHECKING:
    from tracekit.bisecting.session import Session

UNSURE = "alternating measurements do not confirm the change: the machine may have drifted"
LEAST = 0.5
"""Share of the change that alternating measurements must confirm."""


def confirmed(session: Session, found: Found) -> Found:
    """Confirm the culprits by alternating measurements; unconfirmed ones become undecided.

    A jump between the ends themselves needs none: they were measured in turn.
    """
    sure: list[Jump] = []
    doubtful = list(found.undecided)
    for jump in found.jumps:
        full = (jump.after, jump.at) == (0, session.search.last)
        again = jump if full else _in_turn(session, jump)
        (sure if again and again.posterior >= Options().confidence else doubtful).append(again or jump)
    return Found(tuple(sure), tuple(doubtful), found.reason or ("" if sure else UNSURE * bool(doubtful)))


def _in_turn(session: Session, jump: Jump) -> Jump | None:
    """Estimate the change from alternating measurements alone; None if one side fails."""
    sides = [session.search.subjects[at] for at in (jump.after, jump.at)]
    starts = [len(session.own[one.key]) for one in sides]
    most, repeats = Options().most, session.search.repeats
    taken, again = 0, jump
    while taken < most:
        count = min(repeats, most - taken)
        for side in blocks.order(count):
            session.measure(sides[side == "B"])
            if session.problems.keys() & {one.key for one in sides}:
                return None
        taken += count
        own = [session.own[one.key][start:] for one, start in zip(sides, starts, strict=True)]
        again = _judged(session, jump, own)
        if again.posterior >= Options().confidence:
            break
    return again


def _judged(session: Session, jump: Jump, own: list[list[float]]) -> Jump:
    numbers = [np.log(np.array(values)) for values in own]
    a, b = map(level, numbers)
    sides = {session.search.subjects[at].key for at in (jump.after, jump.at)}
    others = [np.log(np.array(values)) for key, values in session.own.items() if values and key not in sides]
    spread = pooled([*numbers, *others])
    least, sign = LEAST * abs(jump.effect), math.copysign(1, jump.effect)
    half = float(quantile(0.975, spread.df)) * spread.sigma * (1 / a.count + 1 / b.count) ** 0.5
    effect = b.mean - a.mean
    posterior = posterior_jump(a, b, spread, sign=sign) if sign * effect >= least else 0.0
    return replace(jump, effect=effect, low=effect - half, high=effect + half, posterior=posterior)
