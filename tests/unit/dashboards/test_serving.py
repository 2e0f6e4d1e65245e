from __future__ import annotations

import http.client
import os
import queue
import re
import signal
import socket
import subprocess
import sys
import threading
import urllib.request
from contextlib import ExitStack, closing, contextmanager
from functools import partial
from typing import TYPE_CHECKING, Any

import pytest

from tests.environment import HANG_SECONDS
from tests.tiers import thinned
from tracekit.errors import UnusableInputError
from tracekit.runs.store import Store

pytest.importorskip("dash")
pytest.importorskip("waitress")

import waitress
from tracekit.dashboards import app, security
from tracekit.dashboards.imports.import_jobs import FOLDER
from waitress import wasyncore

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

EVERY = "0.0.0.0"  # noqa: S104
TRACEKIT = "from tracekit.cli.main import main; main()"


@contextmanager
def dashboard(
    store: Store, *words: str, session: bool = False
) -> Iterator[tuple[subprocess.Popen[str], str]]:
    """A dashboard of its own process, with the line that it printed."""
    command = [sys.executable, "-c", TRACEKIT, "dashboard", "--store", str(store.path), "--port", "0", *words]
    pipes: dict[str, Any] = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    with subprocess.Popen(command, **pipes, text=True, start_new_session=session) as process:
        assert process.stdout
        try:
            yield process, process.stdout.readline()
        finally:
            process.kill()


def fetched(address: str) -> str:
    with urllib.request.urlopen(address, timeout=HANG_SECONDS) as answer:  # noqa: S310 (our own server)
        text: str = answer.read().decode()
    return text


