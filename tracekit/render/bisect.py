"""Report of `tracekit bisect`: the culprits, and how they were found."""

from __future__ import annotations

import math
import shlex
from dataclasses import asdict
from statistics import mean
from typing import Any

from tracekit.analysis import Column
from tracekit.experiments.bisect_model import Bisection, Culprit, LogEntry, format_value
from tracekit.render import ci
from tracekit.render import document as doc
from tracekit.render.cells import json_text
from tracekit.runs.text import MISSING
from tracekit.stats.comparison import Comparison, format_ratio

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


def headline(bisection: Bisection) -> str:
    """Return the result in subject line."""
    if not bisection.culprits:
        return f"Cannot tell: {bisection.reason or 'no change was found'}"
    culprit = bisection.culprits[0]
    more = f", and {len(bisection.culprits) - 1} more" if len(bisection.culprits) > 1 else ""
    commits = " or ".join(subject.short for subject in culprit.suspects)
    effect = f"{bisection.metric.name} {format_effect(bisection, culprit)}"
    return f"Found: {effect} at {commits} ({culprit.suspects[-1].title}){more}"


def format_effect(bisection: Bisection, culprit: Culprit) -> str:
    """Format the size of a change."""
    if bisection.exact:
        return f"{culprit.effect:+g} per step"
    return format_ratio(culprit.effect)


def describe_culprit(bisection: Bisection, culprit: Culprit) -> list[str]:
    """Return the lines of a culprit: its commits, the size of the change, and the reference commit."""
    lines = [
        ", ".join(filter(None, (f"{suspect.short} {suspect.title}", suspect.author, suspect.date)))
        for suspect in culprit.suspects
    ]
    if len(culprit.suspects) > 1:
        lines.append("one of these commits: all but the last could not be measured")
    interval = ""
    if not bisection.exact:
        interval = f", 95% interval {format_ratio(culprit.low)} to {format_ratio(culprit.high)}"
        interval += ", probability " + (
            f"{culprit.posterior:.1%}" if culprit.posterior < 0.9995 else "over 99.9%"
        )
    effect = f"{bisection.metric.name} {format_effect(bisection, culprit)}"
    lines.append(f"{effect} against {culprit.before.short}{interval}")
    return [*lines, *_describe_other_metric(bisection, culprit)]


def _describe_other_metric(bisection: Bisection, culprit: Culprit) -> list[str]:
    """Return how the asked metric changed where the searched count did."""
    if bisection.asked is None or culprit.asked is None:
        return []
    asked = culprit.asked
    interval = " to ".join(format_ratio(bound) for bound in (asked.low, asked.high))
    doubt = ", not conclusive" if asked.low <= 1 <= asked.high else ""
    text = f"{bisection.asked.name} {format_ratio(asked.ratio)} against {culprit.before.short}"
    return [f"{text}, 95% interval {interval}{doubt} ({asked.runs} alternating runs of each)"]


def describe_ends(bisection: Bisection) -> list[str]:
    """Describe the difference between the good and the bad end, a line per metric."""
    span = f"{bisection.good.short} to {bisection.bad.short}, {bisection.subjects} steps: "
    lines = [f"{span}{_difference(bisection.ends, exact=bisection.exact)}"]
    return [*lines, f"{span}{_difference(bisection.asked, exact=False)}"] if bisection.asked else lines


def _difference(comparison: Comparison, *, exact: bool) -> str:
    a, b = (format_value(value, comparison.unit) for value in (comparison.a, comparison.b))
    text = f"{comparison.name} {a} to {b}"
    if exact or comparison.ratio is None:
        return text
    described = f"{text}, {format_ratio(comparison.ratio)}"
    if comparison.ci95:
        low, high = (format_ratio(bound) for bound in comparison.ci95)
        described += f" (95% interval {low} to {high})"
    if comparison.mde is not None and math.isfinite(comparison.mde):
        described += f", smallest detectable change {100 * comparison.mde:.1f}%"
    return described


def _row(bisection: Bisection, measured: LogEntry) -> dict[str, Any]:
    value = mean(measured.values) if measured.values else None
    good = bisection.ends.a
    relative = value / good if value is not None and good > 0 else 0
    cached = f" ({measured.cached} earlier)" if measured.cached else ""
    return {
        "at": measured.position,
        "commit": measured.subject.short,
        "date": measured.subject.date[:10] or None,
        "subject": measured.subject.title,
        "value": MISSING if value is None else format_value(value, bisection.metric.unit),
        "change": format_ratio(relative) if relative > 0 else MISSING,
        "runs": f"{len(measured.values)}{cached}",
        "problem": measured.problem or None,
    }


def notes(bisection: Bisection) -> list[str]:
    """Return further notes."""
    measured, cached = bisection.runs
    texts = [f"{measured} measurements, {cached} from earlier calls", *bisection.notes]
    if bisection.asked:
        name, asked = bisection.metric.name, bisection.asked.name
        texts.append(
            f"{name} per step differs between the ends and repeats exactly, so it was searched "
            f"(--signature {name}); --metric {asked} searches {asked} itself"
        )
    texts += [
        f"{count.name} per step changed from {count.good:g} to {count.bad:g}; --signature {count.name} finds "
        "the commit in one run per commit"
        for count in bisection.changed
    ]
    return texts


