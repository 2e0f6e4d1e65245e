"""Restrict access to the dashboard: hosts, origins, a content security policy, a token, bodies of callbacks.

Traces are files from anywhere: their text is data, never markup or code. The policy forbids every script but
the app's own, and every address but the app's own.

Dash takes the ids, properties and values of a callback from the browser as they are. Here, they must be those
that the callback declares, and values must have the types of their properties.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import ipaddress
import json
import re
from collections.abc import Mapping, Sequence
from typing import Any, TypeAlias, TypedDict, cast
from urllib.parse import quote, urlencode

import msgspec
from dash import Dash
from dash.exceptions import DependencyException
from flask import Flask, Response, abort, redirect, request
from werkzeug.exceptions import NotFound, TooManyRequests, UnprocessableEntity
from werkzeug.http import parse_cookie

from tracekit.errors import TracekitError, UnusableInputError

from .bundle import STATIC
from .shell import NAMES

LOOPBACK = ("127.0.0.1", "localhost")
COOKIE = "tracekit_token"
HEALTH = "/healthz"
MAX_BODY_BYTES = 32 << 20
"""Maximum bytes of a request; traces are uploaded in smaller slices."""
_SAFE_METHODS = {"GET", "HEAD", "OPTIONS"}
_POLICY = (
    "default-src 'self'; script-src 'self' {hashes}; style-src 'self' 'unsafe-inline'; "
    "img-src 'self' data: blob:; font-src 'self' data:; connect-src 'self'; worker-src 'self' blob:; "
    "object-src 'none'; base-uri 'none'; form-action 'self'; frame-ancestors 'none'"
)
HEADERS = {
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Resource-Policy": "same-origin",
    "X-Frame-Options": "DENY",
}
"""Headers of every response, in addition to its policy."""
_FILES = (*STATIC, "/assets/")
_NO_STORE = "no-store"  # value of `Cache-Control` of all that may contain data of runs
BARE_POLICY = "default-src 'none'; frame-ancestors 'none'"
"""Content security policy of plain-text responses."""


class BusyError(UnusableInputError):
    """The server runs as many queries as it may; `seconds` is when to try again."""

    seconds = 5


def _hash_script(script: str) -> str:
    return f"'sha256-{base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()}'"


def restrict_access(app: Dash, *, hosts: tuple[str, ...] = LOOPBACK, token: str = "") -> None:
    """Reject requests that do not come from the dashboard's pages, or that no page would send.

    Args:
        app: The app, with all its callbacks.
        hosts: Allowed host names; empty allows any.
        token: Access token that a browser must send once, in the address; empty for loopback.
    """
    server: Flask = app.server
    server.config["MAX_CONTENT_LENGTH"] = MAX_BODY_BYTES
    hashes = [value if value.startswith("'") else f"'{value}'" for value in app.csp_hashes()]
    hashes += map(_hash_script, re.findall(r"<script>(.*?)</script>", app.index_string, re.DOTALL))
    headers = HEADERS | {"Content-Security-Policy": _POLICY.format(hashes=" ".join(hashes))}

    def refuse() -> Response | None:
        name = _host_name()
        if not name or (hosts and name not in hosts):
            abort(400, "unknown host name")  # prevents DNS rebinding
        if request.method not in _SAFE_METHODS and not is_same_origin():
            abort(403, "not from a page of this dashboard")
        return _authorize(token) if token and request.path != HEALTH else None

    server.before_request_funcs.setdefault(None, []).insert(0, refuse)
    server.register_error_handler(DependencyException, lambda _: NotFound())  # instead of a traceback
    server.register_error_handler(TracekitError, lambda error: UnprocessableEntity(str(error)))
    server.register_error_handler(
        BusyError, lambda error: TooManyRequests(str(error), retry_after=error.seconds)
    )

    @server.after_request
    def add_headers(response: Response) -> Response:
        for name, value in headers.items():
            response.headers.setdefault(name, value)
        if not request.path.startswith(_FILES):
            response.headers.setdefault("Cache-Control", _NO_STORE)
            if token:  # a cache may outlast the token
                response.headers["Cache-Control"] = _NO_STORE
        return response

    _refuse_malformed(app)


def is_loopback(host: str) -> bool:
    """Return whether an address or name is of this machine only."""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


_HOST = re.compile(r"(?:(?P<name>[A-Za-z0-9._-]+)|\[(?P<address>[0-9A-Fa-f:.]+)\])(?::\d{1,5})?")


def _host_name() -> str:
    """Return the requested host name without port and brackets; empty if it is none, as `user@host`."""
    match = _HOST.fullmatch(request.headers.get("Host", ""))
    return (match["name"] or match["address"]).lower() if match else ""


def is_same_origin() -> bool:
    """Return whether the request comes from a page of this server or from a non-browser client.

    Behind a proxy, the scheme is the one that the proxy names; pages of other sites cannot send that header.
    """
    site = request.headers.get("Sec-Fetch-Site", "same-origin")
    origin = request.headers.get("Origin")
    scheme = request.headers.get("X-Forwarded-Proto", request.scheme).partition(",")[0].strip().lower()
    own = f"{scheme}://{request.headers.get('Host', '')}"
    is_same = origin is None or origin.lower() == own.lower()
    return is_same and site in {"same-origin", "none"}


def _authorize(token: str) -> Response | None:
    cookie = _cookie(request.environ.get("SERVER_PORT", ""))
    shown = request.args.get("token", "")
    if _matches(shown, token):
        response = redirect(_without_token())
        response.set_cookie(cookie, token, httponly=True, samesite="Strict")
        return response  # type: ignore[return-value]
    if not _matches(request.cookies.get(cookie, ""), token):
        abort(401, "open the address printed by `tracekit dashboard`, which includes the access token")
    return None


def may_send(headers: Mapping[str, str], token: str, port: int) -> bool:
    """Return whether a request with these headers, as WSGI names them, shows the token, if there is one.

    Args:
        headers: Headers of the request.
        token: Access token; empty for loopback.
        port: Port of the server, which is part of the cookie's name.
    """
    return not token or _matches(parse_cookie(headers.get("COOKIE", "")).get(_cookie(port), ""), token)


def _cookie(port: object) -> str:
    return f"{COOKIE}_{port}"  # cookies are shared between ports


def _matches(shown: str, token: str) -> bool:
    return hmac.compare_digest(shown.encode(errors="replace"), token.encode())


def _without_token() -> str:
    """Return the requested path and query without the token, as an address of this host.

    Browsers skip tabs and line ends, and take a backslash for a slash: only what is quoted stays in the path.
    """
    rest = [(name, value) for name, value in request.args.items(multi=True) if name != "token"]
    return "/" + quote(request.path.lstrip("/\\"), errors="replace") + (f"?{urlencode(rest)}" if rest else "")


UPDATE_PATH = "/_dash-update-component"
_MANY = ("ALL", "ALLSMALLER")


class _Slot(msgspec.Struct):
    """A property of a component, with its value."""

    id: str | dict[str, str]
    property: str
    value: Any = None


class _Body(msgspec.Struct):
    """Body of a callback, as Dash's renderer sends it."""

    output: str
    outputs: _Slot | list[_Slot | list[_Slot]]
    inputs: list[_Slot | list[_Slot]]
    state: list[_Slot | list[_Slot]] = []
    changedPropIds: list[str] = []  # noqa: N815 (named by Dash)


