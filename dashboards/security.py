"""Restrict access to the dashboard: allowed hosts, origin checks, a content security policy and a token.

Traces are files from anywhere: their text is data, never markup or code. The policy forbids every script but
the app's own, and every address but the app's own.
"""

from __future__ import annotations

import hmac
import ipaddress
from collections.abc import Mapping
from urllib.parse import quote, urlencode, urlsplit

from dash import Dash
from dash.exceptions import DependencyException
from flask import Flask, Response, abort, redirect, request
from werkzeug.exceptions import NotFound, UnprocessableEntity
from werkzeug.http import parse_cookie

from tracekit.errors import TracekitError

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
BARE_POLICY = "default-src 'none'; frame-ancestors 'none'"
"""Content security policy of plain-text responses."""


def restrict_access(app: Dash, *, hosts: tuple[str, ...] = LOOPBACK, token: str = "") -> None:
    """Reject requests that do not come from the dashboard's pages.

    Args:
        app: The app, with all its callbacks.
        hosts: Allowed host names; empty allows any.
        token: Access token that a browser must send once, in the address; empty for loopback.
    """
    server: Flask = app.server
    server.config["MAX_CONTENT_LENGTH"] = MAX_BODY_BYTES
    hashes = [value if value.startswith("'") else f"'{value}'" for value in app.csp_hashes()]
    headers = HEADERS | {"Content-Security-Policy": _POLICY.format(hashes=" ".join(hashes))}

    def refuse() -> Response | None:
        if hosts and _host_name() not in hosts:
            abort(400, "unknown host name")  # prevents DNS rebinding
        if request.method not in _SAFE_METHODS and not is_same_origin():
            abort(403, "not from a page of this dashboard")
        return _authorize(token) if token and request.path != HEALTH else None

    server.before_request_funcs.setdefault(None, []).insert(0, refuse)
    server.register_error_handler(DependencyException, lambda _: NotFound())  # instead of a traceback
    server.register_error_handler(TracekitError, lambda error: UnprocessableEntity(str(error)))

    @server.after_request
    def add_headers(response: Response) -> Response:
        for name, value in headers.items():
            response.headers.setdefault(name, value)
        return response


def is_loopback(host: str) -> bool:
    """Return whether an address or name is of this machine only."""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def _host_name() -> str:
    """Return the requested host name without port and brackets."""
    try:
        return urlsplit(f"//{request.headers.get('Host', '')}").hostname or ""
    except ValueError:
        return ""


def is_same_origin() -> bool:
    """Return whether the request comes from a page of this server or from a non-browser client."""
    site = request.headers.get("Sec-Fetch-Site", "same-origin")
    origin = request.headers.get("Origin")
    try:
        same = origin is None or urlsplit(origin).netloc == request.headers.get("Host", "")
    except ValueError:
        return False
    return same and site in {"same-origin", "none"}


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