_MAX_CELL = 120
_MAX_LINE = 400


def render(bisection: Bisection, output_format: str) -> str:
    """Render in one of the formats of verdicts."""
    match output_format:
        case "json":
            return _json(bisection)
        case "html" | "junit" | "github":
            return _for_ci(bisection).write(output_format)
    return doc.write(output_format, _blocks(bisection))


def _for_ci(bisection: Bisection) -> ci.Report:
    """Return the report with a case per measured commit, and an annotation per culprit, or one of none."""
    title, reproduce = headline(bisection), shlex.join(bisection.command)
    culprits = [(culprit, describe_culprit(bisection, culprit)) for culprit in bisection.culprits]
    by_subject = {culprit.suspects[-1]: culprit for culprit in bisection.culprits}
    cases = [_case(bisection, entry, by_subject.get(entry.subject)) for entry in bisection.log]
    errors = [
        ci.annotate(
            "error",
            f"{bisection.metric.name} at {culprit.suspects[-1].short}",
            ". ".join([*lines, f"Reproduce: {reproduce}"]),
        )
        for culprit, lines in culprits
    ]
    return ci.Report(
        command="tracekit bisect",
        headline=title,
        sides=describe_ends(bisection),
        metrics=_log_table(bisection),
        reasons=[line for _, lines in culprits for line in lines],
        notes=notes(bisection),
        further=[("Compare", [line for culprit in bisection.culprits for line in culprit.commands])],
        reproduce=reproduce,
        cases=cases if culprits else [*cases, ci.Case(bisection.metric.name, "search", "error", title)],
        annotations=errors or [ci.annotate("warning", "tracekit", f"{title}. Reproduce: {reproduce}")],
    )


def _case(bisection: Bisection, entry: LogEntry, culprit: Culprit | None) -> ci.Case:
    group, name = bisection.metric.name, f"{entry.subject.short} {entry.subject.title}"
    if culprit is not None:
        effect = format_effect(bisection, culprit)
        return ci.Case(group, name, "failure", effect, "; ".join(describe_culprit(bisection, culprit)))
    return ci.Case(group, name, "skipped", entry.problem) if entry.problem else ci.Case(group, name)


def _log_table(bisection: Bisection) -> doc.Table:
    return doc.Table("log", "", COLUMNS, [_row(bisection, measured) for measured in bisection.log])


def _blocks(bisection: Bisection) -> list[doc.Block]:
    # steps that may be changes are shown only without a culprit, which they would obscure
    uncertain = () if bisection.culprits else bisection.undecided
    reproduce = doc.Commands("Reproduce", [shlex.join(bisection.command)])
    return [
        doc.Heading(headline(bisection), lines=describe_ends(bisection)),
        *(_culprit_items(bisection, culprit) for culprit in bisection.culprits),
        *(_culprit_items(bisection, culprit, "Uncertain") for culprit in uncertain),
        doc.TableBlock(_log_table(bisection), max_chars=_MAX_CELL),
        doc.Items(notes(bisection)),
        doc.Raw(markdown=doc.write_markdown(reproduce)),
    ]


def _culprit_items(bisection: Bisection, culprit: Culprit, doubt: str = "") -> doc.Items:
    compare = [doc.Command("compare", line) for line in culprit.commands]
    lines: list[str | doc.Command] = [*describe_culprit(bisection, culprit), *compare]
    prefix = "uncertain: " if culprit in bisection.undecided else ""
    return doc.Items(lines, title=doubt and f"{doubt}:", prefix=prefix, max_chars=_MAX_LINE)


def _json(bisection: Bisection) -> str:
    measured, cached = bisection.runs
    return json_text(
        "bisect",
        found=bool(bisection.culprits),
        exit_code=int(bisection.exit_code),
        reason=bisection.reason,
        metric={"name": bisection.metric.name, "unit": bisection.metric.unit, "exact": bisection.exact},
        good=asdict(bisection.good),
        bad=asdict(bisection.bad),
        steps=bisection.subjects,
        ends=bisection.ends.entry(),
        culprits=[*map(_culprit_json, bisection.culprits)],
        undecided=[*map(_culprit_json, bisection.undecided)],
        broken=[_measured_json(measured) for measured in bisection.log if measured.problem],
        log=[*map(_measured_json, bisection.log)],
        measured=measured,
        cached=cached,
        asked=bisection.asked.entry() if bisection.asked else None,
        changed_counts=[*map(asdict, bisection.changed)],
        notes=list(bisection.notes),
        reproduce=list(bisection.command),
    )


def _culprit_json(culprit: Culprit) -> dict[str, Any]:
    return {
        "at": asdict(culprit.suspects[-1]),
        "suspects": [asdict(suspect) for suspect in culprit.suspects],
        "before": asdict(culprit.before),
        "effect": culprit.effect,
        "ci95": [culprit.low, culprit.high],
        "posterior": culprit.posterior,
        "asked": asdict(culprit.asked) if culprit.asked else None,
        "commands": list(culprit.commands),
    }


def _measured_json(measured: LogEntry) -> dict[str, Any]:
    return {
        "position": measured.position,
        **asdict(measured.subject),
        "values": list(measured.values),
        "cached": measured.cached,
        "problem": measured.problem,
    }
