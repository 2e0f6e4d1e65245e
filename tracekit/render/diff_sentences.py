"""Sentences of a comparison, shared by its output formats."""

from __future__ import annotations

import shlex
from collections.abc import Sequence

from tracekit.diff.breakdowns import BreakdownLine, Cause
from tracekit.diff.engine import IMPLIED
from tracekit.diff.model import Diff, Metric, Side, Status, Verdict
from tracekit.diff.step_time_breakdown import OF_WORK
from tracekit.render.diff_tables import format_signed, largest_change, per_step, unit
from tracekit.runs.text import human, shorten
from tracekit.stats.comparison import THRESHOLD, format_ratio

_SHORT_SHA = 12
_MAX_LABEL_CHARS = 80
NOTHING_CHANGED = "no differences: all groups have the same count and time on both sides"


def describe_side(side: Side) -> str:
    """Describe a side by its run, label and commit."""
    parts = [side.run]
    if side.label:
        parts.append(shorten(side.label, _MAX_LABEL_CHARS))
    if side.commit:
        parts.append(side.commit[:_SHORT_SHA] + ("+" if side.dirty else ""))
    if len(side.runs) > 1:
        parts.append(f"median of {len(side.runs)} runs")
    return ", ".join(parts)


def headline(diff: Diff) -> str:
    """Return the verdict in one sentence, after what makes the numbers misleading."""
    doubt = f"misleading numbers: {'; '.join(diff.misleading)}. Verdict: " if diff.misleading else ""
    return f"{doubt}{_verdict(diff)}"


def _verdict(diff: Diff) -> str:
    if diff.verdict is Verdict.NOT_COMPARABLE:
        names = ", ".join(difference.field for difference in diff.comparability.refused)
        return f"not comparable: the runs differ in {names}, so nothing was compared"
    if not diff.metrics:
        return f"{diff.verdict}: no metrics"
    decisive = next((metric for metric in diff.metrics if metric.verdict is diff.verdict), diff.metrics[0])
    others = [metric for metric in diff.metrics if metric is not decisive]
    return f"{diff.verdict}: {describe_metric(decisive)}{_describe_others(others)}"


def _describe_others(metrics: Sequence[Metric]) -> str:
    """Describe the metrics that do not determine the verdict but changed."""
    silent = (Verdict.PASS, Verdict.NONE)
    texts = [
        f"{_metric_name(metric)}: {metric.verdict}{_change(metric)}"
        for metric in metrics
        if metric.verdict not in silent
    ]
    return f"; also {', '.join(texts)}" if texts else ""


def has_regression(diff: Diff) -> bool:
    """Tell whether any metric got worse, even one that does not determine the verdict."""
    return any(metric.verdict is Verdict.REGRESSION for metric in diff.metrics)


def describe_metric(metric: Metric) -> str:
    """Describe a metric in one sentence."""
    values = f"{human(metric.a, metric.unit)} → {human(metric.b, metric.unit)}"
    reason = f"; {metric.reason}" if metric.reason else ""
    return f"{_metric_name(metric)} {values}{_change(metric)}, {metric.basis}{reason}"


def _metric_name(metric: Metric) -> str:
    return metric.name.replace("_", " ")


def _change(metric: Metric) -> str:
    return "" if metric.ratio is None else f" ({format_ratio(metric.ratio)})"


def describe_differences(diff: Diff) -> str:
    """Describe the differences of the sides that affect the comparison."""
    by_status: dict[Status, list[str]] = {}
    for difference in diff.comparability.differences:
        by_status.setdefault(difference.status, []).append(difference.field)
    texts = {
        Status.NOT_COMPARABLE: "blocks comparison",
        Status.WARN: "different, may explain part of the change",
        Status.UNKNOWN: "recorded on one side only",
        Status.DECLARED: "ignored differences",
    }
    parts = [
        f"{text}: {', '.join(by_status[status])}" for status, text in texts.items() if status in by_status
    ]
    return f"comparability: {'; '.join(parts) if parts else 'equal fingerprints'}"


def describe_steps(diff: Diff) -> str:
    """Describe which steps the ledgers cover."""
    if diff.compared is None:
        return ""
    steps = diff.compared
    where = "device time" if steps.on_device else "self time of CPU ops, as not both sides ran on a device"
    if not steps.marked:
        return f"Compared the full captures{f' of {steps.ranks} ranks' * (steps.ranks > 1)}; work is {where}"
    skipped = f"; skipped {steps.left_out} warm-up step{'s' * (steps.left_out != 1)} of both sides" * bool(
        steps.left_out
    )
    unused = "; ".join(
        f"{count} earlier step{'s' * (count != 1)} of the {name} unmatched"
        for name, count in zip(("base", "head"), steps.unused, strict=True)
        if count
    )
    more = f"; {unused}" if unused else ""
    count = "step" if steps.each == 1 else f"{steps.each} steps"
    sides = "each side" if steps.ranks == 1 else f"each of {steps.ranks} ranks"
    return f"Compared the last {count} of {sides}{skipped}{more}; work is {where}"


