"""Sentences of a comparison, shared by its output formats."""

from __future__ import annotations

import shlex
from collections.abc import Sequence

from tracekit.diff.breakdowns import Cause
from tracekit.diff.engine import IMPLIED
from tracekit.diff.model import Diff, Metric, Side, Status, Verdict
from tracekit.render.diff_tables import per_step, signed
from tracekit.runs.text import human, shorten
from tracekit.stats.comparison import THRESHOLD

_SHORT_SHA = 12
_LONGEST_LABEL = 80
NOTHING_CHANGED = "no differences: all groups have the same count and time on both sides"


def title(side: Side) -> str:
    """Describe a side by its run, label and commit."""
    parts = [side.run]
    if side.label:
        parts.append(shorten(side.label, _LONGEST_LABEL))
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
        names = ", ".join(one.field for one in diff.comparability.refused)
        return f"not comparable: the runs differ in {names}, so nothing was compared"
    if not diff.metrics:
        return f"{diff.verdict}: no metrics"
    decides = next((one for one in diff.metrics if one.verdict is diff.verdict), diff.metrics[0])
    return f"{diff.verdict}: {effect(decides)}{_others([one for one in diff.metrics if one is not decides])}"


def _others(metrics: Sequence[Metric]) -> str:
    """Describe the metrics that do not determine the verdict but changed."""
    silent = (Verdict.PASS, Verdict.NONE)
    texts = [f"{_spoken(one)}: {one.verdict}{_change(one)}" for one in metrics if one.verdict not in silent]
    return f"; also {', '.join(texts)}" if texts else ""


def worsens(diff: Diff) -> bool:
    """Tell whether any metric got worse, even one that does not determine the verdict."""
    return any(one.verdict is Verdict.REGRESSION for one in diff.metrics)


def effect(metric: Metric) -> str:
    """Describe a metric in one sentence."""
    values = f"{human(metric.a, metric.unit)} → {human(metric.b, metric.unit)}"
    reason = f"; {metric.reason}" if metric.reason else ""
    return f"{_spoken(metric)} {values}{_change(metric)}, {metric.basis}{reason}"


def _spoken(metric: Metric) -> str:
    return metric.name.replace("_", " ")


def _change(metric: Metric) -> str:
    return "" if metric.ratio is None else f" ({100 * (metric.ratio - 1):+z.1f}%)"


def comparable(diff: Diff) -> str:
    """Describe the differences of the sides that affect the comparison."""
    by_status: dict[Status, list[str]] = {}
    for one in diff.comparability.differences:
        by_status.setdefault(one.status, []).append(one.field)
    said = {
        Status.NOT_COMPARABLE: "blocks comparison",
        Status.WARN: "different, may explain part of the change",
        Status.UNKNOWN: "recorded on one side only",
        Status.DECLARED: "ignored differences",
    }
    parts = [
        f"{text}: {', '.join(by_status[status])}" for status, text in said.items() if status in by_status
    ]
    return f"comparability: {'; '.join(parts) if parts else 'equal fingerprints'}"


def compared(diff: Diff) -> str:
    """Describe which steps the ledgers cover."""
    if diff.compared is None:
        return ""
    one = diff.compared
    where = "device time" if one.on_device else "self time of CPU ops, as not both sides ran on a device"
    if not one.marked:
        return f"Compared the full captures{f' of {one.ranks} ranks' * (one.ranks > 1)}; work is {where}"
    left = f"; skipped {one.left_out} warm-up step{'s' * (one.left_out != 1)} of both sides" * bool(
        one.left_out
    )
    unused = "; ".join(
        f"{count} earlier step{'s' * (count != 1)} of the {name} unmatched"
        for name, count in zip(("base", "head"), one.unused, strict=True)
        if count
    )
    more = f"; {unused}" if unused else ""
    steps = "step" if one.each == 1 else f"{one.each} steps"
    of = "each side" if one.ranks == 1 else f"each of {one.ranks} ranks"
    return f"Compared the last {steps} of {of}{left}{more}; work is {where}"


def worst(diff: Diff) -> str:
    """Name the largest causes in one sentence; empty if nothing changed."""
    return "; ".join(f"{text}: {_cause(diff, one)}" for text, one in largest(diff))


def largest(diff: Diff) -> list[tuple[str, Cause]]:
    """Return the largest increase and decrease of work, and the largest that noise does not explain.

    Returns:
        What each is, and the line of the work ledger.
    """
    found = []
    for text, sign in (("largest increase", 1), ("largest decrease", -1)):
        one = next((each for each in diff.causes if sign * each.terms.delta > 0), None)
        if one:
            found.append((text, one))
    clear = next((one for one in diff.causes if one.steps and not one.noisy and one.terms.delta), None)
    if clear and all(one.noisy for _, one in found):
        found.append(("largest beyond the spread of the steps", clear))
    return found


def _cause(diff: Diff, one: Cause) -> str:
    noise = " (within the spread of the steps)" if one.noisy else ""
    return f"{one.label} {signed(per_step(diff, one.terms.delta))} per step{noise}"


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


def declaring(diff: Diff) -> str:
    """Return the command that compares anyway."""
    return command(diff, varying=_needed([one.field for one in diff.comparability.refused]))


def command(diff: Diff, *, varying: Sequence[str] = ()) -> str:
    """Return the shell command that repeats this comparison."""
    declared = [one.field for one in diff.comparability.differences if one.status is Status.DECLARED]
    names = dict.fromkeys([*_needed(declared), *varying])
    words = ["tracekit", "diff", diff.base.reference, diff.head.reference]
    words += [word for name in names for word in ("--varying", name)]
    words += ["--by", diff.by] if diff.by != "op" else []
    words += ["--threshold", f"{100 * diff.design.theta:g}%"] if diff.design.theta != THRESHOLD else []
    return shlex.join(words)


def _needed(fields: Sequence[str]) -> list[str]:
    """Drop fields that are implied by another field."""
    implied = {name for field in fields for name in IMPLIED.get(field, ())}
    return [name for name in fields if name not in implied]
