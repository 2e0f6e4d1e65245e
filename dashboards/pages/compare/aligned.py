"""Both runs of a comparison on one time axis: the aligned steps, and the match of an interval.

The scripts of the timeline draw it, with the data of its routes.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import pyarrow.compute as pc
from flask import Response

from tracekit.analysis.kernel_names import brief
from tracekit.diff import alignment
from tracekit.diff.alignment import Match
from tracekit.errors import TracekitError, UnusableInputError, clean
from tracekit.runs.run import Run
from tracekit.schema import C

from ...components.text import format_change, human
from ...site import WORDS, Context, Results, Site, parse_row
from ...timeline.routes import json_response
from ...timeline.table_rows import read_row
from ..timeline import connect_script
from .selection import compare_quickly, read_comparison

PAGE = "compare"
OPTIONS = ("side", "align", "step", "off")
"""Options of the address besides range and selection, which are fields of every view."""
_DEVICE, _HOST, _STEPS = "device_intervals", "host_intervals", "steps"
_MAX_NAME_CHARS = 90


def source(context: Context) -> dict[str, Any] | None:
    """Return the runs and the state of the view for the scripts; None without two runs."""
    if context.chosen is None or read_comparison(context) is None:
        return None
    view = context.view
    fields = {word: getattr(view, WORDS[word]) for word in ("run", "base", "from", "to", "row")}
    options = {name: view.options.get(name) for name in (*OPTIONS, "varying", "repeats")}
    return fields | {"row": view.row or None} | options


@dataclass(frozen=True)
class _Routes:
    site: Site
    pairs: Results = field(default_factory=lambda: Results(capacity=2))

    def runs(self) -> tuple[Context, tuple[Run, Run] | None]:
        """Return the two runs that explain the comparison in the address; None if it is refused."""
        context = self.site.context_of_request(PAGE)
        comparison = read_comparison(context) if context.chosen else None
        if comparison is None:
            raise UnusableInputError("two runs are required", hint="parameters run and base")
        diff = compare_quickly(context, comparison)
        if diff.comparability.refused:
            return context, None
        base = next(run for run in comparison.base if run.id == diff.base.run)
        return context, (base, next(run for run in comparison.head if run.id == diff.head.run))

    def describe_steps(self) -> Response:
        _, both = self.runs()
        if both is None:
            return json_response({"refused": True})
        runs, device = [run.path.name for run in both], alignment.on_device(*both)
        steps = alignment.steps(*both)
        return json_response({"refused": False, "runs": runs, "device": device, "steps": steps})

    def match(self) -> Response:
        context, both = self.runs()
        row = parse_row(context.view.row)
        if both is None or row is None:
            raise UnusableInputError("a row of compared runs is required", hint="row=device_intervals:7")
        side = 0 if context.view.options.get("side") == "a" else 1
        return json_response(self.find_match(both, side, *row))

    def find_match(self, both: tuple[Run, Run], side: int, table: str, row: int) -> dict[str, Any]:
        """Return the rows of an interval of a side and of its match, the compared step, and both in words."""
        if table == _STEPS:
            return _step(both, side, row)
        pair = None
        if table == _HOST or (table == _DEVICE and alignment.on_device(*both)):
            key = (both[0].path, both[1].path, table)
            pairs = self.pairs.get(key, lambda: alignment.pair(*both, device=table == _DEVICE))
            pair = pairs.match(side, row)
        values = read_row(both[side], table, row)
        if values is None:
            raise UnusableInputError(f"{table} has no row {row}", hint="select an interval of the timeline")
        if pair is None:
            where = "outside the compared steps, or neither an op nor work on a device of both runs"
            return _no_match(side, row, f"{_name(values)} has no match: {where}.")
        pair_values = [
            None if row_id is None else read_row(run, table, row_id)
            for run, row_id in zip(both, pair.row, strict=True)
        ]
        return {"rows": pair.row, "step": pair.step, "text": _describe_match(pair, pair_values)}


def _describe_match(match: Match, values: list[dict[str, Any] | None]) -> str:
    """Describe an interval and its match, of which one may be None, with the difference in length."""
    a, b = values
    calls = f"call {match.at} of {{}} in the step"
    path = f" In {clean(match.path)}." if match.path else ""
    if a is None or b is None:
        present, letter, other = (b, "B", "A") if a is None else (a, "A", "B")
        count, there = match.count[letter == "B"], match.count[letter == "A"]
        length = human((present or {})[C.DUR_NS], "ns")
        return (
            f"{_name(present or {})}: {length} in {letter}, no match in {other}; {calls.format(count)}, "
            f"{other} has {there}.{path}"
        )
    names = _name(b) if a[C.NAME] == b[C.NAME] else f"{_name(a)} → {_name(b)}"
    counts = str(match.count[0])
    counts += "" if match.count[0] == match.count[1] else f" (A, {match.count[1]} in B)"
    return (
        f"{names}: {_describe_difference(a[C.DUR_NS], b[C.DUR_NS])}; {calls.format(counts)}, "
        f"matched by {match.match_level}.{path}"
    )


def _describe_difference(a_ns: int, b_ns: int) -> str:
    """Describe two lengths: `2.00 µs in A, 3.00 µs in B (+1.00 µs, +50.0%)`."""
    sign = "+" if b_ns > a_ns else ""
    ratio = f", {format_change(b_ns / a_ns)}" if a_ns else ""
    change = f"{sign}{human(b_ns - a_ns, 'ns')}{ratio}" if a_ns != b_ns else "equal"
    return f"{human(a_ns, 'ns')} in A, {human(b_ns, 'ns')} in B ({change})"


def _name(values: dict[str, Any]) -> str:
    return brief(clean(str(values.get(C.NAME) or "interval")), _MAX_NAME_CHARS)


def _no_match(side: int, row: int, text: str) -> dict[str, Any]:
    return {"rows": (None, row) if side else (row, None), "step": None, "text": text}


def _step(both: tuple[Run, Run], side: int, row: int) -> dict[str, Any]:
    """Return the step of the other run that a step is compared with."""
    values = read_row(both[side], _STEPS, row)
    if values is None:
        raise UnusableInputError(f"there is no step in row {row}", hint="select a step of the timeline")
    for place, pair in enumerate(alignment.steps(*both)):
        if (pair.rank[side], pair.number[side]) == (values[C.RANK], values[C.STEP]):
            rows = [_row_of(run, pair.rank[k], pair.number[k]) for k, run in enumerate(both)]
            a, b = (end - start for start, end in zip(pair.start_ns, pair.end_ns, strict=True))
            numbers = f"Step {pair.number[0]} of A and {pair.number[1]} of B"
            return {"rows": rows, "step": place, "text": f"{numbers}: {_describe_difference(a, b)}."}
    text = f"{_name(values)} was not compared: a warm-up step, or one without a match."
    return _no_match(side, row, text)


def _row_of(run: Run, rank: int, number: int) -> int | None:
    steps = run.arrow(_STEPS, columns=[C.RANK, C.STEP])
    held = pc.and_(pc.equal(steps[C.RANK], rank), pc.equal(steps[C.STEP], number))
    row_number = pc.index(held, value=True).as_py()
    return None if row_number < 0 else int(row_number)


def connect(site: Site) -> None:
    """Register the routes, and the callbacks that start the scripts and pass the view."""
    routes = _Routes(site)
    server = site.app.server

    def answer(route: str) -> Response:
        try:
            return routes.describe_steps() if route == "aligned" else routes.match()
        except TracekitError as error:
            return json_response({"error": error.message, "hint": error.hint}, status=400)

    server.add_url_rule("/compare/<any(aligned, match):route>", "aligned", answer)

    connect_script(site, PAGE, "aligned", source)
