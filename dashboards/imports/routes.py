"""Routes to upload traces and follow their import.

`POST /import?name=NAME` with a file as its body imports it. A larger file is sent in slices: each has the
file's `size` and its offset `from`; all but the last slice of an import have `more=1`, and all but the first
have the `id` from the first response. `GET /import` lists all imports, `DELETE /import/ID` cancels one,
`POST /import/samples` imports the samples.

Slices, since waitress stores the whole body of a request before the app sees it: a trace in one request would
take its size twice, and could not be refused, counted or cancelled before its last byte.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict
from http import HTTPStatus
from pathlib import Path
from typing import BinaryIO, cast

from flask import Flask, Response, jsonify, request
from werkzeug.exceptions import RequestEntityTooLarge

from tracekit.errors import TracekitError, UnusableInputError

from ..security import MAX_BODY_BYTES
from ..site import Site
from .import_jobs import Imports, State

KEY = "tracekit-imports"
"""Key of the imports among the extensions of a server."""
SAMPLES = Path(__file__).parent / "samples"
"""Bundled traces: two recorded on a CPU and one written by the simulator."""


def connect(site: Site, *, limit: int, on_run: Callable[[str], None]) -> Imports:
    """Add the routes to a site's server; the arguments are those of `Imports`."""
    imports = Imports(site.store, limit, on_run)
    server: Flask = site.app.server
    server.extensions[KEY] = imports

    @server.get("/import")
    def states() -> Response:
        return jsonify([asdict(state) for state in imports.states()])

    @server.post("/import")
    def receive() -> tuple[Response, int]:
        return _answer_json(lambda: _receive(imports))

    @server.post("/import/samples")
    def samples() -> tuple[Response, int]:
        return _answer_json(lambda: imports.begin("the samples", sample_traces()))

    @server.delete("/import/<key>")
    def cancel(key: str) -> tuple[Response, int]:
        return _answer_json(lambda: imports.cancel(key))

    return imports


def sample_traces() -> list[Path]:
    """Return the bundled traces."""
    return sorted(SAMPLES.glob("*.json.gz"))


def _receive(imports: Imports) -> State:
    name = request.args.get("name", "")
    if not name:
        raise UnusableInputError("the file has no name", hint="give one: /import?name=trace.json.gz")
    length = request.content_length
    if length is None:
        raise UnusableInputError("the request has no length", hint="send Content-Length")
    offset = _read_number("from", 0)
    state = imports.receive(
        request.args.get("id", ""),
        name=name,
        offset=offset,
        size=_read_number("size", offset + length),
        body=cast("BinaryIO", request.stream),
    )
    return state if request.args.get("more") else imports.start(state.id)


def _read_number(word: str, default: int) -> int:
    text = request.args.get(word, str(default))
    if not (text.isascii() and text.isdigit() and len(text) <= 15):
        raise UnusableInputError(f"{word}={text[:20]!r} is not a number of bytes", hint="give a whole number")
    return int(text)


def _answer_json(act: Callable[[], State]) -> tuple[Response, int]:
    """Return the state of an import, or an error, as JSON."""
    try:
        return jsonify(asdict(act())), HTTPStatus.OK
    except TracekitError as error:
        return jsonify(error=error.message, hint=error.hint), HTTPStatus.UNPROCESSABLE_ENTITY
    except RequestEntityTooLarge:
        message = f"the request is larger than {MAX_BODY_BYTES >> 20} MiB"
        hint = "send the file in slices (parameters size, from and more)"
        return jsonify(error=message, hint=hint), HTTPStatus.REQUEST_ENTITY_TOO_LARGE
