"""Sentences and rows of `tracekit check`, shared by its output formats."""

from __future__ import annotations

import math
import shlex
from dataclasses import replace
from typing import Any

from tracekit.analysis import Column
from tracekit.diff.model import Diff
from tracekit.errors import ExitCode
from tracekit.experiments.check_model import CheckResult, Configuration, Outcome, Side
from tracekit.render import diff_tables
from tracekit.render.diff_sentences import describe_part, find_main_part
from tracekit.render.document import Shown, Table
from tracekit.runs.metrics import STEP_TIME
from tracekit.runs.text import ID, MISSING, human, shorten
from tracekit.stats.comparison import Comparison, Verdict, format_ratio

SHORT_SHA = 12
MAX_NAME_CHARS = 80
_MAX_NAMES = 3


def headline(result: CheckResult) -> str:
    """Return the verdict in one line."""
    commit = next(filter(None, (configuration.head.commit for configuration in result.configurations)), None)
    where = f"{commit[:SHORT_SHA] if commit else 'head'} against {result.against}"
    worse = [
        f"{short_name(configuration)} {metric.name} {_change(metric)}"
        for configuration, metric in result.metrics
        if metric.verdict is Verdict.REGRESSION
    ]
    match result.decision:
        case ExitCode.REGRESSION:
            more = f" and {len(worse) - 1} more" if len(worse) > 1 else ""
            return f"Regression: {worse[0]}{more}, {where}"
        case ExitCode.NOT_COMPARABLE:
            refused = [
                short_name(configuration)
                for configuration in result.configurations
                if configuration.outcome is Outcome.NOT_COMPARABLE
            ]
            return f"Not comparable: {', '.join(refused)}, {where}"
        case ExitCode.NOTHING_MEASURED:
            if result.verdict is Verdict.NO_BASELINE:
                names = _join_names([*map(short_name, result.configurations)])
                chosen = "passes by" if result.allow_missing_baseline else "to pass, use"
                return f"No baseline: {names} has none yet, {where} ({chosen} --allow-missing-baseline)"
            return f"Nothing compared: no run has any of the metrics, {where}"
        case ExitCode.CANNOT_TELL:
            verdicts = [verdict for config in result.configurations for verdict in config.verdicts]
            count = verdicts.count(Verdict.CANNOT_TELL) + verdicts.count(Verdict.NONE)
            chosen = "passes" if result.on_unknown == "pass" else "fails"
            policy = f"{chosen} by --on-unknown {result.on_unknown}"
            return f"Cannot tell: {count} of {_count_metrics(result)} inconclusive, {where} ({policy})"
    improved = sum(metric.verdict is Verdict.IMPROVEMENT for metric in result.comparisons)
    better = f"; {improved} improved" if improved else ""
    return f"Pass: no regression of {100 * result.threshold:g}% in {_count_metrics(result)}{better}, {where}"


def _count_metrics(result: CheckResult) -> str:
    number = sum(len(configuration.verdicts) for configuration in result.configurations)
    return f"{number} metric{'s' * (number != 1)}"


def short_name(configuration: Configuration) -> str:
    """Return the name of a configuration, shortened to fit a line."""
    return shorten(configuration.name, MAX_NAME_CHARS)


_INTERVAL = "95% interval of the change; for exact metrics, the range over pairs of runs"
_MEAN = "mean over the runs of the {}; median for exact metrics"
_COLUMNS: tuple[Shown, ...] = (
    (Column("configuration", "", "workload, mode and device"), lambda pair: short_name(pair[0])),
    (Column("metric", "", "metric of a run"), lambda pair: pair[1].name),
    (Column("verdict", "", "verdict at the threshold"), lambda pair: str(pair[1].verdict)),
    (Column("change", "", "relative change, head over base"), lambda pair: _change(pair[1])),
    (
        Column("interval", ID, _INTERVAL),
        lambda pair: " to ".join(map(_relative, pair[1].ci95)) if pair[1].ci95 else MISSING,
    ),
    (Column("detectable", "", "smallest change detected with 80% power"), lambda pair: _detectable(pair[1])),
    (Column("base", "", _MEAN.format("baseline")), lambda pair: human(round(pair[1].a), pair[1].unit)),
    (Column("head", "", _MEAN.format("head")), lambda pair: human(round(pair[1].b), pair[1].unit)),
    (Column("runs", "", "number of runs of base and head"), lambda pair: "{} / {}".format(*pair[1].runs)),
)


