"""HTTP routes of the timeline; see the package docstring for the protocol."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import msgspec
from flask import Blueprint, Response, request

from tracekit.errors import RunNotFoundError, TracekitError, UnusableInputError
from tracekit.schema import HOST_DEVICE, TABLES, C
from tracekit.windows import END_NS

from ..results import Results
from . import ask, disk, drawer, export, finding, memory, totals, wire
from .categories import CATEGORIES
from .draw import Window, drawing
from .lanes import ABSENT
from .opened import Opened

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tracekit.run import Run

    from ..site import Site
    from .index import Index
    from .lanes import Lane
    from .memory import Levels
    from .totals import Totals

SCHEMA = "tracekit.timeline/1"
SHOWN = 500
"""Maximum rows of a summary; the CSV has all of them."""
_CACHEABLE = {"Cache-Control": "private, max-age=3600"}
_NO_STORE = {"Cache-Control": "no-store"}
"""Headers of responses that change once the causes of idle time are known."""
_ROW_TABLES = ("device_intervals", "host_intervals", "steps")


@dataclass(frozen=True)
class _Request:
    """The requested run with its index."""

    run: Run
    index: Index


@dataclass(frozen=True)
class _Routes:
    """Request handlers."""

    site: Site
    opened: Opened
    totals: Results = field(default_factory=lambda: Results(capacity=16))

    def requested(self, run_id: str) -> _Request:
        run = self.site.run(run_id)
        if run is None:
            raise RunNotFoundError("the store has no such run", hint="see the Runs page")
        return _Request(run, self.opened.of(run))

    def lanes(self, run: str) -> Response:
        requested = self.requested(run)
        rank, device = (_optional(name) for name in (C.RANK, C.DEVICE))
        levels = self.opened.levels(requested.run)
        return _json(_described(requested, levels, rank, device), requested.index)

    def draw(self, run: str) -> Response:
        requested = self.requested(run)
        index, levels = requested.index, self.opened.levels(requested.run)
        wanted = ask.check_count(ask.numbers(request.args, len(index.lanes) + len(levels)))
        start, end = ask.window(request.args, index)
        width = ask.clamped(request.args, "width", default=1_000, low=1, high=ask.MAX_WIDTH)
        window = Window(start=start, end=end, width=width)
        settled = index.causes.final.is_set()  # read before drawing, so that cached responses are final
        found = drawing(index, levels, wanted, window)
        data = wire.pack(window, found, index.names.texts, causes=settled)
        headers = _CACHEABLE if settled else _NO_STORE
        return Response(data, mimetype="application/octet-stream", headers=headers)

    def row(self, run: str, table: str, number: str) -> Response:
        requested = self.requested(run)
        if table not in _ROW_TABLES or table not in TABLES:
            raise RunNotFoundError("no such table", hint=f"one of {', '.join(_ROW_TABLES)}")
        known = ask.number({"row": number}, "row", 0)
        return _json(drawer.open_row(requested.run, requested.index, table, known), requested.index)

    def search(self, run: str) -> Response:
        requested = self.requested(run)
        limit = ask.clamped(request.args, "limit", default=50, low=1, high=SHOWN)
        start, end = ask.window(request.args, requested.index)
        found = self._totals(requested, finding.searched(requested.index), start, end)
        return _json(
            finding.search(requested.index, found, request.args.get("q", ""), limit), requested.index
        )

    def step(self, run: str) -> Response:
        index = self.requested(run).index
        name, lane = request.args.get("name", ""), request.args.get("lane", "")
        if not name and not lane:
            raise UnusableInputError("name or lane is required", hint="use for example lane=3&after=100")
        lanes = ask.lanes({"lanes": lane}, index) if lane else finding.searched(index)
        after, before = (_optional(word) for word in ("after", "before"))
        if after is None and before is None:
            raise UnusableInputError("after or before is required", hint="use for example lane=3&after=100")
        return _json(finding.step(index, lanes, name=name, after=after, before=before), index)

    def summary(self, run: str) -> Response:
        requested, found = self._summed(run)
        rows, total = totals.rows(requested.index, found, limit=SHOWN)
        return _json({"rows": rows, "total": total}, requested.index)

    def summary_csv(self, run: str) -> Response:
        requested, found = self._summed(run)
        text = export.csv_text(totals.rows(requested.index, found)[0])
        named = f'attachment; filename="{requested.run.path.name}-timeline.csv"'
        return Response(text, mimetype="text/csv", headers={"Content-Disposition": named, **_NO_STORE})

    def _summed(self, run: str) -> tuple[_Request, Totals]:
        requested = self.requested(run)
        start, end = ask.window(request.args, requested.index)
        return requested, self._totals(requested, ask.lanes(request.args, requested.index), start, end)

    def _totals(self, requested: _Request, lanes: Sequence[Lane], start: int, end: int) -> Totals:
        """Return totals; cached for the next keystroke of a search, or the CSV of a table."""
        settled = requested.index.causes.final.is_set()
        key = (requested.run.path, tuple(lane.id for lane in lanes), start, end, settled)
        found: Totals = self.totals.get(key, lambda: totals.totals(requested.index, lanes, start, end))
        return found


def connect(site: Site) -> None:
    """Add the routes to a site's server, once, and delete indexes of deleted runs."""
    server = site.app.server
    if "timeline" in server.blueprints:
        return
    disk.sweep(site.store)
    routes = _Routes(site, Opened(site.store, site.results))
    blueprint = Blueprint("timeline", __name__, url_prefix="/timeline/<run>")
    for path in ("lanes", "draw", "search", "step", "summary"):
        blueprint.add_url_rule(f"/{path}", path, getattr(routes, path))
    blueprint.add_url_rule("/summary.csv", "summary_csv", routes.summary_csv)
    blueprint.add_url_rule("/row/<table>/<number>", "row", routes.row)
    blueprint.register_error_handler(TracekitError, _error_response)
    server.register_blueprint(blueprint)


