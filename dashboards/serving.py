"""Serving the dashboard with waitress until it is interrupted."""

from __future__ import annotations

import errno
import ipaddress
import logging
import secrets
import socket
import threading
import webbrowser
from typing import TYPE_CHECKING

import waitress
from waitress.channel import HTTPChannel
from waitress.task import ErrorTask

from tracekit.errors import UnusableInputError

from .app import UPLOAD_LIMIT, create_app
from .security import BARE_POLICY, HEADERS, LARGEST_BODY, LOOPBACK

if TYPE_CHECKING:
    from collections.abc import Callable

    from tracekit.store import Store

THREADS = 8


class _Refusal(ErrorTask):  # type: ignore[misc]
    """What waitress answers before the app is asked: a malformed or too large request."""

    def execute(self) -> None:
        policy = {"Content-Security-Policy": BARE_POLICY}
        self.response_headers.extend((HEADERS | policy).items())
        super().execute()


class _Channel(HTTPChannel):  # type: ignore[misc]
    error_task_class = _Refusal


def serve(
    store: Store,
    *,
    host: str,
    port: int,
    tell: Callable[[str], None],
    open_browser: bool = False,
    upload_limit: int = UPLOAD_LIMIT,
) -> None:
    """Serve a store's dashboard until interrupted: the KeyboardInterrupt or SystemExit goes on to the caller.

    Args:
        store: The runs.
        host: Address to listen on; beyond this machine, a token guards it.
        port: Port to listen on; 0 takes a free one.
        tell: Told the address once the port is open.
        open_browser: Whether to show it in the person's browser.
        upload_limit: Bytes of traces that one import in the browser may send.

    Raises:
        UnusableInputError: The address cannot be listened on.
    """
    token = "" if _is_loopback(host) else secrets.token_urlsafe(16)
    hosts = () if token else (*LOOPBACK, host)
    listening = _bound(host, port)
    logging.getLogger("waitress.queue").setLevel(logging.ERROR)  # a page that waits its turn is no warning
    app = create_app(store, hosts=hosts, token=token, upload_limit=upload_limit)
    server = waitress.create_server(
        app.server,
        sockets=[listening],
        threads=THREADS,
        ident="tracekit",
        max_request_body_size=LARGEST_BODY,  # refused before it is written to a temporary file
    )
    server.channel_class = _Channel
    address = f"http://{_named(host)}:{listening.getsockname()[1]}/" + (f"?token={token}" if token else "")
    tell(address)
    if open_browser:
        threading.Thread(target=webbrowser.open, args=(address,), daemon=True).start()
    answering = threading.Thread(target=server.run, daemon=True)  # its loop would swallow an interruption
    answering.start()
    try:
        answering.join()
    finally:
        logging.getLogger("waitress").disabled = True  # an answer that is cut off now is no error
        server.close()


def _bound(host: str, port: int) -> socket.socket:
    """A socket at the address; a name that has addresses of both kinds gives the older."""
    try:
        found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
        family, _, _, _, address = min(found, key=lambda one: one[0] != socket.AF_INET)
        listening = socket.socket(family, socket.SOCK_STREAM)
        try:
            listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            listening.bind(address)
        except OSError:
            listening.close()
            raise
    except OSError as error:
        raise UnusableInputError(
            f"cannot listen on {_bracketed(host)}:{port}: {error.strerror or error}",
            hint=f"{_taken(host, port) if error.errno == errno.EADDRINUSE else ''}"
            "choose another with --port; 0 takes a free one",
        ) from error
    return listening


def _taken(host: str, port: int) -> str:
    return f"a dashboard that runs already would be at http://{_named(host)}:{port}/; else "


def _is_loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def _named(host: str) -> str:
    """The host as an address names it; one that means every interface gives this machine's name."""
    return socket.gethostname() if host in {"0.0.0.0", "::"} else _bracketed(host)  # noqa: S104


def _bracketed(host: str) -> str:
    return f"[{host}]" if ":" in host else host
