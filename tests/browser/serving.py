"""Serve the app on a free local port, in a thread."""

from __future__ import annotations

import logging
import threading
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING
from urllib.parse import urlencode

from tracekit.dashboards.app import create_app
from werkzeug.serving import make_server

if TYPE_CHECKING:
    import socket
    from collections.abc import Iterator

    from tracekit.runs.store import Store


@dataclass(frozen=True)
class Served:
    """A dashboard that answers.

    Attributes:
        address: As `http://127.0.0.1:PORT`.
        runs: Ids of its runs, by a short name.
    """

    address: str
    runs: dict[str, str] = field(default_factory=dict)

    def url(self, page: str, run: str = "", **words: str | int) -> str:
        """Address of a page on a run, named as in `runs`, with further words of the query."""
        query = urlencode({**({"run": self.runs[run]} if run else {}), **words})
        return f"{self.address}/{page}" + (f"?{query}" if query else "")


@contextmanager
def served(
    store: Store, runs: dict[str, str] | None = None, *, port: socket.socket | None = None
) -> Iterator[Served]:
    """A dashboard over a store.

    Args:
        store: The store.
        runs: Ids of its runs, by a short name.
        port: A socket that listens and that no other server uses meanwhile; a port of its own by default.
    """
    logging.getLogger("werkzeug").setLevel(logging.ERROR)
    listening = None if port is None else port.fileno()
    server = make_server("127.0.0.1", 0, create_app(store).server, threaded=True, fd=listening)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield Served(f"http://127.0.0.1:{server.socket.getsockname()[1]}", runs or {})
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
