"""Create the Dash app of a store, and serve it within bounds: few connections of one client, none that waits.

waitress closes idle connections after a while, and accepts no more while it has its maximum: clients that
open many and send nothing lock out everyone else. Here, a new connection closes the one that has waited
longest, requests have deadlines, and bodies are received only from clients that may send them.
"""

from __future__ import annotations

import errno
import gc
import logging
import os
import secrets
import socket
import threading
import time
import webbrowser
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import waitress
from waitress import wasyncore
from waitress.channel import HTTPChannel
from waitress.parser import HTTPRequestParser
from waitress.task import ErrorTask
from waitress.utilities import Error

from tracekit.analysis import order_by_facts
from tracekit.analysis.cache import ResultCache
from tracekit.analysis.findings import advise_cached, find_advice
from tracekit.errors import TracekitError, UnusableInputError
from tracekit.runs.run import Run
from tracekit.runs.store import Store
from tracekit.storage import Place

from . import blocks, security, shell
from .analysis_pages.pages import load_pages
from .bundle import BundledDash
from .exports import downloads
from .imports import routes
from .pages.overview.findings import FOR_VERDICT, find_job, in_order
from .security import BARE_POLICY, HEADERS, MAX_BODY_BYTES, is_loopback
from .site import Results, Site, View
from .tables import table

UPLOAD_LIMIT = 4 << 30


def create_app(
    store: Store,
    *,
    hosts: tuple[str, ...] = security.LOOPBACK,
    token: str = "",
    upload_limit: int = UPLOAD_LIMIT,
) -> BundledDash:
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
    app = BundledDash(
        "tracekit.dashboards",
        title="tracekit",
        update_title="",
        suppress_callback_exceptions=True,  # blocks exist only on their pages
        compress=False,  # of what does not change, `bundle` keeps it compressed
        serve_locally=True,
        assets_ignore=r"early\.js$",  # loaded by the frame before first paint
        index_string=shell.INDEX,
    )
    cache = ResultCache(store)
    ahead = app.server.extensions[AHEAD] = Ahead(cache)
    results = Results(analyze=cache.analyze, advise=partial(find_advice, cache), read_notes=cache.read_notes)
    site = Site(app=app, store=store, pages=load_pages(), results=results)
    app.renderer = "tracekitArrived();"  # of the page, after its scripts or before
    app.first, app.report = partial(blocks.first_page, site), partial(downloads.report_address, site)
    app.layout = shell.shell(site.pages)
    shell.connect(site)
    shell.connect_pickers(site)
    routes.connect(site, limit=upload_limit, on_run=lambda run: _start_findings(site, run))
    blocks.connect(site)
    table.connect(site)
    downloads.connect(site)
    for shown in site.pages.values():
        if shown.connect:
            shown.connect(site)
    app.server.add_url_rule(security.HEALTH, "healthz", lambda: ("ok", 200, {"Content-Type": "text/plain"}))
    security.restrict_access(app, hosts=hosts, token=token)
    blocks.connect_prefetch(site, also=ahead.begin)
    return app


def _start_findings(site: Site, run: str) -> None:
    """Compute the findings of an imported run, before its first page is opened."""
    with suppress(TracekitError):  # it was deleted
        find_job(site.context(View(page="overview", run=run), dark=False))


AHEAD = "tracekit_ahead"
"""Name of the app's `Ahead` among the extensions of its server."""
LOW_PRIORITY = 4
"""Niceness of processes that compute results ahead, which have 40% of the time of others on a busy core.

With 10, a page that needs what they are computing waited for it ten times as long as without them.
"""


