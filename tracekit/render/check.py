"""Output formats of `tracekit check`, and their shared texts."""

from __future__ import annotations

import math
import shlex
from dataclasses import asdict, replace
from typing import Any

from tracekit.analysis import Column
from tracekit.diff.model import Diff
from tracekit.errors import ExitCode, clean
from tracekit.experiments.check_model import CheckResult, Configuration, Outcome, Side
from tracekit.render import diff_tables
from tracekit.render.cells import envelope
from tracekit.render.diff_tables import Table
from tracekit.render.layout import table_text
from tracekit.runs.metrics import STEP_TIME
from tracekit.runs.text import ID, MISSING, human, shorten
from tracekit.stats.comparison import Comparison, Verdict
from tracekit.stats.decide import change

SHORT = 12
NAME = 80
_NAMED = 3
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


def headline(gate: CheckResult) -> str:
    """Return the verdict in one line."""
    commit = next((one.head.commit for one in gate.configurations if one.head.commit), None)
    where = f"{commit[:SHORT] if commit else 'head'} against {gate.against}"
    worse = worsenings(gate)
    match gate.exit_code:
        case ExitCode.REGRESSION:
            more = f" and {len(worse) - 1} more" if len(worse) > 1 else ""
            return f"Regression: {worse[0]}{more}, {where}"
        case ExitCode.NOT_COMPARABLE:
            refused = [name(one) for one in gate.configurations if one.outcome is Outcome.NOT_COMPARABLE]
            return f"Not comparable: {', '.join(refused)}, {where}"
        case ExitCode.NOTHING_MEASURED:
            return f"Nothing compared: {_why_nothing(gate)}, {where}"
        case ExitCode.CANNOT_TELL:
            return f"Cannot tell: {_doubts(gate)} of {_counted(gate)} inconclusive, {where}"
    found = [one for one in gate.comparisons if one.verdict is Verdict.IMPROVEMENT]
    better = f"; {len(found)} improved" if found else ""
    return f"Pass: no regression of {100 * gate.threshold:g}% in {_counted(gate)}{better}, {where}"


def _why_nothing(gate: CheckResult) -> str:
    if any(one.outcome is Outcome.COMPARED for one in gate.configurations):
        return "no run has any of the metrics"
    return "no configuration has a baseline"


def _counted(gate: CheckResult) -> str:
    number = sum(len(one.verdicts) for one in gate.configurations)
    return f"{number} metric{'s' * (number != 1)}"


def name(of: Configuration) -> str:
    """Return the name of a configuration, shortened to fit a line."""
    return shorten(of.name, NAME)


def worsenings(gate: CheckResult) -> list[str]:
    """Return each regression as configuration, metric and change."""
    return [
        f"{name(each)} {one.name} {_change(one)}"
        for each in gate.configurations
        for one in each.comparisons
        if one.verdict is Verdict.REGRESSION
    ]


def _doubts(gate: CheckResult) -> int:
    open_ones = (Verdict.CANNOT_TELL, Verdict.NONE)
    return sum(verdict in open_ones for one in gate.configurations for verdict in one.verdicts)


def metric_rows(gate: CheckResult) -> list[dict[str, Any]]:
    """Return the comparisons, one row per metric of each configuration."""
    return [_row(each, one) for each in gate.configurations for one in each.comparisons]


def _row(each: Configuration, one: Comparison) -> dict[str, Any]:
    return {
        "configuration": name(each),
        "metric": one.name,
        "base": _amount(one.a, one.unit),
        "head": _amount(one.b, one.unit),
        "change": _change(one),
        "interval": " to ".join(_relative(bound) for bound in one.ci95) if one.ci95 else MISSING,
        "detectable": f"{100 * one.mde:.1f}%" if one.mde is not None and math.isfinite(one.mde) else MISSING,
        "runs": f"{one.runs[0]} / {one.runs[1]}",
        "verdict": str(one.verdict),
    }


def _amount(value: float, unit: str) -> str:
    return human(round(value), unit)


def _change(one: Comparison) -> str:
    return MISSING if one.ratio is None else _relative(one.ratio)


def _relative(ratio: float) -> str:
    return change(math.log(ratio)) if ratio > 0 else MISSING


