"""Timeline routes: query parameters, the binary format of drawings, and request handlers."""

from __future__ import annotations

import json
import re
import struct
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import msgspec
import numpy as np
from flask import Blueprint, Response, request

from tracekit.errors import RunNotFoundError, TracekitError, UnusableInputError
from tracekit.runs.run import Run
from tracekit.runs.step_windows import END_NS
from tracekit.schema import HOST_DEVICE, TABLES, C

from ..exports.downloads import csv_lines, download
from ..query_runner import QUERIES
from ..site import Results, Site, parse_row
from . import details, disk, query_lanes, read_columns, search
from .clocks import Clocks, Offsets, align_levels, align_step, shift_note
from .details import Totals
from .disk import OpenIndexes
from .index import Index
from .interval_notes import Note, read_note, read_notes, remove_note, save_note
from .levels import Levels, insert_lanes
from .read_columns import CATEGORIES, Window
from .render import RenderedLane, render_lanes
from .tracks import ABSENT, Lane

ALIGNED = "aligned"
"""Value of the parameter `clocks` that shifts the lanes of ranks."""
MAX_WIDTH = 8_192
MAX_LANES = 512
_NUMBER = re.compile(r"-?\d{1,18}")
_PARTS = 10_000
_LANES = re.compile(r"(\d{1,9})(?:-(\d{1,9}))?")


def _read_number(words: Mapping[str, str], name: str, default: int) -> int:
    """Return an integer parameter of up to 18 digits, or the default if it is missing."""
    text = words.get(name, "")
    if not text:
        return default
    if not _NUMBER.fullmatch(text):
        raise UnusableInputError(f"{name} is not an integer", hint=f"use a value such as {name}=100")
    return int(text)


def _read_clamped(words: Mapping[str, str], name: str, *, default: int, low: int, high: int) -> int:
    """Return an integer parameter, or the default, clamped to bounds."""
    return min(max(_read_number(words, name, default), low), high)


def _read_window(words: Mapping[str, str], index: Index) -> tuple[int, int]:
    """Return the time range, which must not be empty; missing bounds default to the capture."""
    first, last = index.span
    start, end = _read_number(words, "from", first), _read_number(words, "to", max(last, first + 1))
    if end <= start:
        raise UnusableInputError("the time range is empty", hint="from must be less than to")
    return start, end


def _read_lanes(words: Mapping[str, str], index: Index) -> list[Lane]:
    """Return the interval lanes in the list of the request."""
    return [index.lanes[number] for number in _parse_lanes(words, len(index.lanes))]


def _parse_lanes(words: Mapping[str, str], count: int) -> list[int]:
    """Return the numbers below a count in a list such as `1,2,5-9`, each once; all without a list."""
    text = words.get("lanes", "")
    if not text:
        return list(range(count))
    lane_numbers: dict[int, None] = {}
    for part in text.split(",", _PARTS):
        match = _LANES.fullmatch(part)  # fails on the rest of a list that is too long
        if match is None:
            raise UnusableInputError("lanes is not a list of numbers", hint="use for example lanes=1,2,5-9")
        first, last = int(match[1]), int(match[2] or match[1])
        if last >= count:
            raise UnusableInputError(
                f"there is no lane {last}", hint=f"this run has {count} lanes, numbered from 0"
            )
        lane_numbers |= dict.fromkeys(range(first, last + 1))
    return list(lane_numbers)


COLUMNS = ("name", "category", "count", "sum_ns", "mean_ns", "max_ns")
_MAX = ("table", "row")


def csv_text(rows: Iterable[dict[str, Any]]) -> str:
    """Return rows of totals as CSV with a header."""
    values = ([row[name] for name in COLUMNS] + [row["max"][name] for name in _MAX] for row in rows)
    return csv_lines([[*COLUMNS, *(f"max_{name}" for name in _MAX)], *values])


MAGIC = b"TKT1"
_ALIGNED = 8
_NAME = "name"