class _Address(TypedDict):
    path: str | None
    search: str | None


class _Condition(TypedDict, total=False):
    """A filter of a column, which may consist of others."""

    type: str | None
    operator: str | None
    filter: str | float | None
    filterTo: str | float | None
    conditions: list[_Condition] | None


class _Rows(TypedDict, total=False):
    startRow: int | None
    endRow: int | None
    sortModel: list[dict[str, str | int | None]] | None
    filterModel: dict[str, _Condition] | None


class _Point(TypedDict, total=False):
    customdata: Any


class _Clicked(TypedDict, total=False):
    points: list[_Point]


class _Run(TypedDict):
    run: str


class _List(TypedDict):
    stamp: str
    fields: list[str]


_Picked: TypeAlias = tuple[str | None, str | None, str | None, str | None, str | None]
"""Values of the five pickers."""
_TYPES: dict[str, Any] = {
    "pathname": str | None,
    "search": str | None,
    "searchValue": str | None,
    "checked": bool | None,
    "n_clicks": int | None,
    "n_intervals": int | None,
    **{f"{name}.value": str | None for name in NAMES},
    "view.data": _Address | None,
    "theme.data": str | None,
    "listed.data": str | None,
    "offered.data": tuple[str, _Picked] | None,
    "choice.data": _Picked,
    "run-search.data": str | None,
    "base-search.data": str | None,
    "runs-known.data": _List | None,
    "runs-find.value": str | None,
    "sql-schema-of.data": str | None,
    "notes-run.children": str | None,
    "notes-name.value": str | None,
    "notes-tags.value": list[str] | None,
    "notes-color.value": str | None,
    "notes-text.value": str | None,
    "selectedRows": list[_Run] | None,
    "getRowsRequest": _Rows | None,
    "clickData": _Clicked | None,
}
"""Types of values by property, or by id and property; others are taken as any JSON."""


