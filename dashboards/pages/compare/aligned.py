"""Both runs of a comparison on one time axis: the aligned steps, and the match of an interval.

The scripts in `assets/compare` draw it, with the data of the timeline's routes.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import msgspec
import pyarrow.compute as pc
from dash import ClientsideFunction, Input, Output, dcc, html
from dash.development.base_component import Component
from flask import Response, request

from tracekit.analysis.kernel_names import brief
from tracekit.diff import alignment
from tracekit.diff.alignment import Match
from tracekit.errors import TracekitError, UnusableInputError, clean
from tracekit.render import human
from tracekit.runs.run import Run
from tracekit.schema import C

from ...parts.charts import aria
from ...site import Context, Results, Site, View, selected
from ...timeline.table_rows import read_row
from .selection import compared, requested

if TYPE_CHECKING:
    Rows = tuple[int | None, int | None]

PAGE = "compare"
SOURCE = "aligned-source"
OPTIONS = ("side", "align", "step", "off")
"""Options of the address besides range and selection, which are fields of every view."""
_DEVICE, _HOST, _STEPS = "device_intervals", "host_intervals", "steps"
_NAMED = 90
_LETTERS = "AB"


def place() -> list[Component]:
    """Create the section that the scripts fill; it stays hidden until two runs are compared."""
    label = aria(label="Both runs on one time axis")
    return [
        dcc.Store(id=SOURCE),
        dcc.Store(id="aligned-shown"),
        html.Section(id="aligned", className="tka", **label),
    ]


def source(context: Context) -> dict[str, Any] | None:
    """Return the runs and the state of the view for the scripts; None without two runs."""
    if context.chosen is None or requested(context) is None:
        return None
    view = context.view
    asked = {name: view.options.get(name) for name in (*OPTIONS, "varying", "repeats")}
    return {
        "run": view.run,
        "base": view.base,
        "from": view.start_ns,
        "to": view.end_ns,
        "row": view.row or None,
        **asked,
    }


@dataclass(frozen=True)
class _Routes:
    site: Site
    pairs: Results = field(default_factory=lambda: Results(capacity=2))

    def runs(self) -> tuple[Context, tuple[Run, Run] | None]:
        """Return the two runs that explain the comparison in the address; None if it is refused."""
        view = View.parse(f"/{PAGE}", request.query_string.decode("utf-8", "replace"))
        context = self.site.context(view, dark=False)
        one = requested(context) if context.chosen else None
        if one is None:
            raise UnusableInputError("two runs are required", hint="parameters run and base")
        diff = compared(context, one)
        if diff.comparability.refused:
            return context, None
        base = next(run for run in one.base if run.id == diff.base.run)
        return context, (base, next(run for run in one.head if run.id == diff.head.run))

    def aligned(self) -> Response:
        _, both = self.runs()
        if both is None:
            return _json({"refused": True})
        return _json(
            {
                "refused": False,
                "runs": [run.path.name for run in both],
                "device": alignment.on_device(*both),
                "steps": alignment.steps(*both),
            }
        )

    def match(self) -> Response:
        context, both = self.runs()
        row = selected(context.view.row)
        if both is None or row is None:
            raise UnusableInputError("a row of compared runs is required", hint="row=device_intervals:7")
        side = 0 if context.view.options.get("side") == "a" else 1
        return _json(self.matched(both, side, *row))

    def matched(self, both: tuple[Run, Run], side: int, table: str, row: int) -> dict[str, Any]:
        """Return the rows of an interval and of its match, the compared step, and both in words."""
        if table == _STEPS:
            return _step(both, side, row)
        found = None
        if table == _HOST or (table == _DEVICE and alignment.on_device(*both)):
            key = (both[0].path, both[1].path, table)
            pairs = self.pairs.get(key, lambda: alignment.pair(*both, device=table == _DEVICE))
            found = pairs.match(side, row)
        own = read_row(both[side], table, row)
        if own is None:
            raise UnusableInputError(f"{table} has no row {row}", hint="select an interval of the timeline")
        if found is None:
            where = "outside the compared steps, or neither an op nor work on a device of both runs"
            return {"rows": _alone(side, row), "step": None, "text": f"{_name(own)} has no match: {where}."}
        values = [
            None if at is None else read_row(run, table, at) for run, at in zip(both, found.row, strict=True)
        ]
        return {"rows": found.row, "step": found.step, "text": described(found, values)}


def described(found: Match, values: list[dict[str, Any] | None]) -> str:
    """Describe an interval and its match, with the difference in their length.

    Args:
        found: The match.
        values: Name and duration of the interval of the base and of the head; None where there is none.
    """
    a, b = values
    calls = f"call {found.at} of {{}} in the step"
    if a is None or b is None:
        own, letter, other = (b, "B", "A") if a is None else (a, "A", "B")
        count, there = found.count[letter == "B"], found.count[letter == "A"]
        length = human((own or {})[C.DUR_NS], "ns")
        return (
            f"{_name(own or {})}: {length} in {letter}, no match in {other}; {calls.format(count)}, "
            f"{other} has {there}.{_path(found)}"
        )
    names = _name(b) if a[C.NAME] == b[C.NAME] else f"{_name(a)} → {_name(b)}"
    counts = (
        str(found.count[0])
        if found.count[0] == found.count[1]
        else f"{found.count[0]} (A, {found.count[1]} in B)"
    )
    return (
        f"{names}: {difference(a[C.DUR_NS], b[C.DUR_NS])}; {calls.format(counts)}, "
        f"matched by {found.match_level}.{_path(found)}"
    )


def difference(a_ns: int, b_ns: int) -> str:
    """Describe two lengths and how the second differs.

    Example:
        >>> difference(2_000, 3_000), difference(5, 5)
        ('2.00 µs in A, 3.00 µs in B (+1.00 µs, +50.0%)', '5 ns in A, 5 ns in B (equal)')
    """
    sign = "+" if b_ns > a_ns else ""
    ratio = f", {100 * (b_ns / a_ns - 1):+.1f}%" if a_ns else ""
    change = f"{sign}{human(b_ns - a_ns, 'ns')}{ratio}" if a_ns != b_ns else "equal"
    return f"{human(a_ns, 'ns')} in A, {human(b_ns, 'ns')} in B ({change})"


def _path(found: Match) -> str:
    return f" In {clean(found.path)}." if found.path else ""


def _name(values: dict[str, Any]) -> str:
    return brief(clean(str(values.get(C.NAME) or "interval")), _NAMED)


def _alone(side: int, row: int) -> Rows:
    return (row, None) if side == 0 else (None, row)


def _step(both: tuple[Run, Run], side: int, row: int) -> dict[str, Any]:
    """Return the step of the other run that a step is compared with."""
    own = read_row(both[side], _STEPS, row)
    if own is None:
        raise UnusableInputError(f"there is no step in row {row}", hint="select a step of the timeline")
    place = (own[C.RANK], own[C.STEP])
    compared_steps = alignment.steps(*both)
    for at, one in enumerate(compared_steps):
        if (one.rank[side], one.number[side]) == place:
            rows = [_row_of(run, one.rank[k], one.number[k]) for k, run in enumerate(both)]
            a, b = (end - start for start, end in zip(one.start_ns, one.end_ns, strict=True))
            numbers = f"Step {one.number[0]} of A and {one.number[1]} of B"
            return {"rows": rows, "step": at, "text": f"{numbers}: {difference(a, b)}."}
    text = f"{_name(own)} was not compared: a warm-up step, or one without a match."
    return {"rows": _alone(side, row), "step": None, "text": text}


def _row_of(run: Run, rank: int, number: int) -> int | None:
    steps = run.arrow(_STEPS, columns=[C.RANK, C.STEP])
    held = pc.and_(pc.equal(steps[C.RANK], rank), pc.equal(steps[C.STEP], number))
    at = pc.index(held, value=True).as_py()
    return None if at < 0 else int(at)


def _json(content: Any) -> Response:
    headers = {"Cache-Control": "no-store"}
    return Response(msgspec.json.encode(content), mimetype="application/json", headers=headers)


def _refused(error: TracekitError) -> Response:
    data = msgspec.json.encode({"error": error.message, "hint": error.hint})
    return Response(data, status=400, mimetype="application/json")


def connect(site: Site) -> None:
    """Register the routes, and the callbacks that start the scripts and pass the view."""
    routes = _Routes(site)
    server = site.app.server

    def answer(route: str) -> Response:
        try:
            return routes.aligned() if route == "aligned" else routes.match()
        except TracekitError as error:
            return _refused(error)

    server.add_url_rule("/compare/<any(aligned, match):route>", "aligned", answer)

    @site.app.callback(Output(SOURCE, "data"), Input("view", "data"))
    def send(view: dict[str, str] | None) -> dict[str, Any] | None:
        current = View.parse(view["path"], view["search"]) if view else View()
        return source(site.context(current, dark=False)) if current.page == PAGE else None

    site.app.clientside_callback(
        ClientsideFunction("tracekit_aligned", "show"),
        Output("aligned-shown", "data"),
        Input(SOURCE, "data"),
    )