def metric_table(result: CheckResult) -> Table:
    """Return the comparisons, one row per metric of each configuration."""
    return Table.of("metrics", "Metrics", result.metrics, *_COLUMNS)


def _detectable(metric: Comparison) -> str:
    return f"{100 * metric.mde:.1f}%" if metric.mde is not None and math.isfinite(metric.mde) else MISSING


def _change(metric: Comparison) -> str:
    return MISSING if metric.ratio is None else _relative(metric.ratio)


def _relative(ratio: float) -> str:
    return format_ratio(ratio) if ratio > 0 else MISSING


def field_table(result: CheckResult) -> Table:
    """Return the fields in which the sides differ, one row each."""
    pairs = [(owner, difference) for owner in result.configurations for difference in owner.differences]
    return Table.of("fields", "Differences of the runs", pairs, *_FIELDS)


def _text(value: Any) -> str:
    return MISSING if value is None else str(value)


_FIELDS: tuple[Shown, ...] = (
    (Column("configuration", "", "workload, mode and device"), lambda pair: short_name(pair[0])),
    (Column("field", "", "name for --varying"), lambda pair: pair[1].field),
    (Column("base", "prose", "value of the baseline"), lambda pair: _text(pair[1].base)),
    (Column("head", "prose", "value of the head"), lambda pair: _text(pair[1].head)),
    (Column("status", "", "effect on the comparison"), lambda pair: str(pair[1].status)),
)


def sides(configuration: Configuration) -> str:
    """Describe the compared runs."""
    if configuration.base is None:
        return f"{short_name(configuration)}: {_side(configuration.head)}; no baseline"
    return f"{short_name(configuration)}: {_side(configuration.head)} against {_side(configuration.base)}"


def _side(side: Side) -> str:
    dirty = " with uncommitted changes" if side.dirty else ""
    commit = f"{side.commit[:SHORT_SHA]}{dirty}" if side.commit else "unknown commit"
    runs = f"{len(side.runs)} run{'s' * (len(side.runs) != 1)}{_describe_steps(side)}"
    return f"{runs} of {commit}{_describe_distance(side.distance)}"


def _describe_steps(side: Side) -> str:
    """Return how many steps were timed in each run."""
    if side.timed_steps is None:
        return ""
    minimum, maximum = side.timed_steps
    count = f"{minimum}" if minimum == maximum else f"{minimum} to {maximum}"
    return f" ({count} timed step{'s' * (maximum != 1)} each)"


def _describe_distance(distance: int | None) -> str:
    if not distance:
        return "" if distance is None else ", the merge-base"
    return f", {distance} commit{'s' * (distance != 1)} before the merge-base"


def notes(result: CheckResult) -> list[str]:
    """Return further notes, one sentence each."""
    by_note: dict[str, list[str]] = {}
    for configuration in result.configurations:
        for note in configuration.notes:
            by_note.setdefault(note, []).append(short_name(configuration))
    texts = [*result.notes, *(f"{_join_names(names)}: {note}" for note, names in by_note.items())]
    texts += [f"{shorten(name, MAX_NAME_CHARS)}: measured in the baseline only" for name in result.missing]
    if result.unmeasured:
        texts.append(
            f"{_join_names([shorten(name, MAX_NAME_CHARS) for name in result.unmeasured])}: "
            "not measured on either side"
        )
    if result.decision is ExitCode.NOT_COMPARABLE:
        texts.append("ignore an intended difference with --varying FIELD, or record comparable runs")
    return texts