@pytest.fixture(scope="module")
def local(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Address of a dashboard for this machine, with a slash at its end."""
    with dashboard(Store(tmp_path_factory.mktemp("local") / "store")) as (process, line):
        match = re.search(r"http://127\.0\.0\.1:\d+/", line)
        assert match
        yield match[0]
        process.send_signal(signal.SIGTERM)
        assert "Traceback" not in process.communicate(timeout=HANG_SECONDS)[1]


@pytest.fixture(scope="module")
def public(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The line that a dashboard for other machines prints."""
    with dashboard(Store(tmp_path_factory.mktemp("public") / "store"), "--host", EVERY) as (_, line):
        yield line


@pytest.mark.parametrize(
    ("number", "code"), thinned([(signal.SIGINT, 130), (signal.SIGTERM, 143)], default=[(signal.SIGINT, 130)])
)
def test_it_prints_one_line_and_ends_quietly_without_unfinished_uploads_when_interrupted(
    store: Store, number: signal.Signals, code: int
) -> None:
    with dashboard(store) as (process, line):
        match = re.fullmatch(
            r"tracekit dashboard: (http://127\.0\.0\.1:\d+/) \(press Ctrl-C to stop\)\n", line
        )
        assert match
        assert fetched(match[1] + "healthz") == "ok"
        unfinished = match[1] + "import?name=x&size=99&more=1"
        sent = urllib.request.Request(unfinished, b"part", method="POST")  # noqa: S310
        with urllib.request.urlopen(sent, timeout=HANG_SECONDS) as answer:  # noqa: S310 (our own server)
            assert answer.status == 200
        folder = store.path / FOLDER
        assert list(folder.iterdir())
        process.send_signal(number)
        out, err = process.communicate(timeout=HANG_SECONDS)
        assert not list(folder.iterdir())
    assert (process.returncode, out, err) == (code, "", "")


def test_beyond_this_machine_a_token_is_asked_for(public: str) -> None:
    match = re.search(r"http://[^:/]+:(\d+)/\?token=([\w-]{16,}) ", public)
    assert match
    address = f"http://127.0.0.1:{match[1]}/"
    with pytest.raises(urllib.request.HTTPError, match="401"):  # type: ignore[attr-defined]
        fetched(address)
    assert fetched(address + "healthz") == "ok"


def test_a_port_in_use_is_told_with_what_to_do(store: Store) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        with pytest.raises(UnusableInputError, match=f"127.0.0.1:{port}.*in use") as caught:
            app.serve(store, host="127.0.0.1", port=port, on_ready=print)
    assert f"http://127.0.0.1:{port}/; otherwise choose another port with --port" in caught.value.hint


def test_an_address_of_another_machine_is_told(store: Store) -> None:
    with pytest.raises(UnusableInputError, match="cannot listen on"):
        app.serve(store, host="192.0.2.1", port=0, on_ready=print)


REFUSED = {
    "POST /import?name=x HTTP/1.1\r\nContent-Length: 99999999999": 413,
    "POST /import?name=x HTTP/1.1\r\nContent-Length: -1": 400,
    "GET / HTTP/1.1\r\nX: " + "a" * 300_000: 431,
    "GET /_dash-component-suites/dash/%2e%2e%2fx HTTP/1.1\r\nHost: 127.0.0.1": 404,
    "GET / HTTP/1.1\r\nHost: example.org": 400,
}
"""Requests that are refused, and with which status."""


def test_every_refusal_carries_the_headers(local: str) -> None:
    for request_line, status in REFUSED.items():
        with socket.create_connection(("127.0.0.1", port_of(local)), timeout=HANG_SECONDS) as connection:
            connection.sendall(f"{request_line}\r\nConnection: close\r\n\r\n".encode())
            with closing(http.client.HTTPResponse(connection)) as answer:
                answer.begin()
                headers = answer.headers
            assert answer.status == status, request_line[:80]
        found = {name: headers.get(name) for name in security.HEADERS}
        assert found == security.HEADERS, request_line[:80]
        assert "frame-ancestors 'none'" in headers["Content-Security-Policy"]


def port_of(address: str) -> int:
    return int(address.rstrip("/").rpartition(":")[2])


HALF_OPEN = 500


def test_half_open_connections_lock_nobody_out(local: str) -> None:
    with ExitStack() as opened:
        for number in range(HALF_OPEN):
            half = opened.enter_context(
                socket.create_connection(("127.0.0.1", port_of(local)), timeout=HANG_SECONDS)
            )
            half.sendall(b"GET / HTTP/1.1\r\nHost: 127" * (number % 2))
        assert fetched(local + "healthz") == "ok"
        assert "_dash-config" in fetched(local)


def test_a_header_has_a_deadline(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(app, "HEADER_S", 0.2)
    ready: queue.Queue[str] = queue.Queue()
    started = {"host": "127.0.0.1", "port": 0, "on_ready": ready.put}
    threading.Thread(target=app.serve, args=(store,), kwargs=started, daemon=True).start()
    port = int(ready.get(timeout=HANG_SECONDS).split(":")[2].rstrip("/"))
    with socket.create_connection(("127.0.0.1", port), timeout=HANG_SECONDS) as half:
        half.sendall(b"GET / HTTP/1.1\r\n")
        assert half.recv(1) == b""


REQUEST = b"GET / HTTP/1.1\r\nHost: x\r\n\r\n"


@contextmanager
def answering(answer: Callable[..., list[bytes]]) -> Iterator[tuple[Any, Callable[[], None]]]:
    """A server with the dashboard's connections, and a function that runs its loop once."""
    opened: dict[int, Any] = {}
    server = waitress.create_server(answer, opened, host="127.0.0.1", port=0, threads=1)
    server.channel_class = app.connection_opener(lambda _headers: True)
    try:
        yield server, partial(wasyncore.loop, timeout=0.05, use_poll=True, map=opened, count=1)
    finally:
        server.task_dispatcher.shutdown()
        wasyncore.close_all(opened, ignore_all=True)


def test_a_client_that_does_not_read_is_disconnected(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(app, "STALLED_S", 0.2)
    body = bytes(32 << 20)  # more than the buffers of the system

    def answer(_environ: object, start: Callable[..., object]) -> list[bytes]:
        start("200 OK", [("Content-Length", str(len(body)))])
        return [body]

    with answering(answer) as (server, turn), ExitStack() as opened:
        address = ("127.0.0.1", int(server.effective_port))
        opened.enter_context(socket.create_connection(address, timeout=HANG_SECONDS)).sendall(REQUEST)
        while not server.active_channels:
            turn()
        while server.active_channels:  # else ended by the timeout of tests
            turn()


def test_a_proxy_on_this_machine_opens_many_connections() -> None:
    over = threading.Event()

    def answer(_environ: object, start: Callable[..., object]) -> list[bytes]:
        over.wait()
        start("200 OK", [("Content-Length", "0")])
        return []

    with answering(answer) as (server, turn), ExitStack() as opened:
        opened.callback(over.set)
        address = ("127.0.0.1", int(server.effective_port))
        for number in range(app.MAX_PER_ADDRESS + 1):
            opened.enter_context(socket.create_connection(address, timeout=HANG_SECONDS)).sendall(REQUEST)
            while sum(bool(one.requests) for one in server.active_channels.values()) <= number:
                turn()


def test_a_body_is_received_only_with_the_token(public: str) -> None:
    match = re.search(r":(\d+)/\?token=([\w-]+)", public)
    assert match
    request = f"POST /import?name=x HTTP/1.1\r\nHost: 127.0.0.1:{match[1]}\r\nContent-Length: 1000\r\n"
    with socket.create_connection(("127.0.0.1", int(match[1])), timeout=HANG_SECONDS) as connection:
        connection.sendall(f"{request}\r\n".encode())
        assert b" 401 " in connection.recv(100)


def has_ipv6() -> bool:
    try:
        with socket.socket(socket.AF_INET6) as tried:
            tried.bind(("::1", 0))
    except OSError:
        return False
    return True


@pytest.mark.slow
def test_it_ends_quietly_while_an_import_starts(store: Store) -> None:
    with dashboard(store, session=True) as (process, line):
        match = re.search(r"http://127\.0\.0\.1:\d+/", line)
        assert match
        asked = urllib.request.Request(match[0] + "import/samples", method="POST")  # noqa: S310
        with urllib.request.urlopen(asked, timeout=HANG_SECONDS) as answer:  # noqa: S310 (our own server)
            assert answer.status == 200
        os.killpg(process.pid, signal.SIGINT)  # as a terminal does: every process of the group gets it
        out, err = process.communicate(timeout=HANG_SECONDS)
    assert (process.returncode, out, err) == (130, "", "")


@pytest.mark.slow
@pytest.mark.skipif(not has_ipv6(), reason="this machine has no address ::1")
def test_the_newer_kind_of_address_is_served(store: Store) -> None:
    with dashboard(store, "--host", "::1") as (_, line):
        match = re.search(r"http://\[::1\]:\d+/", line)
        assert match
        assert fetched(match[0] + "healthz") == "ok"
        assert "_dash-config" in fetched(match[0])
