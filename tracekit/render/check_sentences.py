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
from tracekit.render.document import Table
from tracekit.runs.metrics import STEP_TIME
from tracekit.runs.text import ID, MISSING, human, shorten
from tracekit.stats.comparison import Comparison, Verdict
from tracekit.stats.decide import change

SHORT_SHA = 12
MAX_NAME_CHARS = 80
_MAX_NAMES = 3
COLUMNS = (
    Column("configuration", "", "workload, mode and device"),
    Column("metric", "", "metric of a run"),
    Column("verdict", "", "verdict at the threshold"),
    Column("change", "", "relative change, head over base"),
    Column("interval", ID, "95% interval of the change; for exact metrics, the range over pairs of runs"),
    Column("detectable", "", "smallest change detected with 80% power"),
    Column("base", "", "mean over the runs of the baseline; median for exact metrics"),
    Column("head", "", "mean over the runs of the head; median for exact metrics"),
    Column("runs", "", "number of runs of base and head"),
)
FIELDS = (
    Column("configuration", "", "workload, mode and device"),
    Column("field", "", "name for --varying"),
    Column("base", "prose", "value of the baseline"),
    Column("head", "prose", "value of the head"),
    Column("status", "", "effect on the comparison"),
)


def headline(result: CheckResult) -> str:
    """Return the verdict in one line."""
    commit = next(filter(None, (configuration.head.commit for configuration in result.configurations)), None)
    where = f"{commit[:SHORT_SHA] if commit else 'head'} against {result.against}"
    worse = worsenings(result)
    match result.exit_code:
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
            compared = any(each.outcome is Outcome.COMPARED for each in result.configurations)
            why = "no run has any of the metrics" if compared else "no configuration has a baseline"
            return f"Nothing compared: {why}, {where}"
        case ExitCode.CANNOT_TELL:
            inconclusive = f"{_count_inconclusive(result)} of {_count_metrics(result)} inconclusive"
            return f"Cannot tell: {inconclusive}, {where}"
    improved = sum(metric.verdict is Verdict.IMPROVEMENT for metric in result.comparisons)
    better = f"; {improved} improved" if improved else ""
    return f"Pass: no regression of {100 * result.threshold:g}% in {_count_metrics(result)}{better}, {where}"


def _count_metrics(result: CheckResult) -> str:
    number = sum(len(configuration.verdicts) for configuration in result.configurations)
    return f"{number} metric{'s' * (number != 1)}"


def short_name(configuration: Configuration) -> str:
    """Return the name of a configuration, shortened to fit a line."""
    return shorten(configuration.name, MAX_NAME_CHARS)


def worsenings(result: CheckResult) -> list[str]:
    """Return each regression as configuration, metric and change."""
    return [
        f"{short_name(configuration)} {metric.name} {_change(metric)}"
        for configuration in result.configurations
        for metric in configuration.comparisons
        if metric.verdict is Verdict.REGRESSION
    ]


def _count_inconclusive(result: CheckResult) -> int:
    inconclusive = (Verdict.CANNOT_TELL, Verdict.NONE)
    return sum(
        verdict in inconclusive
        for configuration in result.configurations
        for verdict in configuration.verdicts
    )


def metric_rows(result: CheckResult) -> list[dict[str, Any]]:
    """Return the comparisons, one row per metric of each configuration."""
    return [
        _row(configuration, metric)
        for configuration in result.configurations
        for metric in configuration.comparisons
    ]


def _row(configuration: Configuration, metric: Comparison) -> dict[str, Any]:
    return {
        "configuration": short_name(configuration),
        "metric": metric.name,
        "base": _amount(metric.a, metric.unit),
        "head": _amount(metric.b, metric.unit),
        "change": _change(metric),
        "interval": " to ".join(_relative(bound) for bound in metric.ci95) if metric.ci95 else MISSING,
        "detectable": f"{100 * metric.mde:.1f}%"
        if metric.mde is not None and math.isfinite(metric.mde)
        else MISSING,
        "runs": f"{metric.runs[0]} / {metric.runs[1]}",
        "verdict": str(metric.verdict),
    }


def _amount(value: float, unit: str) -> str:
    return human(round(value), unit)


def _change(metric: Comparison) -> str:
    return MISSING if metric.ratio is None else _relative(metric.ratio)


def _relative(ratio: float) -> str:
    return change(math.log(ratio)) if ratio > 0 else MISSING


def metric_fields(result: CheckResult) -> list[dict[str, Any]]:
    """Return the fields in which the sides differ, one row each."""
    return [
        {
            "configuration": short_name(configuration),
            "field": difference.field,
            "base": MISSING if difference.base is None else str(difference.base),
            "head": MISSING if difference.head is None else str(difference.head),
            "status": str(difference.status),
        }
        for configuration in result.configurations
        for difference in configuration.differences
    ]


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
    if result.exit_code is ExitCode.NOT_COMPARABLE:
        texts.append("ignore an intended difference with --varying FIELD, or record comparable runs")
    return texts


def _join_names(names: list[str]) -> str:
    more = len(names) - _MAX_NAMES
    return ", ".join(names[:_MAX_NAMES]) + (f" and {more} more" if more > 0 else "")


def reasons(result: CheckResult) -> list[str]:
    """Return the reason of each verdict other than pass."""
    return [
        f"{short_name(configuration)}, {metric.name}: {metric.reason}"
        for configuration in result.configurations
        for metric in configuration.comparisons
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
    found = [
        shlex.join(_search(configuration, metric.name, configuration.base))
        for configuration in result.configurations
        for metric in configuration.comparisons
        if metric.verdict is Verdict.REGRESSION
        and configuration.base
        and _is_searchable(configuration.base, configuration.head)
    ]
    return list(dict.fromkeys(found))


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
    return replace(table, title=f"Top causes of {name}, per step", columns=columns, rows=rows)


def _is_not_slower(diff: Diff) -> bool:
    """Tell whether the profiled steps did not get slower, so that they explain nothing."""
    return diff.wall is None or diff.wall.total.delta <= 0


def summarize(diff: Diff) -> str:
    """Describe the change of the profiled step and of its parts."""
    rows = {row["part"]: row for row in diff_tables.wall(diff).rows}
    total = diff.wall and rows.get(diff.wall.total.name)
    if not diff.wall or not total:
        return "the profiles have no steps"
    times = f"{human(total['base_ns'], 'ns')} → {human(total['head_ns'], 'ns')}"
    if _is_not_slower(diff):
        return f"profiled step {times}: the slowdown does not show in the profiles; no causes listed"
    parts = [rows[line.name] for line in diff.wall.lines if line.name in rows]
    parts = sorted((row for row in parts if row["delta_ns"]), key=lambda row: -abs(row["delta_ns"]))
    made = ", ".join(
        f"{row['part']} {diff_tables.format_signed(row['delta_ns'])}" for row in parts[:_MAX_PARTS]
    )
    return f"profiled step {times}; largest changes: {made}"