def pack(window: Window, drawn: Sequence[RenderedLane], names: Sequence[str], **more: Any) -> bytes:
    """Encode lanes as little-endian bytes, with the names they use.

    Args:
        window: Range and pixel columns.
        drawn: The rendered lanes.
        names: All names of the run.
        more: Further fields of the header.
    """
    is_used = np.zeros(len(names), np.bool_)
    for lane in drawn:
        if _NAME in lane.arrays:
            is_used[lane.arrays[_NAME]] = True
    renumbered = (np.cumsum(is_used) - 1).astype(np.uint32)
    body: list[bytes] = []
    size = 0
    lanes = []
    for lane in drawn:
        offsets = {}
        arrays = dict(lane.arrays)
        if _NAME in arrays:
            arrays[_NAME] = renumbered[arrays[_NAME]]
        for name, array in arrays.items():
            offsets[name] = size
            data = array.astype(array.dtype.newbyteorder("<"), copy=False).tobytes()
            body += [data, bytes(-len(data) % _ALIGNED)]
            size += len(data) + len(body[-1])
        length = len(next(iter(arrays.values())))
        lanes.append({"id": lane.lane, "mode": lane.mode, "n": length, "at": offsets})
    head = {"from": window.start, "to": window.end, "width": window.width, **more}
    head |= {"names": [names[number] for number in np.flatnonzero(is_used).tolist()], "lanes": lanes}
    text = json.dumps(head, ensure_ascii=False).encode()
    text += b" " * (-(len(MAGIC) + 4 + len(text)) % _ALIGNED)
    return b"".join([MAGIC, struct.pack("<I", len(text)), text, *body])


SCHEMA = "tracekit.timeline/1"
MAX_ROWS = 500
"""Maximum rows of a summary; the CSV has all of them."""
_CACHEABLE = {"Cache-Control": "private, max-age=3600"}
_NO_STORE = {"Cache-Control": "no-store"}
"""Headers of responses that change once the causes of idle time are known."""
_ROW_TABLES = ("device_intervals", "host_intervals", "steps")


