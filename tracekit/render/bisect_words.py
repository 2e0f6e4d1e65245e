"""The words of a search's result, common to its formats."""

from __future__ import annotations

import math
import shlex
from statistics import mean
from typing import TYPE_CHECKING, Any

from tracekit.analysis import Column
from tracekit.render.cells import MISSING, human
from tracekit.stats.reasons import change

if TYPE_CHECKING:
    from tracekit.bisecting.model import Bisection, Culprit, Measured, Subject

COLUMNS = (
    Column("at", "", "position between the ends"),
    Column("commit", "id", "or version"),
    Column("date", "", "when it was written"),
    Column("subject", "", "first line of its message"),
    Column("value", "", "mean of the measurements"),
    Column("change", "", "against the good end"),
    Column("runs", "", "measurements, and how many of them are of earlier calls"),
    Column("problem", "prose", "why it was left out"),
)


def headline(found: Bisection) -> str:
    """The result in one line."""
    if not found.culprits:
        return f"Cannot tell: {found.reason or 'no jump was found'}"
    first = found.culprits[0]
    more = f", and {len(found.culprits) - 1} more" if len(found.culprits) > 1 else ""
    who = " or ".join(one.short for one in first.suspects)
    return f"Found: {found.metric.name} {effect(found, first)} at {who} ({first.suspects[-1].title}){more}"


def effect(found: Bisection, one: Culprit) -> str:
    """The size of a jump."""
    if found.exact:
        return f"{one.effect:+g} per step"
    return change(math.log(one.effect))


def culprit(found: Bisection, one: Culprit) -> list[str]:
    """A jump in lines: what made it, how large it is, and what it was measured against."""
    lines = [f"{named(suspect)}" for suspect in one.suspects]
    if len(one.suspects) > 1:
        lines.append("one of these: those before the last could not be measured")
    span = ""
    if not found.exact:
        span = f", 95% interval {change(math.log(one.low))} to {change(math.log(one.high))}"
        span += f", sure to {_share(one.posterior)}"
    return [*lines, f"{found.metric.name} {effect(found, one)} against {one.before.short}{span}"]


def _share(posterior: float) -> str:
    return f"{100 * posterior:.1f}%" if posterior < 0.9995 else "over 99.9%"


def named(one: Subject) -> str:
    """A commit as people know it."""
    return ", ".join(part for part in (f"{one.short} {one.title}", one.author, one.date) if part)


def ends(found: Bisection) -> str:
    """How the bad end differs from the good one."""
    a, b = (amount(found, value) for value in (found.ends.a, found.ends.b))
    text = f"{found.good.short} to {found.bad.short}, {found.subjects} steps: {found.metric.name} {a} to {b}"
    if found.exact or found.ends.ratio is None:
        return text
    told = f"{text}, {change(math.log(found.ends.ratio))}"
    if found.ends.ci95:
        low, high = (change(math.log(bound)) for bound in found.ends.ci95)
        told += f" (95% interval {low} to {high})"
    if found.ends.mde is not None and math.isfinite(found.ends.mde):
        told += f", smallest detectable change {100 * found.ends.mde:.1f}%"
    return told


def amount(found: Bisection, value: float) -> str:
    """A value in its unit."""
    return human(round(value) if found.metric.unit in {"ns", "bytes"} else value, found.metric.unit)


def rows(found: Bisection) -> list[dict[str, Any]]:
    """The log, one row for each subject that was measured or left out."""
    return [_row(found, one) for one in found.log]


def _row(found: Bisection, one: Measured) -> dict[str, Any]:
    value = mean(one.values) if one.values else None
    good = found.ends.a
    relative = value / good if value is not None and good > 0 else 0
    cached = f" ({one.cached} earlier)" if one.cached else ""
    return {
        "at": one.position,
        "commit": one.subject.short,
        "date": one.subject.date[:10] or None,
        "subject": one.subject.title,
        "value": MISSING if value is None else amount(found, value),
        "change": change(math.log(relative)) if relative > 0 else MISSING,
        "runs": f"{len(one.values)}{cached}",
        "problem": one.problem or None,
    }


def notes(found: Bisection) -> list[str]:
    """What else to know."""
    made, known = found.runs
    told = [f"{made} measurements made, {known} taken from earlier calls", *found.notes]
    told += [
        f"{one.name} per step changed from {one.good:g} to {one.bad:g}: --signature {one.name} finds that "
        "commit in one run per commit"
        for one in found.changed
    ]
    return told


def command(found: Bisection) -> str:
    """The command that searches the same again."""
    return shlex.join(found.command)
