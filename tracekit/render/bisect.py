"""Output formats of `tracekit bisect`."""

from __future__ import annotations

import math
import shlex
from dataclasses import asdict
from statistics import mean
from typing import TYPE_CHECKING, Any

from tracekit.analysis import Column
from tracekit.errors import clean
from tracekit.render.cells import code, envelope, escape, markdown_text, short
from tracekit.render.layout import table_text
from tracekit.runs.text import MISSING, human, shorten
from tracekit.stats.comparison import Comparison, Metric
from tracekit.stats.decide import change

if TYPE_CHECKING:
    from tracekit.experiments.bisect_model import Bisection, Culprit, LogEntry, Moment, Subject


COLUMNS = (
    Column("at", "", "position between the ends"),
    Column("commit", "id", "commit or version"),
    Column("date", "", "date of the commit"),
    Column("subject", "", "first line of the commit message"),
    Column("value", "", "mean of the measurements"),
    Column("change", "", "change from the good end"),
    Column("runs", "", "measurements, and how many are from earlier calls"),
    Column("problem", "prose", "why it was skipped"),
)


def headline(found: Bisection) -> str:
    """Return the result in one line."""
    if not found.culprits:
        return f"Cannot tell: {found.reason or 'no change was found'}"
    first = found.culprits[0]
    more = f", and {len(found.culprits) - 1} more" if len(found.culprits) > 1 else ""
    who = " or ".join(one.short for one in first.suspects)
    return f"Found: {found.metric.name} {effect(found, first)} at {who} ({first.suspects[-1].title}){more}"


def effect(found: Bisection, one: Culprit) -> str:
    """Format the size of a change."""
    if found.exact:
        return f"{one.effect:+g} per step"
    return change(math.log(one.effect))


def culprit(found: Bisection, one: Culprit) -> list[str]:
    """Return the lines of a culprit: its commits, the size of the change, and the reference commit."""
    lines = [f"{named(suspect)}" for suspect in one.suspects]
    if len(one.suspects) > 1:
        lines.append("one of these commits: all but the last could not be measured")
    span = ""
    if not found.exact:
        span = f", 95% interval {change(math.log(one.low))} to {change(math.log(one.high))}"
        span += ", probability " + (f"{one.posterior:.1%}" if one.posterior < 0.9995 else "over 99.9%")
    lines.append(f"{found.metric.name} {effect(found, one)} against {one.before.short}{span}")
    return [*lines, *_asked(found, one)]


def _asked(found: Bisection, one: Culprit) -> list[str]:
    """Return how the asked metric changed where the searched count did."""
    if found.asked is None or one.asked is None:
        return []
    seen = one.asked
    interval = " to ".join(change(math.log(bound)) for bound in (seen.low, seen.high))
    doubt = ", not conclusive" if seen.low <= 1 <= seen.high else ""
    text = f"{found.asked.name} {change(math.log(seen.ratio))} against {one.before.short}"
    return [f"{text}, 95% interval {interval}{doubt} ({seen.runs} alternating runs of each)"]


def named(one: Subject) -> str:
    """Return the short id, subject, author and date of a commit."""
    return ", ".join(part for part in (f"{one.short} {one.title}", one.author, one.date) if part)


def ends(found: Bisection) -> list[str]:
    """Describe the difference between the good and the bad end, a line per metric."""
    span = f"{found.good.short} to {found.bad.short}, {found.subjects} steps: "
    lines = [f"{span}{_difference(found.ends, exact=found.exact)}"]
    return [*lines, f"{span}{_difference(found.asked, exact=False)}"] if found.asked else lines


def _difference(of: Comparison, *, exact: bool) -> str:
    a, b = (_formatted(value, of.unit) for value in (of.a, of.b))
    text = f"{of.name} {a} to {b}"
    if exact or of.ratio is None:
        return text
    described = f"{text}, {change(math.log(of.ratio))}"
    if of.ci95:
        low, high = (change(math.log(bound)) for bound in of.ci95)
        described += f" (95% interval {low} to {high})"
    if of.mde is not None and math.isfinite(of.mde):
        described += f", smallest detectable change {100 * of.mde:.1f}%"
    return described


def amount(metric: Metric, value: float) -> str:
    """Format a value in its unit."""
    return _formatted(value, metric.unit)


def _formatted(value: float, unit: str) -> str:
    whole = unit in {"ns", "bytes"} or float(value).is_integer()
    return human(round(value) if whole else value, unit)


def moment_text(moment: Moment, place: str) -> str:
    """Describe a measurement, what is left and for how long.

    Args:
        moment: The measurement.
        place: Position of its subject among all.
    """
    if moment.value is None:
        what = f"skipped: {moment.problem}"
    else:
        what = f"{moment.metric.name} {amount(moment.metric, moment.value)} (n={moment.number})"
    left = f", about {moment.left} more in {_duration(moment.left_seconds)}" if moment.left else ""
    title = f"{place} {moment.subject.short} {moment.subject.title[:60]}"
    return f"{title}: {what}, {_duration(moment.seconds)} elapsed{left}"