@dataclass(frozen=True)
class _Routes:
    """Request handlers."""

    site: Site
    opened: OpenIndexes
    clocks: Clocks = field(default_factory=Clocks)
    groups: Results = field(default_factory=lambda: Results(capacity=16))
    totals: Results = field(default_factory=lambda: Results(capacity=16))

    def open_index(self, run_id: str) -> tuple[Run, Index]:
        """Return a run and its index, with aligned clocks if the request says so."""
        run = self.find_run(run_id)
        index = self.opened.of(run)
        return run, self.clocks.align(run, index) if self.offsets(run) else index

    def offsets(self, run: Run) -> Offsets:
        """Return the offsets of the ranks' clocks that the request wants subtracted."""
        return self.clocks.offsets(run) if request.args.get("clocks") == ALIGNED else {}

    def open_levels(self, run: Run) -> tuple[Levels, ...]:
        levels, offsets = self.opened.levels(run), self.offsets(run)
        return align_levels(levels, offsets) if offsets else levels

    def find_run(self, run_id: str) -> Run:
        run = self.site.run(run_id)
        if run is None:
            raise RunNotFoundError("the store has no such run", hint="see the Runs page")
        return run

    def lanes(self, run: str) -> Response:
        stored, index = self.open_index(run)
        rank, device = (_read_optional(name) for name in (C.RANK, C.DEVICE))
        levels, offsets = self.open_levels(stored), self.offsets(stored)
        described = _describe_lanes(stored, index, levels, offsets, rank, device)
        groups = self.groups.get(stored.path, lambda: read_columns.read_process_groups(stored))
        for lane in described["lanes"]:
            lane["process_group"] = groups.get((lane[C.RANK], lane[C.DEVICE], lane.get(C.STREAM)))
        return json_response(described, index)

    def draw(self, run: str) -> Response:
        stored, index = self.open_index(run)
        levels = self.open_levels(stored)
        wanted = _parse_lanes(request.args, len(index.lanes) + len(levels))
        if len(wanted) > MAX_LANES:
            hint = f"request at most {MAX_LANES} at once"
            raise UnusableInputError(f"{len(wanted)} lanes requested", hint=hint)
        start, end = _read_window(request.args, index)
        width = _read_clamped(request.args, "width", default=1_000, low=1, high=MAX_WIDTH)
        window = Window(start=start, end=end, width=width)
        settled = index.causes.final.is_set()  # read before drawing, so that cached responses are final
        rendered = render_lanes(index, levels, wanted, window)
        data = pack(window, rendered, index.names.texts, causes=settled)
        headers = _CACHEABLE if settled else _NO_STORE
        return Response(data, mimetype="application/octet-stream", headers=headers)

    def row(self, run: str, table: str, number: str) -> Response:
        stored, index = self.open_index(run)
        if table not in _ROW_TABLES or table not in TABLES:
            raise RunNotFoundError("no such table", hint=f"one of {', '.join(_ROW_TABLES)}")
        row_number = _read_number({"row": number}, "row", 0)
        return json_response(details.describe_row(stored, index, table, row_number), index)

    def search(self, run: str) -> Response:
        (stored, index), query = self.open_index(run), _read_query()
        limit = _read_clamped(request.args, "limit", default=50, low=1, high=MAX_ROWS)
        sums = self.sum_lanes(stored, index, query.lanes(index))
        return json_response(search.find_names(index, sums, query, limit), index)

    def step(self, run: str) -> Response:
        (_, index), query = self.open_index(run), _read_query()
        lane = request.args.get("lane", "")
        if not query.text and not lane:
            raise UnusableInputError("q or lane is required", hint="use for example lane=3&at=100&by=1")
        lanes = _read_lanes({"lanes": lane}, index) if lane else query.lanes(index)
        labels = query.labels(index) if query.text else None
        by = _read_clamped(request.args, "by", default=0, low=-1, high=1)
        longest = request.args.get("order") == "longest"
        key = _step_key(index, longest=longest)
        return json_response(search.step(index, lanes, labels, key=key, by=by, longest=longest), index)

    def summary(self, run: str) -> Response:
        stored, index = self.open_index(run)
        sums = self.sum_lanes(stored, index, _read_lanes(request.args, index))
        start, end = _read_window(request.args, index)
        rows, total = details.rows(index, sums, limit=MAX_ROWS)
        categories = details.by_category(index, sums, end - start)
        return json_response({"rows": rows, "total": total, "categories": categories}, index)

    def summary_csv(self, run: str) -> Response:
        stored, index = self.open_index(run)
        sums = self.sum_lanes(stored, index, _read_lanes(request.args, index))
        text = csv_text(details.rows(index, sums)[0])
        response = download(text, "text/csv; charset=utf-8", f"{stored.path.name}-timeline.csv")
        response.headers.update(_NO_STORE)
        return response

    def list_clocks(self, run: str) -> Response:
        stored, index = self.open_index(run)
        return json_response(self.clocks.describe(stored), index)

    def notes(self, run: str) -> Response:
        stored = self.find_run(run)
        return json_response({"notes": [self._shift(stored, note, -1) for note in read_notes(stored)]})

    def write_note(self, run: str, note: str = "") -> Response:
        stored = self.find_run(run)
        written = self._shift(stored, read_note(request.get_data()), 1)
        return json_response(self._shift(stored, save_note(self.site.store, stored, written, note), -1))

    def _shift(self, run: Run, note: Note, sign: int) -> Note:
        offsets = self.offsets(run)
        return shift_note(note, self.opened.of(run), offsets, sign=sign) if offsets else note

    def remove_note(self, run: str, note: str) -> Response:
        remove_note(self.site.store, self.find_run(run), note)
        return json_response({"removed": note})

    def query(self, run: str) -> Response:
        stored, index = self.open_index(run)
        body = query_lanes.read_body(request.get_data())
        try:
            query = query_lanes.query_of(self.site.store, stored, body)
            result, offsets = QUERIES.result(query), self.offsets(stored)
            return json_response(query_lanes.read_lanes(result, body.rank, index.span, offsets))
        except TracekitError as error:  # what was asked for is the error, as on the SQL page
            return _error_response(error, status=200)

    def cancel_query(self, run: str) -> Response:
        body = query_lanes.read_body(request.get_data())
        QUERIES.cancel(query_lanes.query_of(self.site.store, self.find_run(run), body))
        return json_response({})

    def sum_lanes(self, run: Run, index: Index, lanes: Sequence[Lane]) -> Totals:
        """Return totals of the range; cached for the next keystroke of a search, or the CSV of a table."""
        start, end = _read_window(request.args, index)
        settled = index.causes.final.is_set()
        key = (run.path, bool(self.offsets(run)), tuple(lane.id for lane in lanes), start, end, settled)
        return self.totals.get(key, lambda: details.totals(index, lanes, start, end))