@dataclass
class Ahead:
    """Processes that compute the results of runs before pages show them.

    They begin with the analyses that findings need last, which a thread of this process computes meanwhile.
    """

    cache: ResultCache
    begun: set[Place] = field(default_factory=set)

    def begin(self, run: Run) -> None:
        """Start a process for a run, once."""
        if run.path not in self.begun:
            self.begun.add(run.path)
            threading.Thread(target=self._follow, args=(run,), name="tracekit-ahead", daemon=True).start()

    def _follow(self, run: Run) -> None:
        names = [loaded.name for loaded in in_order()]
        ahead = partial(self.cache.compute_ahead, forks=False, niceness=LOW_PRIORITY, finish=advise_cached)
        with ahead(run, names) as process:
            if process is not None:
                process.join()

    @contextmanager
    def with_newest(self) -> Iterator[None]:
        """Compute the results of the newest run during the context; enter it before threads are started.

        The processes are forks, which start at once. One begins with what the verdict follows from, which no
        thread computes yet, the other at the other end: nothing else uses the cores before a page is opened.
        The run is not looked for in a store of elsewhere.
        """
        store, first = self.cache.store, FOR_VERDICT[::-1]
        others = order_by_facts([loaded for loaded in in_order() if loaded.name not in first])
        names = [*(loaded.name for loaded in others[::-1]), *first]
        with ExitStack() as stack:
            with suppress(TracekitError, OSError, ValueError):  # there is none, or it cannot be read
                newest = store.find("latest") if isinstance(store.path, Path) else None
                if newest:
                    begin = partial(self.cache.compute_ahead, newest, niceness=LOW_PRIORITY)
                    if stack.enter_context(begin(names, finish=advise_cached)):
                        self.begun.add(newest.path)
                        stack.enter_context(begin(names[::-1]))
            yield


THREADS = 8


def serve(
    store: Store,
    *,
    host: str,
    port: int,
    on_ready: Callable[[str], None],
    open_browser: bool = False,
    upload_limit: int = UPLOAD_LIMIT,
    page: str = "",
) -> None:
    """Serve a store's dashboard until interrupted; KeyboardInterrupt and SystemExit propagate.

    Args:
        store: The runs.
        host: Address to listen on; other than loopback requires a token.
        port: Port to listen on; 0 picks a free one.
        on_ready: Called with the address once the port is open.
        open_browser: Whether to open it in the default browser.
        upload_limit: Maximum bytes of all uploads that have not been imported.
        page: Path and query of the page that the address is of; the start page by default.

    Raises:
        UnusableInputError: The address cannot be listened on.
    """
    token = "" if is_loopback(host) else secrets.token_urlsafe(16)
    hosts = () if token else (*security.LOOPBACK, host)
    listening = _bind(host, port)
    logging.getLogger("waitress.queue").setLevel(logging.ERROR)  # queued requests are normal
    app = create_app(store, hosts=hosts, token=token, upload_limit=upload_limit)
    gc.freeze()  # what is loaded now stays: a full collection of it takes 0.1 s, while no page is answered
    os.register_at_fork(after_in_child=listening.close)
    with app.server.extensions[AHEAD].with_newest():
        app.prepare()
        opened: dict[int, object] = {}
        server = waitress.create_server(
            app.server,
            opened,
            sockets=[listening],
            threads=THREADS,
            ident="tracekit",
            max_request_body_size=MAX_BODY_BYTES,  # refused before it is written to a temporary file
            connection_limit=2 * MAX_CONNECTIONS,  # never reached: it would stop accepting
            channel_timeout=120,  # seconds after which a connection that is not used is closed
            cleanup_interval=5,
        )
        port = listening.getsockname()[1]
        server.channel_class = connection_opener(lambda headers: security.may_send(headers, token, port))
        shown = f"{'&' if '?' in page else '?'}token={token}" if token else ""
        address = f"http://{_url_host(host)}:{port}/{page}{shown}"
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


MAX_CONNECTIONS = 256
"""Maximum connections; below the usual limit of 1,024 open files."""
MAX_PER_ADDRESS = 64
"""Maximum connections of one address of another machine. A browser uses 6.

On this machine, a proxy opens those of all its clients, for HTTP/2 many at once.
"""
MAX_RECEIVED_BYTES = 8 * MAX_BODY_BYTES
"""Maximum bytes of all bodies that are being received, which waitress keeps in temporary files."""
HEADER_S = 10
"""Seconds until the header of a request must be complete, from its first byte or from the connection."""
BODY_S = 300
"""Seconds until a request must be complete: 8 MiB, the size of a slice, at 30 KiB per second."""
STALLED_S = 60
"""Seconds without progress after which a client that does not read its response is disconnected."""


class _BodyError(Error):  # type: ignore[misc]
    """Refusal of a body before it is received."""

    def __init__(self, code: int, reason: str, body: str) -> None:
        super().__init__(body)
        self.code, self.reason = code, reason