def describe_largest(diff: Diff) -> str:
    """Name the largest causes in one sentence; empty if nothing changed."""
    of_work = [
        f"{text}: {cause.label} {format_signed(per_step(diff, cause.terms.delta))} per {unit(diff)}"
        + " (within the spread of the steps)" * cause.noisy
        for text, cause in largest_changes(diff)
    ]
    return "; ".join(filter(None, [describe_main_part(diff), *of_work]))


MIN_SHOWN = 0.01
"""Change over the step of the base from which a part, or a line of the work ledger, is named in sentences."""


def find_main_part(diff: Diff) -> BreakdownLine | None:
    """Return the part that changed most as the step did, if it is none that matched work explains."""
    part = diff.wall.main if diff.wall else None
    if not diff.wall or not part or abs(part.delta) < MIN_SHOWN * diff.wall.total.a_ns:
        return None
    return None if part.name in OF_WORK else part


def describe_main_part(diff: Diff) -> str:
    """Return the part that changed most in words; empty if there is none."""
    part = find_main_part(diff)
    return f"largest part of the change: {describe_part(diff, part)}" if part else ""


def describe_part(diff: Diff, part: BreakdownLine, *, explain: bool = True) -> str:
    """Return the change of a part, with the op or function that changed most in it."""
    most = f" (in {largest_change(diff, part)})" if explain and part.changed else ""
    return f"{part.name} {format_signed(per_step(diff, part.delta))} per {unit(diff)}{most}"


def largest_changes(diff: Diff) -> list[tuple[str, Cause]]:
    """Return the largest increase and decrease of work, and the largest that noise does not explain.

    Changes below `MIN_SHOWN` of the step are left out.

    Returns:
        What each of them is, and the line of the work ledger.
    """
    changes = []
    least = MIN_SHOWN * diff.wall.total.a_ns if diff.wall else 0
    causes = [cause for cause in diff.causes if cause.terms.delta and abs(cause.terms.delta) >= least]
    for text, sign in (("largest increase", 1), ("largest decrease", -1)):
        cause = next((cause for cause in causes if sign * cause.terms.delta > 0), None)
        if cause:
            changes.append((text, cause))
    clear = next((cause for cause in causes if cause.steps and not cause.noisy), None)
    if clear and all(cause.noisy for _, cause in changes):
        changes.append(("largest beyond the spread of the steps", clear))
    return changes


def next_step(diff: Diff) -> str:
    """Return the next step without a verdict; empty after a verdict."""
    if diff.verdict is Verdict.CANNOT_TELL:
        return _MORE_RUNS.format(*diff.design.k)
    return _NEXT_STEPS.get(diff.verdict, "")


_MORE_RUNS = (
    "for a verdict, record more than {} runs of the base and {} of the head, alternating and on an idle "
    "machine; `tracekit noise` shows what change a number of runs can detect"
)
_NEXT_STEPS = {
    Verdict.NOT_COMPARABLE: "to compare anyway, ignore the differences:",
    Verdict.NONE: (
        "for a verdict, record each side at least 5 times, alternating and with a label per side (`tracekit "
        "collect --label NAME`), and compare the labels; for two commits, use `tracekit ab`"
    ),
}


def varying_command(diff: Diff) -> str:
    """Return the command that compares anyway."""
    return diff_command(
        diff, varying=_drop_implied([difference.field for difference in diff.comparability.refused])
    )


def diff_command(diff: Diff, *, varying: Sequence[str] = ()) -> str:
    """Return the shell command that repeats this comparison."""
    ignored = [
        difference.field
        for difference in diff.comparability.differences
        if difference.status is Status.DECLARED
    ]
    names = dict.fromkeys([*_drop_implied(ignored), *varying])
    words = ["tracekit", "diff", diff.base.reference, diff.head.reference]
    words += [word for name in names for word in ("--varying", name)]
    words += ["--by", diff.by] if diff.by != "op" else []
    words += ["--threshold", f"{100 * diff.design.theta:g}%"] if diff.design.theta != THRESHOLD else []
    return shlex.join(words)


def _drop_implied(fields: Sequence[str]) -> list[str]:
    """Drop fields that are implied by another field."""
    implied = {name for field in fields for name in IMPLIED.get(field, ())}
    return [name for name in fields if name not in implied]
