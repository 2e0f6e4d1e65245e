"""What keeps the dashboard to the person at this machine: hosts, origins, a content policy and a token.

Traces are files from anywhere: their text is data, never markup or code. The policy forbids every script but
the app's own, and every address but the app's own.
"""

from __future__ import annotations

import hmac
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from flask import abort, redirect, request

if TYPE_CHECKING:
    from dash import Dash
    from flask import Flask, Response

LOOPBACK = ("127.0.0.1", "localhost")
COOKIE = "tracekit_token"
_READING = {"GET", "HEAD", "OPTIONS"}
_POLICY = (
    "default-src 'self'; script-src 'self' {hashes}; style-src 'self' 'unsafe-inline'; "
    "img-src 'self' data: blob:; font-src 'self' data:; connect-src 'self'; worker-src 'self' blob:; "
    "object-src 'none'; base-uri 'none'; form-action 'self'; frame-ancestors 'none'"
)
_HEADERS = {
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Resource-Policy": "same-origin",
    "X-Frame-Options": "DENY",
}


def protect(app: Dash, *, hosts: tuple[str, ...] = LOOPBACK, token: str = "") -> None:
    """Make a server refuse what did not come from its own pages.

    Args:
        app: The app, with all its callbacks.
        hosts: Names under which it may be addressed.
        token: What a browser must show once, in the address; empty where only this machine can connect.
    """
    server: Flask = app.server
    server.config["TRUSTED_HOSTS"] = list(hosts)
    headers = _HEADERS | {"Content-Security-Policy": _POLICY.format(hashes=" ".join(_hashes(app)))}

    @server.before_request
    def refuse() -> Response | None:
        if request.method not in _READING and not _own_page():
            abort(403)
        return _authorize(token) if token else None

    @server.after_request
    def add_headers(response: Response) -> Response:
        for name, value in headers.items():
            response.headers.setdefault(name, value)
        return response


def _hashes(app: Dash) -> list[str]:
    return [f"'{value}'" if not value.startswith("'") else value for value in app.csp_hashes()]


def _own_page() -> bool:
    """Whether a browser says the request comes from a page of this server, or says nothing of pages."""
    site = request.headers.get("Sec-Fetch-Site", "same-origin")
    origin = request.headers.get("Origin")
    same = origin is None or urlsplit(origin).netloc == request.host
    return same and site in {"same-origin", "none"}


def _authorize(token: str) -> Response | None:
    shown = request.args.get("token", "")
    if shown and hmac.compare_digest(shown.encode(), token.encode()):
        response = redirect(request.path)
        response.set_cookie(COOKIE, token, httponly=True, samesite="Strict")
        return response  # type: ignore[return-value]
    if not hmac.compare_digest(request.cookies.get(COOKIE, "").encode(), token.encode()):
        abort(401)
    return None