def metric_fields(gate: CheckResult) -> list[dict[str, Any]]:
    """Return the fields in which the sides differ, one row each."""
    return [
        {
            "configuration": name(each),
            "field": one.field,
            "base": MISSING if one.base is None else str(one.base),
            "head": MISSING if one.head is None else str(one.head),
            "status": str(one.status),
        }
        for each in gate.configurations
        for one in each.differences
    ]


def sides(each: Configuration) -> str:
    """Describe the compared runs."""
    if each.base is None:
        return f"{name(each)}: {_side(each.head)}; no baseline"
    return f"{name(each)}: {_side(each.head)} against {_side(each.base)}"


def _side(side: Side) -> str:
    dirty = " with uncommitted changes" if side.dirty else ""
    commit = f"{side.commit[:SHORT]}{dirty}" if side.commit else "unknown commit"
    runs = f"{len(side.runs)} run{'s' * (len(side.runs) != 1)}{_timed(side)}"
    return f"{runs} of {commit}{_far(side.distance)}"


def _timed(side: Side) -> str:
    """Return how many steps were timed in each run."""
    if side.timed_steps is None:
        return ""
    fewest, most = side.timed_steps
    count = f"{fewest}" if fewest == most else f"{fewest} to {most}"
    return f" ({count} timed step{'s' * (most != 1)} each)"


def _far(distance: int | None) -> str:
    if not distance:
        return "" if distance is None else ", the merge-base"
    return f", {distance} commit{'s' * (distance != 1)} before the merge-base"


def notes(gate: CheckResult) -> list[str]:
    """Return further notes, one sentence each."""
    by_note: dict[str, list[str]] = {}
    for each in gate.configurations:
        for note in each.notes:
            by_note.setdefault(note, []).append(name(each))
    texts = [*gate.notes, *(f"{_named(names)}: {note}" for note, names in by_note.items())]
    texts += [f"{shorten(one, NAME)}: measured in the baseline only" for one in gate.missing]
    if gate.unmeasured:
        texts.append(
            f"{_named([shorten(one, NAME) for one in gate.unmeasured])}: not measured on either side"
        )
    if gate.exit_code is ExitCode.NOT_COMPARABLE:
        texts.append("ignore an intended difference with --varying FIELD, or record comparable runs")
    return texts


def _named(names: list[str]) -> str:
    more = len(names) - _NAMED
    return ", ".join(names[:_NAMED]) + (f" and {more} more" if more > 0 else "")


def reasons(gate: CheckResult) -> list[str]:
    """Return the reason of each verdict other than pass."""
    return [
        f"{name(each)}, {one.name}: {one.reason}"
        for each in gate.configurations
        for one in each.comparisons
        if one.verdict is not Verdict.PASS
    ]


def command(gate: CheckResult) -> str:
    """Return the command that repeats the check."""
    return shlex.join(gate.command)


def differences(gate: CheckResult) -> list[str]:
    """Return the commands that break down each regression."""
    varying = [word for field in gate.varying for word in ("--varying", field)]
    return [
        shlex.join(["tracekit", "diff", each.base.runs[-1], each.head.runs[-1], *varying])
        for each in gate.configurations
        if each.base and Verdict.REGRESSION in each.verdicts
    ]


def searches(gate: CheckResult) -> list[str]:
    """Return the commands that find the commit of each regression."""
    found = [
        shlex.join(_search(each, one.name, each.base))
        for each in gate.configurations
        for one in each.comparisons
        if one.verdict is Verdict.REGRESSION and each.base and _searchable(each.base, each.head)
    ]
    return list(dict.fromkeys(found))


def _searchable(base: Side, head: Side) -> bool:
    """Tell whether commits lie between the sides, and a command measures one of them."""
    clean_line = base.distance is not None and not base.dirty and not head.dirty
    return clean_line and base.commit != head.commit and head.command[:2] == ("tracekit", "collect")


def _search(each: Configuration, metric: str, base: Side) -> list[str]:
    commits = f"{str(base.commit)[:SHORT]}..{str(each.head.commit)[:SHORT]}"
    which = [] if metric == STEP_TIME else ["--metric", metric]
    return ["tracekit", "bisect", commits, *which, "--", *each.head.command]


TOP = 5
_PARTS = 3
_KEPT = ("op", "delta_ns", "made_of", "n_base", "n_head", "what", "module")