def _error_response(error: TracekitError) -> Response:
    status = 404 if isinstance(error, RunNotFoundError) else 400
    data = msgspec.json.encode({"error": error.message, "hint": error.hint})
    return Response(data, status=status, mimetype="application/json", headers=_NO_STORE)


def _json(content: Any, index: Index) -> Response:
    headers = _CACHEABLE if index.causes.final.is_set() else _NO_STORE
    return Response(msgspec.json.encode(content), mimetype="application/json", headers=headers)


def _optional(name: str) -> int | None:
    return ask.number(request.args, name, 0) if request.args.get(name) else None


def _described(
    requested: _Request, levels: Sequence[Levels], rank: int | None, device: int | None
) -> dict[str, Any]:
    index = requested.index
    start, end = index.span
    steps = requested.run.table("steps").to_dict("records")
    interval_lanes = [
        lane.described()
        for lane in index.lanes
        if rank in {None, lane.track.rank} and (device is None or lane.track.device in {device, ABSENT})
    ]
    memory_lanes = [
        one.described(number)
        for number, one in enumerate(levels, len(index.lanes))
        if rank in {None, one.rank} and (device is None or one.device in {device, HOST_DEVICE})
    ]
    return {
        "schema": SCHEMA,
        C.START_NS: start,
        END_NS: end,
        "steps": [_step(step) for step in steps if rank in {None, step[C.RANK]}],
        "categories": [{"id": number, "name": name} for number, name in enumerate(CATEGORIES)],
        "lanes": memory.placed(interval_lanes, memory_lanes),
        "left_out": index.left_out,
        "causes": index.causes.final.is_set(),
    }


def _step(values: dict[Any, Any]) -> dict[str, Any]:
    end = int(values[C.START_NS]) + int(values[C.DUR_NS])
    return {
        C.RANK: int(values[C.RANK]),
        C.STEP: int(values[C.STEP]),
        C.NAME: str(values[C.NAME]),
        C.START_NS: int(values[C.START_NS]),
        END_NS: end,
    }