def _duration(seconds: float) -> str:
    minutes, rest = divmod(round(seconds), 60)
    return f"{minutes} min {rest} s" if minutes else f"{rest} s"


def _row(found: Bisection, one: LogEntry) -> dict[str, Any]:
    value = mean(one.values) if one.values else None
    good = found.ends.a
    relative = value / good if value is not None and good > 0 else 0
    cached = f" ({one.cached} earlier)" if one.cached else ""
    return {
        "at": one.position,
        "commit": one.subject.short,
        "date": one.subject.date[:10] or None,
        "subject": one.subject.title,
        "value": MISSING if value is None else amount(found.metric, value),
        "change": change(math.log(relative)) if relative > 0 else MISSING,
        "runs": f"{len(one.values)}{cached}",
        "problem": one.problem or None,
    }


def notes(found: Bisection) -> list[str]:
    """Return further notes."""
    made, known = found.runs
    texts = [f"{made} measurements, {known} from earlier calls", *found.notes]
    if found.asked:
        count, asked = found.metric.name, found.asked.name
        texts.append(
            f"{count} per step differs between the ends and repeats exactly, so it was searched "
            f"(--signature {count}); --metric {asked} searches {asked} itself"
        )
    texts += [
        f"{one.name} per step changed from {one.good:g} to {one.bad:g}; --signature {one.name} finds the "
        "commit in one run per commit"
        for one in found.changed
    ]
    return texts


_WIDEST = 120


def as_text(found: Bisection) -> str:
    """Render for a terminal."""
    parts = [f"{clean(headline(found))}\n" + "".join(f"  {clean(line)}\n" for line in ends(found))]
    parts += [_lines(culprit(found, one), one.commands) for one in found.culprits]
    parts += ["Uncertain:\n" + _lines(culprit(found, one), one.commands) for one in _uncertain(found)]
    parts.append(table_text([_row(found, one) for one in found.log], COLUMNS, limit=0))
    parts.append("".join(f"  {clean(line)}\n" for line in notes(found)))
    return "\n".join(parts)


def _uncertain(found: Bisection) -> tuple[Culprit, ...]:
    """Return the steps that may be changes; none where a culprit was found, which they would only obscure."""
    return () if found.culprits else found.undecided


def _lines(texts: list[str], commands: tuple[str, ...]) -> str:
    lines = [*texts, *(f"compare: {one}" for one in commands)]
    return "".join(f"  {clean(line)}\n" for line in lines)


def as_markdown(found: Bisection) -> str:
    """Render for an issue."""
    parts = [f"## {escape(headline(found))}\n", "".join(f"- {escape(line)}\n" for line in ends(found))]
    parts += [_items(found, one) for one in (*found.culprits, *_uncertain(found))]
    rows = [short(_row(found, one), _WIDEST) for one in found.log]
    parts.append(markdown_text(rows, COLUMNS))
    parts.append("".join(f"- {escape(line)}\n" for line in notes(found)))
    parts.append(f"Reproduce: {code(shlex.join(found.command))}\n")
    return "\n".join(parts)


def _items(found: Bisection, one: Culprit) -> str:
    doubt = "uncertain: " if one in found.undecided else ""
    items = "".join(f"- {doubt}{escape(shorten(line, 400))}\n" for line in culprit(found, one))
    return items + "".join(f"- compare: {code(line)}\n" for line in one.commands)


def as_json(found: Bisection) -> str:
    """Render as `tracekit.bisect/1`: verdict, ends, culprits and all measurements."""
    made, known = found.runs
    content = envelope(
        "bisect",
        found=bool(found.culprits),
        exit_code=int(found.exit_code),
        reason=found.reason,
        metric={"name": found.metric.name, "unit": found.metric.unit, "exact": found.exact},
        good=asdict(found.good),
        bad=asdict(found.bad),
        steps=found.subjects,
        ends=found.ends.entry(),
        culprits=[_culprit(one) for one in found.culprits],
        undecided=[_culprit(one) for one in found.undecided],
        broken=[_measured(one) for one in found.log if one.problem],
        log=[_measured(one) for one in found.log],
        measured=made,
        cached=known,
        asked=found.asked.entry() if found.asked else None,
        changed_counts=[asdict(one) for one in found.changed],
        notes=list(found.notes),
        reproduce=list(found.command),
    )
    return content + "\n"


def _culprit(one: Culprit) -> dict[str, Any]:
    return {
        "at": asdict(one.suspects[-1]),
        "suspects": [asdict(suspect) for suspect in one.suspects],
        "before": asdict(one.before),
        "effect": one.effect,
        "ci95": [one.low, one.high],
        "posterior": one.posterior,
        "asked": asdict(one.asked) if one.asked else None,
        "commands": list(one.commands),
    }


def _measured(one: LogEntry) -> dict[str, Any]:
    return {
        "position": one.position,
        **asdict(one.subject),
        "values": list(one.values),
        "cached": one.cached,
        "problem": one.problem,
    }