def causes(gate: CheckResult) -> list[tuple[str, Table]]:
    """Return a sentence and the five largest causes of each configuration whose profiles were compared."""
    found = [(name(each), each.explained) for each in gate.configurations if each.explained]
    return [(f"{of}: {summary(diff)}", _largest(of, diff)) for of, diff in found]


def _largest(of: str, diff: Diff) -> Table:
    table = diff_tables.causes(diff)
    columns = tuple(column for column in table.columns if column.name in _KEPT)
    rows = [] if _contrary(diff) else table.rows[:TOP]
    return replace(table, title=f"Top causes of {of}, per step", columns=columns, rows=rows)


def _contrary(diff: Diff) -> bool:
    """Tell whether the profiled steps did not get slower, so that they explain nothing."""
    return diff.wall is None or diff.wall.total.delta <= 0


def summary(diff: Diff) -> str:
    """Describe the change of the profiled step and of its parts."""
    rows = {row["part"]: row for row in diff_tables.wall(diff).rows}
    total = diff.wall and rows.get(diff.wall.total.name)
    if not diff.wall or not total:
        return "the profiles have no steps"
    times = f"{human(total['base_ns'], 'ns')} → {human(total['head_ns'], 'ns')}"
    if _contrary(diff):
        return f"profiled step {times}: the slowdown does not show in the profiles; no causes listed"
    parts = [rows[line.name] for line in diff.wall.lines if line.name in rows]
    parts = sorted((row for row in parts if row["delta_ns"]), key=lambda row: -abs(row["delta_ns"]))
    made = ", ".join(f"{row['part']} {_signed(row['delta_ns'])}" for row in parts[:_PARTS])
    return f"profiled step {times}; largest changes: {made}"


def _signed(value: int) -> str:
    return f"{'+' if value > 0 else ''}{human(value, 'ns')}"


_ALL_COLUMNS = "--format json shows all"


def as_text(gate: CheckResult) -> str:
    """Render verdict, metrics, differences and next commands."""
    parts = [clean(headline(gate)) + "\n"]
    parts.append("".join(f"  {clean(sides(each))}\n" for each in gate.configurations))
    if rows := metric_rows(gate):
        parts.append(table_text(rows, COLUMNS, limit=0, all_columns=_ALL_COLUMNS))
    parts.append(_lines("Reasons:", reasons(gate)))
    for text, table in causes(gate):
        parts.append(f"{clean(text)}\n")
        if table.rows:
            parts.append(table_text(table.rows, table.columns, title=table.title, all_columns=_ALL_COLUMNS))
    if fields := metric_fields(gate):
        parts.append(
            table_text(fields, FIELDS, title="Differences of the runs:", limit=0, all_columns=_ALL_COLUMNS)
        )
    parts.append(_lines("Notes:", notes(gate)))
    parts.append(_lines("Break down the difference:", differences(gate)))
    parts.append(_lines("Find the commit:", searches(gate)))
    parts.append(_lines("Reproduce:", [command(gate)]))
    return "\n".join(part for part in parts if part)


def _lines(title: str, lines: list[str]) -> str:
    return f"{title}\n" + "".join(f"  {clean(line)}\n" for line in lines) if lines else ""


def as_json(gate: CheckResult) -> str:
    """One object: verdict, exit code, and every configuration with its metrics and differences."""
    content = envelope(
        "check",
        verdict=str(gate.verdict),
        exit_code=int(gate.exit_code),
        against=gate.against,
        merge_base=gate.merge_base,
        threshold=gate.threshold,
        configurations=[_configuration(one) for one in gate.configurations],
        missing=list(gate.missing),
        unmeasured=list(gate.unmeasured),
        notes=list(gate.notes),
        explain=[*differences(gate), *searches(gate)],
        reproduce=list(gate.command),
    )
    return content + "\n"


def _configuration(one: Configuration) -> dict[str, Any]:
    return {
        "name": one.name,
        "workload": one.workload,
        "mode": one.mode,
        "device": one.device,
        "outcome": str(one.outcome),
        "base": asdict(one.base) if one.base else None,
        "head": asdict(one.head),
        "differences": [{**asdict(each), "status": str(each.status)} for each in one.differences],
        "metrics": [each.entry() for each in one.comparisons],
        "one_sided": list(one.one_sided),
        "notes": list(one.notes),
        # all lines of the work ledger, per step; null if the profiles were not compared
        "causes": diff_tables.causes(one.explained).rows if one.explained else None,
    }