def _refuse_malformed(app: Dash) -> None:
    """Refuse malformed bodies of callbacks with 400, before Dash runs them."""
    decoder, server = msgspec.json.Decoder(_Body), cast("Flask", app.server)

    @server.before_request
    def refuse() -> None:
        if request.path != UPDATE_PATH or request.method != "POST":
            return
        try:
            body = decoder.decode(request.get_data())
            _check_body(body, app.callback_map)
        except (msgspec.MsgspecError, RecursionError, ValueError) as error:
            abort(400, f"malformed body of a callback: {str(error)[:200]}")


def _check_body(body: _Body, callbacks: dict[str, Any]) -> None:
    """Raise ValueError or ValidationError if the body is not one of a callback of this server."""
    callback = callbacks.get(body.output)
    if callback is None or "callback" not in callback:
        raise ValueError("unknown output")
    outputs = callback["output"]
    if isinstance(body.outputs, list) != isinstance(outputs, (list, tuple)):
        raise ValueError("other outputs")
    declared = outputs if isinstance(outputs, (list, tuple)) else [outputs]
    sent = body.outputs if isinstance(body.outputs, list) else [body.outputs]
    _check_slots(sent, [(dependency.component_id, dependency.component_property) for dependency in declared])
    for slots, named in ((body.inputs, "inputs"), (body.state, "state")):
        pairs = [
            (json.loads(name) if (name := dependency["id"]).startswith("{") else name, dependency["property"])
            for dependency in callback[named]
        ]
        _check_slots(slots, pairs)
        for slot in slots:
            for dependency in slot if isinstance(slot, list) else [slot]:
                if dependency.property == "id" and dependency.value != dependency.id:
                    raise ValueError("other id")
                name = f"{dependency.id}.{dependency.property}"
                expected = _TYPES.get(name, _TYPES.get(dependency.property))
                if expected is not None:
                    msgspec.convert(dependency.value, expected)


def _check_slots(sent: Sequence[_Slot | list[_Slot]], declared: Sequence[tuple[Any, str]]) -> None:
    if len(sent) != len(declared):
        raise ValueError(f"{len(sent)} instead of {len(declared)} properties")
    for slot, (component, name) in zip(sent, declared, strict=True):
        for single in slot if isinstance(slot, list) else [slot]:
            if single.property.partition("@")[0] != name.partition("@")[0] or not _fits(single.id, component):
                raise ValueError("other properties")
        wildcards = map(_wildcard, component.values()) if isinstance(component, dict) else ()
        if isinstance(slot, list) != any(wildcard in _MANY for wildcard in wildcards):
            raise ValueError("other properties")


def _fits(sent: Any, component: Any) -> bool:
    """Return whether a component is the declared one, or matches its pattern."""
    if not isinstance(component, dict) or not isinstance(sent, dict):
        return bool(sent == component)
    return sent.keys() == component.keys() and all(
        _wildcard(value) or sent[key] == value for key, value in component.items()
    )


def _wildcard(value: Any) -> str:
    """Return the name of a wildcard, as an object of Dash or in its JSON; empty for a value."""
    return str(value[0] if isinstance(value, list) and len(value) == 1 else getattr(value, "name", ""))
