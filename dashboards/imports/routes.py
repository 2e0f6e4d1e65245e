"""The addresses by which a page sends traces and follows their import.

`POST /import?name=NAME` with a file as its body imports it. A larger file comes in slices: each names the
file's `size` and the bytes that came before as `from`; all but the last of an import say `more=1`, and all
but the first give the `id` that was answered. `GET /import` tells of all imports, `DELETE /import/ID` ends
one, `POST /import/samples` imports the samples.
"""

from __future__ import annotations

from dataclasses import asdict
from http import HTTPStatus
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from flask import jsonify, request
from werkzeug.exceptions import RequestEntityTooLarge

from tracekit.errors import TracekitError, UnusableInputError

from ..security import LARGEST_BODY
from .jobs import Imports

if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import BinaryIO

    from flask import Response

    from ..site import Site
    from .state import State

SAMPLES = Path(__file__).parent / "samples"
"""Traces that come with the package: two that were recorded on a CPU, and one that a simulator wrote."""


def connect(site: Site, *, limit: int) -> Imports:
    """Add the addresses to a site's server.

    Args:
        site: The site, with the store.
        limit: Bytes of traces that one import may send.
    """
    imports = Imports(site.store, limit)
    rule = site.app.server.add_url_rule
    rule("/import", "import", _answering(lambda: _receive(imports)), methods=["POST"])
    rule("/import", "imports", lambda: jsonify([_plain(one) for one in imports.states()]), methods=["GET"])
    rule("/import/samples", "samples", _answering(lambda: _samples(imports)), methods=["POST"])
    rule("/import/<key>", "cancel", lambda key: _answering(lambda: imports.cancel(key))(), methods=["DELETE"])
    return imports


def samples() -> list[Path]:
    """The traces that come with the package."""
    return sorted(SAMPLES.glob("*.json.gz"))


def _samples(imports: Imports) -> State:
    return imports.begin("the samples", samples())


def _receive(imports: Imports) -> State:
    name = request.args.get("name", "")
    if not name:
        raise UnusableInputError("the file has no name", hint="give one: /import?name=trace.json.gz")
    length = request.content_length
    if length is None:
        raise UnusableInputError("the request does not say its length", hint="send Content-Length")
    offset = _number("from", 0)
    state = imports.receive(
        request.args.get("id", ""),
        name=name,
        offset=offset,
        size=_number("size", offset + length),
        body=cast("BinaryIO", request.stream),
    )
    return state if request.args.get("more") else imports.start(state.id)


def _number(word: str, default: int) -> int:
    text = request.args.get(word, str(default))
    if not (text.isascii() and text.isdigit() and len(text) <= 15):
        raise UnusableInputError(f"{word}={text[:20]!r} is not a number of bytes", hint="give a whole number")
    return int(text)


def _answering(act: Callable[[], State]) -> Callable[[], tuple[Response, int]]:
    """An address that answers with the state of an import, or with what was wrong."""

    def answer() -> tuple[Response, int]:
        try:
            return jsonify(_plain(act())), HTTPStatus.OK
        except TracekitError as error:
            return jsonify({"error": error.message, "hint": error.hint}), HTTPStatus.UNPROCESSABLE_ENTITY
        except RequestEntityTooLarge:
            said = {
                "error": f"more than {LARGEST_BODY >> 20} MiB came in one request",
                "hint": "send slices: see size, from and more",
            }
            return jsonify(said), HTTPStatus.REQUEST_ENTITY_TOO_LARGE

    return answer


def _plain(state: State) -> dict[str, Any]:
    return asdict(state)
