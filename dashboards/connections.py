"""Bounds on connections to the dashboard: few from one address, none that waits for long.

waitress closes idle connections after a while, and accepts no more while it has its maximum: clients that
open many and send nothing lock out everyone else. Here, a new connection closes the one that has waited
longest, requests have deadlines, and bodies are received only from clients that may send them.
"""

from __future__ import annotations

import socket
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Any

from waitress.channel import HTTPChannel
from waitress.parser import HTTPRequestParser
from waitress.task import ErrorTask
from waitress.utilities import Error

from .security import BARE_POLICY, HEADERS, MAX_BODY_BYTES, is_loopback

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