def connect(site: Site) -> None:
    """Add the routes to a site's server, once, and delete indexes of deleted runs."""
    server = site.app.server
    if "timeline" in server.blueprints:
        return
    disk.sweep(site.store)
    routes = _Routes(site, OpenIndexes(site.store, site.results))
    blueprint = Blueprint("timeline", __name__, url_prefix="/timeline/<run>")
    for path in ("lanes", "draw", "search", "step", "summary"):
        blueprint.add_url_rule(f"/{path}", path, getattr(routes, path))
    blueprint.add_url_rule("/summary.csv", "summary_csv", routes.summary_csv)
    blueprint.add_url_rule("/row/<table>/<number>", "row", routes.row)
    blueprint.add_url_rule("/clocks", "clocks", routes.list_clocks)
    blueprint.add_url_rule("/notes", "notes", routes.notes)
    for path in ("/notes", "/notes/<note>"):
        blueprint.add_url_rule(path, "write_note", routes.write_note, methods=["POST"])
    blueprint.add_url_rule("/notes/<note>", "remove_note", routes.remove_note, methods=["DELETE"])
    blueprint.add_url_rule("/query", "query", routes.query, methods=["POST"])
    blueprint.add_url_rule("/query", "cancel_query", routes.cancel_query, methods=["DELETE"])
    blueprint.register_error_handler(TracekitError, _error_response)
    server.register_blueprint(blueprint)


def _error_response(error: TracekitError, *, status: int = 0) -> Response:
    usual = 404 if isinstance(error, RunNotFoundError) else 400
    return json_response({"error": error.message, "hint": error.hint}, status=status or usual)


def json_response(content: Any, index: Index | None = None, *, status: int = 200) -> Response:
    """Return a response in JSON, which may be cached once the causes of idle time of its index are final.

    Args:
        content: What to encode.
        index: The index it is of; None if it changes at any time.
        status: HTTP status.
    """
    headers = _CACHEABLE if index is not None and index.causes.final.is_set() else _NO_STORE
    return Response(msgspec.json.encode(content), status, mimetype="application/json", headers=headers)


def _read_query() -> search.Query:
    """Return the query of the request."""
    mode = request.args.get("mode", search.TEXT)
    rank, device = (_read_optional(name) for name in (C.RANK, C.DEVICE))
    return search.Query(text=request.args.get("q", ""), mode=mode, rank=rank, device=device)


def _step_key(index: Index, *, longest: bool) -> tuple[int, int]:
    """Return the key of the current interval, `row`, or of an instant, `at`, between intervals."""
    row = parse_row(request.args.get("row", ""))
    position = int(index.position(row[0], np.array([row[1]]))[0]) if row else -1
    if position < 0:
        first = -(1 << 62) if longest else _read_number(request.args, "at", index.span[0])
        return first, -1
    return -int(index.duration(np.array([position]))[0]) if longest else int(index.start[position]), position


def _read_optional(name: str) -> int | None:
    return _read_number(request.args, name, 0) if request.args.get(name) else None


def _describe_lanes(
    run: Run,
    index: Index,
    levels: Sequence[Levels],
    offsets: Offsets,
    rank: int | None,
    device: int | None,
) -> dict[str, Any]:
    start, end = index.span
    steps = []
    for row, step in enumerate(run.table("steps").to_dict("records")):
        numbers = {name: int(step[name]) for name in (C.RANK, C.STEP)}
        numbers[C.START_NS] = align_step(step, offsets)
        end_ns = numbers[C.START_NS] + int(step[C.DUR_NS])
        if rank in {None, step[C.RANK]}:
            steps.append({"row": row, **numbers, C.NAME: str(step[C.NAME]), END_NS: end_ns})
    interval_lanes = [
        lane.describe()
        for lane in index.lanes
        if rank in {None, lane.track.rank} and (device is None or lane.track.device in {device, ABSENT})
    ]
    level_lanes = [
        lane.describe(number)
        for number, lane in enumerate(levels, len(index.lanes))
        if (rank is None or lane.rank in {None, rank})
        and (device is None or lane.device in {device, HOST_DEVICE})
    ]
    return {
        "schema": SCHEMA,
        C.START_NS: start,
        END_NS: end,
        "steps": steps,
        "categories": [{"id": number, "name": name} for number, name in enumerate(CATEGORIES)],
        "lanes": insert_lanes(interval_lanes, level_lanes),
        "left_out": index.left_out,
        "causes": index.causes.final.is_set(),
        "several_ranks": len(run.ranks) > 1,
    }
