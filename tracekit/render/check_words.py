"""The words of a gate's result, common to all its formats."""

from __future__ import annotations

import math
import shlex
from typing import TYPE_CHECKING, Any

from tracekit.analysis import Column
from tracekit.checking.model import Outcome
from tracekit.errors import ExitCode
from tracekit.render.cells import MISSING, human
from tracekit.stats.comparison import Verdict
from tracekit.stats.reasons import change

if TYPE_CHECKING:
    from tracekit.checking.model import Configuration, Gate, Side
    from tracekit.stats.comparison import Comparison

SHORT = 12
COLUMNS = (
    Column("configuration", "", "what was measured"),
    Column("metric", "", "of one run"),
    Column("base", "", "mean over the runs of the baseline; the median of exact metrics"),
    Column("head", "", "the same of the head"),
    Column("change", "", "head against base"),
    Column("interval", "", "95 % interval of the change; the range over pairs of runs of exact metrics"),
    Column("detectable", "", "smallest change that would be found in 80 of 100 cases"),
    Column("runs", "", "runs of base and head"),
    Column("verdict", "", "at the threshold"),
)
FIELDS = (
    Column("configuration", "", "what was measured"),
    Column("field", "", "as --varying takes it"),
    Column("base", "prose", "value of the baseline"),
    Column("head", "prose", "value of the head"),
    Column("status", "", "what it means"),
)


def headline(gate: Gate) -> str:
    """The verdict in one line."""
    commit = next((one.head.commit for one in gate.configurations if one.head.commit), None)
    where = f"{commit[:SHORT] if commit else 'head'} against {gate.against}"
    worse = worsenings(gate)
    match gate.exit_code:
        case ExitCode.REGRESSION:
            more = f" and {len(worse) - 1} more" if len(worse) > 1 else ""
            return f"Regression: {worse[0]}{more}, {where}"
        case ExitCode.NOT_COMPARABLE:
            return f"Not comparable: {', '.join(_refused(gate))}, {where}"
        case ExitCode.NOTHING_MEASURED:
            return f"Nothing compared: no configuration has a baseline, {where}"
        case ExitCode.CANNOT_TELL:
            return f"Cannot tell: {_doubts(gate)} of {_metrics(gate)} metrics are open, {where}"
    return f"Pass: no worsening by {100 * gate.threshold:g} % in {_metrics(gate)} metrics, {where}"


def worsenings(gate: Gate) -> list[str]:
    """Each regression as configuration, metric and change."""
    return [
        f"{each.name} {one.name} {_change(one)}"
        for each in gate.configurations
        for one in each.comparisons
        if one.verdict is Verdict.REGRESSION
    ]


def _refused(gate: Gate) -> list[str]:
    return [one.name for one in gate.configurations if one.outcome is Outcome.NOT_COMPARABLE]


def _metrics(gate: Gate) -> int:
    return sum(len(one.verdicts) for one in gate.configurations)


def _doubts(gate: Gate) -> int:
    open_ones = (Verdict.CANNOT_TELL, Verdict.NONE)
    return sum(verdict in open_ones for one in gate.configurations for verdict in one.verdicts)


def rows(gate: Gate) -> list[dict[str, Any]]:
    """The table of comparisons, one row for each metric of each configuration."""
    return [_row(each, one) for each in gate.configurations for one in each.comparisons]


def _row(each: Configuration, one: Comparison) -> dict[str, Any]:
    return {
        "configuration": each.name,
        "metric": one.name,
        "base": _amount(one.a, one.unit),
        "head": _amount(one.b, one.unit),
        "change": _change(one),
        "interval": " to ".join(_relative(bound) for bound in one.ci95) if one.ci95 else MISSING,
        "detectable": f"{100 * one.mde:.1f} %" if one.mde is not None and math.isfinite(one.mde) else MISSING,
        "runs": f"{one.runs[0]} / {one.runs[1]}",
        "verdict": str(one.verdict),
    }


def _amount(value: float, unit: str) -> str:
    return human(round(value), unit)


def _change(one: Comparison) -> str:
    return MISSING if one.ratio is None else _relative(one.ratio)


def _relative(ratio: float) -> str:
    return change(math.log(ratio)) if ratio > 0 else MISSING


def fields(gate: Gate) -> list[dict[str, Any]]:
    """The fields in which the sides differ, one row each."""
    return [
        {
            "configuration": each.name,
            "field": one.field,
            "base": MISSING if one.base is None else str(one.base),
            "head": MISSING if one.head is None else str(one.head),
            "status": str(one.status),
        }
        for each in gate.configurations
        for one in each.differences
    ]


def sides(each: Configuration) -> str:
    """Which runs were compared."""
    if each.base is None:
        return f"{each.name}: {_side(each.head)}; new, no run to compare with"
    return f"{each.name}: {_side(each.head)} against {_side(each.base)}"


def _side(side: Side) -> str:
    dirty = " with uncommitted changes" if side.dirty else ""
    commit = f"{side.commit[:SHORT]}{dirty}" if side.commit else "no known commit"
    far = {None: "", 0: ", the merge-base"}.get(
        side.distance, f", {side.distance} commits before the merge-base"
    )
    return f"{len(side.runs)} run{'s' * (len(side.runs) != 1)} of {commit}{far}"


def notes(gate: Gate) -> list[str]:
    """What else to know, one sentence each."""
    told = [f"{each.name}: {note}" for each in gate.configurations for note in each.notes]
    told += [f"{name}: only the baseline measured it" for name in gate.missing]
    if gate.exit_code is ExitCode.NOT_COMPARABLE:
        told.append(
            "declare a field that differs on purpose with --varying FIELD, or record runs that are alike"
        )
    return told


def reasons(gate: Gate) -> list[str]:
    """Why each metric that does not pass has its verdict."""
    return [
        f"{each.name}, {one.name}: {one.reason}"
        for each in gate.configurations
        for one in each.comparisons
        if one.verdict is not Verdict.PASS
    ]


def command(gate: Gate) -> str:
    """The command that checks the same again."""
    return shlex.join(gate.command)


def explain(gate: Gate) -> list[str]:
    """The commands that show what a regression is made of, and which commit made it."""
    worse = [one for one in gate.configurations if Verdict.REGRESSION in one.verdicts]
    return [line for one in worse if one.base for line in _explain(one.base, one.head)]


def _explain(base: Side, head: Side) -> list[str]:
    lines = [shlex.join(["tracekit", "diff", base.runs[-1], head.runs[-1]])]
    apart = base.commit != head.commit and not head.dirty
    if base.commit and head.commit and apart and head.command[:2] == ("tracekit", "collect"):
        search = f"{base.commit[:SHORT]}..{head.commit[:SHORT]}"
        lines.append(shlex.join(["tracekit", "bisect", search, "--", *head.command]))
    return lines
