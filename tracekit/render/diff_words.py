"""A comparison in sentences, the same in every format for people."""

from __future__ import annotations

import shlex
from typing import TYPE_CHECKING

from tracekit.diff.comparability import IMPLIED
from tracekit.diff.model import Status, Verdict
from tracekit.render.cells import human, shorten
from tracekit.stats.comparison import THRESHOLD

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tracekit.diff.model import Diff, Metric, Side

_SHORT_SHA = 12
_LONGEST_LABEL = 80
NOTHING_CHANGED = "no work differs: every group has the same number and the same time on both sides"


def title(side: Side) -> str:
    """A side by its run, label and commit."""
    parts = [side.run]
    if side.label:
        parts.append(shorten(side.label, _LONGEST_LABEL))
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
    decides = next((one for one in diff.metrics if one.verdict is diff.verdict), diff.metrics[0])
    return f"{diff.verdict}: {effect(decides)}{_beside([one for one in diff.metrics if one is not decides])}"


def _beside(metrics: Sequence[Metric]) -> str:
    """What the metrics say that do not decide, where it is more than that they did not change."""
    silent = (Verdict.PASS, Verdict.NONE)
    told = [f"{_spoken(one)}: {one.verdict}{_change(one)}" for one in metrics if one.verdict not in silent]
    return f"; beside it {', '.join(told)}" if told else ""


def worsens(diff: Diff) -> bool:
    """Whether any metric got worse, be it one that does not decide."""
    return any(one.verdict is Verdict.REGRESSION for one in diff.metrics)


def effect(metric: Metric) -> str:
    """One metric in one sentence."""
    values = f"{human(metric.a, metric.unit)} → {human(metric.b, metric.unit)}"
    reason = f"; {metric.reason}" if metric.reason else ""
    return f"{_spoken(metric)} {values}{_change(metric)}, {metric.basis}{reason}"


def _spoken(metric: Metric) -> str:
    return metric.name.replace("_", " ")


def _change(metric: Metric) -> str:
    return "" if metric.ratio is None else f" ({100 * (metric.ratio - 1):+z.1f}%)"


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


def next_step(diff: Diff) -> str:
    """What to do where nothing can be said; empty after a verdict."""
    if diff.verdict is Verdict.CANNOT_TELL:
        return _MORE_RUNS.format(*diff.design.k)
    return _NEXT_STEPS.get(diff.verdict, "")


_MORE_RUNS = (
    "for a verdict, record more runs than the {} of the base and {} of the head, in turns and on a quiet "
    "machine; `tracekit noise` says which change how many runs can tell"
)
_NEXT_STEPS = {
    Verdict.NOT_COMPARABLE: "if that is what you study, declare it:",
    Verdict.NONE: (
        "for a verdict, record each side at least 5 times, in turns and under a label of its own (`tracekit "
        "collect --label NAME`), and compare the labels; of two commits, `tracekit ab` does that"
    ),
}


def declaring(diff: Diff) -> str:
    """The command that compares nevertheless."""
    return command(diff, varying=_needed([one.field for one in diff.comparability.refused]))


def command(diff: Diff, *, varying: Sequence[str] = ()) -> str:
    """The command that gives this comparison again, as a shell takes it."""
    declared = [one.field for one in diff.comparability.differences if one.status is Status.DECLARED]
    names = dict.fromkeys([*_needed(declared), *varying])
    words = ["tracekit", "diff", diff.base.reference, diff.head.reference]
    words += [word for name in names for word in ("--varying", name)]
    words += ["--by", diff.by] if diff.by != "op" else []
    words += ["--threshold", f"{100 * diff.design.theta:g}%"] if diff.design.theta != THRESHOLD else []
    return shlex.join(words)


def _needed(fields: Sequence[str]) -> list[str]:
    """The fields to declare: those that another one implies vary of themselves."""
    implied = {name for field in fields for name in IMPLIED.get(field, ())}
    return [name for name in fields if name not in implied]