class _Refusal(ErrorTask):  # type: ignore[misc]
    """Error response of waitress itself, such as for a malformed or too large request."""

    def execute(self) -> None:
        policy = {"Content-Security-Policy": BARE_POLICY}
        self.response_headers.extend((HEADERS | policy).items())
        super().execute()


class _Request(HTTPRequestParser):  # type: ignore[misc]
    """Request whose body is received only if its connection allows it."""

    completed: bool

    def __init__(self, channel: _Channel, adjustments: Any) -> None:
        super().__init__(adjustments)
        self._channel, self.begun_s = channel, time.monotonic()

    @property
    def body_bytes(self) -> int:
        """Bytes of the body, as declared; the maximum if it has no length."""
        return MAX_BODY_BYTES if self.chunked else int(self.content_length)

    def received(self, data: bytes) -> int:
        had_header = self.headers_finished
        consumed: int = super().received(data)
        if self.headers_finished and not had_header and not self.completed:
            self.error = self._channel.refusal(self)
            self.completed = self.error is not None
        self._channel.served |= bool(self.completed)
        return consumed


class _Channel(HTTPChannel):  # type: ignore[misc]
    """Connection with deadlines."""

    error_task_class = _Refusal
    will_close: bool

    def __init__(self, *args: Any, may_send: Callable[[Mapping[str, str]], bool], **named: Any) -> None:
        self._may_send, self.served = may_send, False
        self._opened_s = self._sent_s = time.monotonic()
        self.parser_class = lambda adjustments: _Request(self, adjustments)
        super().__init__(*args, **named)

    def refusal(self, request: _Request) -> _BodyError | None:
        """Return why the body of a request is not received; None if it is."""
        if not self._may_send(request.headers):
            return _BodyError(401, "Unauthorized", "open the address with the access token first")
        channels = list(self.server.active_channels.values())
        receiving = [channel.request for channel in channels if channel is not self]
        total = sum(other.body_bytes for other in receiving if other is not None and other.headers_finished)
        if total + request.body_bytes > MAX_RECEIVED_BYTES:
            return _BodyError(503, "Service Unavailable", "too many uploads at once; try again later")
        return None

    @property
    def is_waiting(self) -> bool:
        """Whether the connection is idle or its header is incomplete."""
        receives = self.request is not None and self.request.headers_finished
        return not (self.requests or self.total_outbufs_len or receives)

    def writable(self) -> bool:
        """Return whether there is something to write; asked in each turn of the loop, as deadlines are."""
        now_s = time.monotonic()
        if not self.total_outbufs_len:
            self._sent_s = now_s
        if self.will_close or self._is_late(now_s):
            self.will_close = True
            with suppress(OSError):  # waitress closes what can be written, which a full buffer cannot
                self.socket.shutdown(socket.SHUT_RDWR)
        return bool(super().writable())

    def handle_write(self) -> None:
        """Write: the client has read, or the buffer of the system is not full."""
        self._sent_s = time.monotonic()
        super().handle_write()

    def _is_late(self, now_s: float) -> bool:
        if self.total_outbufs_len:
            return now_s - self._sent_s > STALLED_S
        if self.requests:
            return False
        if self.request is None:  # waitress closes idle connections that have been used
            return not self.served and now_s - self._opened_s > HEADER_S
        return now_s - self.request.begun_s > (BODY_S if self.request.headers_finished else HEADER_S)


def connection_opener(may_send: Callable[[Mapping[str, str]], bool]) -> Callable[..., _Channel | None]:
    """Return a function that opens a connection of waitress, in place of its class.

    `may_send` says whether a client with these headers (in capitals, with underscores) may send a body.
    """

    def admit(
        server: Any, client: socket.socket, address: Any, adjustments: Any, **named: Any
    ) -> _Channel | None:
        channels = [channel for channel in server.active_channels.values() if not channel.will_close]
        of_address = [channel for channel in channels if channel.addr[0] == address[0]]
        is_full = len(channels) >= MAX_CONNECTIONS
        if is_full or (len(of_address) >= MAX_PER_ADDRESS and not is_loopback(address[0])):
            waiting = [
                candidate for candidate in (channels if is_full else of_address) if candidate.is_waiting
            ]
            if not waiting:
                client.close()
                return None
            min(waiting, key=lambda candidate: candidate.last_activity).will_close = True
        return _Channel(server, client, address, adjustments, may_send=may_send, **named)

    return admit
