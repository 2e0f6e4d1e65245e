"""Serving the dashboard with waitress until it is interrupted."""

from __future__ import annotations

import ipaddress
import secrets
import threading
import webbrowser
from typing import TYPE_CHECKING

import waitress

from tracekit.errors import UnusableInputError

from .app import create_app
from .security import LOOPBACK

if TYPE_CHECKING:
    from collections.abc import Callable

    from tracekit.store import Store

THREADS = 8


def serve(
    store: Store, *, host: str, port: int, tell: Callable[[str], None], open_browser: bool = False
) -> None:
    """Serve a store's dashboard; returns when interrupted.

    Args:
        store: The runs.
        host: Address to listen on; beyond this machine, a token guards it.
        port: Port to listen on; 0 takes a free one.
        tell: Told the address once the port is open.
        open_browser: Whether to show it in the person's browser.

    Raises:
        UnusableInputError: The address cannot be listened on.
    """
    token = "" if _is_loopback(host) else secrets.token_urlsafe(16)
    hosts = (*LOOPBACK, host) if _is_loopback(host) else ()
    app = create_app(store, hosts=hosts, token=token)
    try:
        server = waitress.create_server(app.server, host=host, port=port, threads=THREADS, ident="tracekit")
    except OSError as error:
        raise UnusableInputError(
            f"cannot listen on {host}:{port}: {error.strerror or error}",
            hint="choose another with --port; 0 takes a free one",
        ) from error
    address = f"http://{_named(host)}:{server.effective_port}/" + (f"?token={token}" if token else "")
    tell(address)
    if open_browser:
        threading.Thread(target=webbrowser.open, args=(address,), daemon=True).start()
    try:
        server.run()
    finally:
        server.close()


def _is_loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def _named(host: str) -> str:
    return f"[{host}]" if ":" in host else host
