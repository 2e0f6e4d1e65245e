"""Output formats of `tracekit bisect`."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from tracekit.render import bisect_words as words
from tracekit.render.cells import clean, shorten
from tracekit.render.plain import envelope, escape, markdown_text
from tracekit.render.terminal import table_text

if TYPE_CHECKING:
    from tracekit.bisecting.model import Bisection, Culprit, Measured

_WIDEST = 120


def as_text(found: Bisection) -> str:
    """Render for a terminal."""
    parts = [f"{clean(words.headline(found))}\n  {clean(words.ends(found))}\n"]
    parts += [_lines(words.culprit(found, one), one.commands) for one in found.culprits]
    for one in found.undecided:
        parts.append("Uncertain:\n" + _lines(words.culprit(found, one), one.commands))
    parts.append(table_text(words.rows(found), words.COLUMNS, limit=0))
    parts.append("".join(f"  {clean(line)}\n" for line in words.notes(found)))
    return "\n".join(parts)


def _lines(texts: list[str], commands: tuple[str, ...]) -> str:
    lines = [*texts, *(f"compare: {one}" for one in commands)]
    return "".join(f"  {clean(line)}\n" for line in lines)


def as_markdown(found: Bisection) -> str:
    """Render for an issue."""
    parts = [f"## {escape(words.headline(found))}\n", f"- {escape(words.ends(found))}\n"]
    parts += [_items(found, one) for one in (*found.culprits, *found.undecided)]
    rows = [
        {name: shorten(value, _WIDEST) if isinstance(value, str) else value for name, value in row.items()}
        for row in words.rows(found)
    ]
    parts.append(markdown_text(rows, words.COLUMNS))
    parts.append("".join(f"- {escape(line)}\n" for line in words.notes(found)))
    parts.append(f"Reproduce: `{_code(words.command(found))}`\n")
    return "\n".join(parts)


def _items(found: Bisection, one: Culprit) -> str:
    doubt = "uncertain: " if one in found.undecided else ""
    items = "".join(f"- {doubt}{escape(shorten(line, 400))}\n" for line in words.culprit(found, one))
    return items + "".join(f"- compare: `{_code(line)}`\n" for line in one.commands)


def _code(text: str) -> str:
    return clean(text).replace("`", "'")


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
        "commands": list(one.commands),
    }


def _measured(one: Measured) -> dict[str, Any]:
    return {
        "position": one.position,
        **asdict(one.subject),
        "values": list(one.values),
        "cached": one.cached,
        "problem": one.problem,
    }