def _join_names(names: list[str]) -> str:
    more = len(names) - _MAX_NAMES
    return ", ".join(names[:_MAX_NAMES]) + (f" and {more} more" if more > 0 else "")


def reasons(result: CheckResult) -> list[str]:
    """Return the reason of each verdict other than pass."""
    return [
        f"{short_name(configuration)}, {metric.name}: {metric.reason}"
        for configuration, metric in result.metrics
        if metric.verdict is not Verdict.PASS
    ]


def command(result: CheckResult) -> str:
    """Return the command that repeats the check."""
    return shlex.join(result.command)


def differences(result: CheckResult) -> list[str]:
    """Return the commands that break down each regression."""
    varying = [word for field in result.varying for word in ("--varying", field)]
    return [
        shlex.join(["tracekit", "diff", configuration.base.runs[-1], configuration.head.runs[-1], *varying])
        for configuration in result.configurations
        if configuration.base and Verdict.REGRESSION in configuration.verdicts
    ]


def searches(result: CheckResult) -> list[str]:
    """Return the commands that find the commit of each regression."""
    commands = [
        shlex.join(_search(configuration, metric.name, configuration.base))
        for configuration, metric in result.metrics
        if metric.verdict is Verdict.REGRESSION
        and configuration.base
        and _is_searchable(configuration.base, configuration.head)
    ]
    return list(dict.fromkeys(commands))


def _is_searchable(base: Side, head: Side) -> bool:
    """Tell whether commits lie between the sides, and a command measures one of them."""
    clean_line = base.distance is not None and not base.dirty and not head.dirty
    return clean_line and base.commit != head.commit and head.command[:2] == ("tracekit", "collect")


def _search(configuration: Configuration, metric: str, base: Side) -> list[str]:
    commits = f"{str(base.commit)[:SHORT_SHA]}..{str(configuration.head.commit)[:SHORT_SHA]}"
    which = [] if metric == STEP_TIME else ["--metric", metric]
    return ["tracekit", "bisect", commits, *which, "--", *configuration.head.command]


MAX_CAUSES = 5
_MAX_PARTS = 3
_CAUSE_COLUMNS = ("op", "delta_ns", "made_of", "n_base", "n_head", "what", "module")


def causes(result: CheckResult) -> list[tuple[str, Table]]:
    """Return a sentence and the five largest causes of each configuration whose profiles were compared."""
    diffs = [
        (short_name(configuration), configuration.explained)
        for configuration in result.configurations
        if configuration.explained
    ]
    return [(f"{name}: {summarize(diff)}", _largest(name, diff)) for name, diff in diffs]


def _largest(name: str, diff: Diff) -> Table:
    table = diff_tables.causes(diff)
    columns = tuple(column for column in table.columns if column.name in _CAUSE_COLUMNS)
    rows = [] if _is_not_slower(diff) else table.rows[:MAX_CAUSES]
    what = "Top causes of" if find_main_part(diff) is None else "Largest changes of work in"
    return replace(table, title=f"{what} {name}, per step", columns=columns, rows=rows)


def _is_not_slower(diff: Diff) -> bool:
    """Tell whether the profiled steps did not get slower, so that they explain nothing."""
    return diff.wall is None or diff.wall.total.delta <= 0


def summarize(diff: Diff) -> str:
    """Describe the change of the profiled step and of its parts."""
    if not diff.wall:
        return "the profiles have no steps"
    total = diff.wall.total
    times = " → ".join(human(diff_tables.per_step(diff, ns), "ns") for ns in (total.a_ns, total.b_ns))
    if _is_not_slower(diff):
        return f"profiled step {times}: the slowdown does not show in the profiles; no causes listed"
    changed = sorted((line for line in diff.wall.lines if line.delta), key=lambda line: -abs(line.delta))
    main = find_main_part(diff)
    made = ", ".join(describe_part(diff, line, explain=line is main) for line in changed[:_MAX_PARTS])
    return f"profiled step {times}; largest changes: {made}"
