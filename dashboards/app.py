"""Create the Dash app of a store, and serve it."""

from __future__ import annotations

import errno
import logging
import secrets
import socket
import threading
import webbrowser
from collections.abc import Callable

import waitress
from dash import Dash
from waitress import wasyncore

from tracekit.analysis.cache import ResultCache
from tracekit.errors import UnusableInputError
from tracekit.runs.store import Store

from . import blocks, callback_bodies, connections, prefetch, security, shell
from .analysis_pages.pages import load_pages
from .exports import downloads
from .imports import routes
from .security import LOOPBACK, MAX_BODY_BYTES
from .site import Results, Site
from .tables import table

UPLOAD_LIMIT = 4 << 30


def create_app(
    store: Store,
    *,
    hosts: tuple[str, ...] = security.LOOPBACK,
    token: str = "",
    upload_limit: int = UPLOAD_LIMIT,
) -> Dash:
    """Create a dashboard over the runs of a store.

    Args:
        store: The runs; new ones appear without a reload.
        hosts: Host names that the server answers to.
        token: Access token; empty for loopback.
        upload_limit: Maximum bytes of all uploads that have not been imported.

    Returns:
        The app, with every page connected; `app.server` is the WSGI application.

    Example:
        >>> from pathlib import Path
        >>> from tracekit.runs.store import Store
        >>> create_app(Store(Path("no-such-store"))).title
        'tracekit'
    """
    app = Dash(
        "tracekit.dashboards",
        title="tracekit",
        update_title="",
        suppress_callback_exceptions=True,  # blocks exist only on their pages
        compress=False,
        serve_locally=True,
        assets_ignore=r"early\.js$",  # loaded by the frame before first paint
        index_string=shell.INDEX,
    )
    site = Site(app=app, store=store, pages=load_pages(), results=Results(analyze=ResultCache(store).analyze))
    app.layout = shell.shell(site.pages)
    shell.connect(site)
    shell.connect_pickers(site)
    routes.connect(site, limit=upload_limit)
    blocks.connect(site)
    table.connect(site)
    downloads.connect(site)
    for shown in site.pages.values():
        if shown.connect:
            shown.connect(site)
    app.server.add_url_rule(security.HEALTH, "healthz", lambda: ("ok", 200, {"Content-Type": "text/plain"}))
    security.restrict_access(app, hosts=hosts, token=token)
    callback_bodies.refuse_malformed(app)
    prefetch.connect(site)
    return app


THREADS = 8


def serve(
    store: Store,
    *,
    host: str,
    port: int,
    on_ready: Callable[[str], None],
    open_browser: bool = False,
    upload_limit: int = UPLOAD_LIMIT,
) -> None:
    """Serve a store's dashboard until interrupted; KeyboardInterrupt and SystemExit propagate.

    Args:
        store: The runs.
        host: Address to listen on; other than loopback requires a token.
        port: Port to listen on; 0 picks a free one.
        on_ready: Called with the address once the port is open.
        open_browser: Whether to open it in the default browser.
        upload_limit: Maximum bytes of all uploads that have not been imported.

    Raises:
        UnusableInputError: The address cannot be listened on.
    """
    token = "" if security.is_loopback(host) else secrets.token_urlsafe(16)
    hosts = () if token else (*LOOPBACK, host)
    listening = _bind(host, port)
    logging.getLogger("waitress.queue").setLevel(logging.ERROR)  # queued requests are normal
    app = create_app(store, hosts=hosts, token=token, upload_limit=upload_limit)
    opened: dict[int, object] = {}
    server = waitress.create_server(
        app.server,
        opened,
        sockets=[listening],
        threads=THREADS,
        ident="tracekit",
        max_request_body_size=MAX_BODY_BYTES,  # refused before it is written to a temporary file
        connection_limit=2 * connections.MAX_CONNECTIONS,  # never reached: it would stop accepting
        channel_timeout=120,  # seconds after which a connection that is not used is closed
        cleanup_interval=5,
    )
    port = listening.getsockname()[1]
    server.channel_class = connections.connection_opener(
        lambda headers: security.may_send(headers, token, port)
    )
    address = f"http://{_url_host(host)}:{port}/" + (f"?token={token}" if token else "")
    on_ready(address)
    if open_browser:
        threading.Thread(target=webbrowser.open, args=(address,), daemon=True).start()
    try:
        # Not `server.run`, which swallows KeyboardInterrupt. A signal that arrives just before the loop
        # waits is noticed after the timeout.
        wasyncore.loop(timeout=0.5, use_poll=True, map=opened)
    finally:
        logging.getLogger("waitress").disabled = True  # responses cut off by the shutdown are not errors
        wasyncore.close_all(opened, ignore_all=True)
        app.server.extensions[routes.KEY].close()


def _bind(host: str, port: int) -> socket.socket:
    """Bind a socket; prefer IPv4 for a name with addresses of both versions."""
    try:
        candidates = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
        family, _, _, _, address = min(candidates, key=lambda candidate: candidate[0] != socket.AF_INET)
        listening = socket.socket(family, socket.SOCK_STREAM)
        try:
            listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            listening.bind(address)
        except OSError:
            listening.close()
            raise
    except OSError as error:
        running = f"if a dashboard is already running, open http://{_url_host(host)}:{port}/; otherwise "
        raise UnusableInputError(
            f"cannot listen on {_bracket(host)}:{port}: {error.strerror or error}",
            hint=f"{running if error.errno == errno.EADDRINUSE else ''}"
            "choose another port with --port (0 picks a free one)",
        ) from error
    return listening


def _url_host(host: str) -> str:
    """Return the host for a URL; the machine's name for a wildcard address."""
    return socket.gethostname() if host in {"0.0.0.0", "::"} else _bracket(host)  # noqa: S104


def _bracket(host: str) -> str:
    return f"[{host}]" if ":" in host else host
