"""A comparison in sentences, the same in every format for people."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tracekit.diff.comparability import IMPLIED
from tracekit.diff.model import Status, Verdict

if TYPE_CHECKING:
    from tracekit.diff.model import Diff, Metric, Side

_SHORT_SHA = 12


def title(side: Side) -> str:
    """A side by its run, label and commit."""
    parts = [side.run]
    if side.label:
        parts.append(side.label)
    if side.commit:
        parts.append(side.commit[:_SHORT_SHA] + ("+" if side.dirty else ""))
    if len(side.runs) > 1:
        parts.append(f"median of {len(side.runs)} runs")
    return ", ".join(parts)


def headline(diff: Diff) -> str:
    """The verdict in one sentence."""
    if diff.verdict is Verdict.NOT_COMPARABLE:
        names = ", ".join(one.field for one in diff.comparability.refused)
        return f"not comparable: the runs differ in {names}, so nothing was compared"
    if not diff.metrics:
        return f"{diff.verdict}: nothing was measured"
    return f"{diff.verdict}: {effect(diff.metrics[0])}"


def effect(metric: Metric) -> str:
    """One metric in one sentence."""
    from tracekit.render.cells import human

    change = "" if metric.ratio is None else f" ({100 * (metric.ratio - 1):+.1f} %)"
    name = metric.name.replace("_", " ")
    values = f"{human(metric.a, metric.unit)} → {human(metric.b, metric.unit)}"
    reason = f"; {metric.reason}" if metric.reason else ""
    return f"{name} {values}{change}, {metric.basis}{reason}"


def comparable(diff: Diff) -> str:
    """What stands between the two sides."""
    by_status: dict[Status, list[str]] = {}
    for one in diff.comparability.differences:
        by_status.setdefault(one.status, []).append(one.field)
    said = {
        Status.NOT_COMPARABLE: "not the same, which forbids a comparison",
        Status.WARN: "not the same, which may explain a part",
        Status.UNKNOWN: "known of one side only",
        Status.DECLARED: "declared to vary",
    }
    parts = [
        f"{text}: {', '.join(by_status[status])}" for status, text in said.items() if status in by_status
    ]
    return f"comparability: {'; '.join(parts) if parts else 'the fingerprints are equal'}"


def compared(diff: Diff) -> str:
    """Which part of the runs the ledgers are about."""
    if diff.compared is None:
        return ""
    one = diff.compared
    where = "on devices" if one.on_device else "of ops on the host (self time), as nothing ran on a device"
    if not one.marked:
        return f"compared: the whole captures; work is time {where}"
    left = f"; {one.left_out} warm-up step{'s' * (one.left_out != 1)} left out on both sides" * bool(
        one.left_out
    )
    unused = "; ".join(
        f"{count} earlier steps of the {name} without a match"
        for name, count in zip(("base", "head"), one.unused, strict=True)
        if count
    )
    more = f"; {unused}" if unused else ""
    steps = "step" if one.steps == 1 else f"{one.steps} steps"
    return f"compared: the last {steps} of each side{left}{more}; work is time {where}"


def how_to_declare(diff: Diff) -> str:
    """The command that compares nevertheless."""
    refused = [one.field for one in diff.comparability.refused]
    implied = {name for field in refused for name in IMPLIED.get(field, ())}
    needed = [name for name in refused if name not in implied]
    return f"if that is what you study, declare it: {command(diff, varying=needed)}"


def command(diff: Diff, *, varying: list[str] | None = None) -> str:
    """The command that gives this comparison again."""
    declared = [one.field for one in diff.comparability.differences if one.status is Status.DECLARED]
    implied = {name for field in declared for name in IMPLIED.get(field, ())}
    names = [*(name for name in declared if name not in implied), *(varying or [])]
    words = ["tracekit", "diff", diff.base.reference, diff.head.reference]
    words += [word for name in dict.fromkeys(names) for word in ("--varying", name)]
    return " ".join([*words, *(["--by", diff.by] if diff.by != "op" else [])])


NOTHING_CHANGED = "no work differs: every group has the same number and the same time on both sides"
