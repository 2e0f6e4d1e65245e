"""Requests to a running dashboard: every route and callback, with hostile paths, headers and bodies."""

from __future__ import annotations

import atexit
import http.client
import json
import logging
import queue
import re
import shutil
import socket
import tempfile
import threading
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import quote, urlsplit

from tracekit.dashboards import app, security
from tracekit.dashboards.security import UPDATE_PATH

from fuzz.case import Case
from fuzz.checks import DefectError
from fuzz.damage import damage
from fuzz.edge_values import INTEGERS, TEXTS
from fuzz.json_document import change_document, to_json
from fuzz.readers.store import RUN, made_files
from tracekit.runs.store import Store

if TYPE_CHECKING:
    from random import Random

_SECRET = "canary-" + "7d1f0c"
_DAMAGED = "damaged"
_ANSWER_S = 60.0
"""Seconds that a request may take; more than the limit of an input, so that it is found as a hang."""
_DAMAGED_S = 0.25
"""Seconds to wait for an answer to a damaged request, which may be incomplete."""
_ALLOWED = (501, 503)
"""Statuses of refusals of the server itself."""
_WORDS = (b"\r\n", b"%00", b"%0d%0a", b"//", b"\\", b"\x00", b"HTTP/9.9", b"Content-Length: -1\r\n", b"\xff")
_PATHS = (
    "//evil",
    "/%09/evil",
    "/\\evil",
    "/%2e%2e/%2e%2e/secret.txt",
    "/assets/%00",
    "/_dash-layout",
    "/_favicon.ico",
)
_NAMES = (
    RUN,
    "latest",
    "..",
    "../secret.txt",
    "%2e%2e",
    "ops",
    "kernels",
    "timeline",
    "device_intervals",
    "0",
    "-1",
)
_QUERY = (
    "run",
    "base",
    "rank",
    "device",
    "from",
    "to",
    "row",
    "peaks",
    "token",
    "name",
    "size",
    "more",
    "id",
    "text",
)
_HEADERS = (
    "Origin: http://[::1",
    "Origin: null",
    "Origin: http://evil",
    "Host: evil",
    "Host: [::1",
    "Cookie: a=\xff; ;=",
    "Accept: text/html",
    "Accept: */*;q=x",
    "Range: bytes=-1",
    'If-None-Match: "x',
    "If-Modified-Since: never",
    "Sec-Fetch-Site: cross-site",
    "X-Forwarded-Host: evil",
    "Authorization: Basic !",
    "Accept-Encoding: gzip, x",
    "Transfer-Encoding: chunked",
    "Content-Type: text/plain",
    "Upgrade: websocket",
)


class _Logged(logging.Handler):
    """Tracebacks in the log."""

    def __init__(self) -> None:
        super().__init__(logging.ERROR)
        self.found: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        error = record.exc_info[1] if record.exc_info else None
        self.found.append(f"{record.getMessage()[:200]}: {error!r:.200}")


class _Server:
    """A dashboard in a thread, on a store with one run, beside a file that it must not read."""

    def __init__(self) -> None:
        self.folder = Path(tempfile.mkdtemp(prefix="tracekit-fuzz-"))
        atexit.register(shutil.rmtree, self.folder, ignore_errors=True)
        (self.folder / "secret.txt").write_text(_SECRET)
        self.store = Store(self.folder / "store")
        self.restore()
        self.logged = _Logged()
        logging.getLogger().addHandler(self.logged)
        ready: queue.Queue[str] = queue.Queue()
        options = {"host": "127.0.0.1", "port": 0, "on_ready": ready.put}
        threading.Thread(target=app.serve, args=(self.store,), kwargs=options, daemon=True).start()
        self.port = int(urlsplit(ready.get(timeout=_ANSWER_S)).port or 0)

    def restore(self) -> None:
        """Write the run again if a request has deleted it."""
        run = self.folder / "store" / RUN
        if not run.exists():
            Case(files=made_files(1), main="").write(run)


@cache
def _server() -> _Server:
    return _Server()


@cache
def _known() -> tuple[tuple[str, ...], dict[str, Any]]:
    """Rules and callbacks of the app."""
    with tempfile.TemporaryDirectory() as name:
        made = app.create_app(Store(Path(name)))
        made._setup_server()  # registers the callbacks
        rules = sorted({rule.rule for rule in made.server.url_map.iter_rules()})
        callbacks = {key: one for key, one in made.callback_map.items() if "callback" in one}
    return tuple(rules), dict(sorted(callbacks.items()))


def make(random: Random) -> Case:
    """Make a request."""
    rules, _ = _known()
    body, path = (
        b"",
        random.choice(
            (*rules, *_PATHS, UPDATE_PATH, UPDATE_PATH, UPDATE_PATH, UPDATE_PATH, UPDATE_PATH, "/import")
        ),
    )
    path = re.sub(r"<[^>]*>", lambda _: _text(random, _NAMES), path)
    method = random.choice(("GET", "GET", "GET", "HEAD", "POST", "PUT", "DELETE", "OPTIONS", "BREW"))
    lines = ["Host: 127.0.0.1"]
    if path == UPDATE_PATH:
        method, body = "POST", make_callback(random)
        lines.append("Content-Type: application/json")
    elif path == "/import/samples":
        method = "GET"  # an import takes long, and is not what is fuzzed
    elif path == "/import" and method == "POST":
        body, path = random.randbytes(random.randrange(100)), "/import?more=1&name=x"
    if random.random() < 0.6:
        pairs = [f"{random.choice(_QUERY)}={_text(random, _NAMES)}" for _ in range(random.randint(1, 4))]
        path += ("&" if "?" in path else "?") + "&".join(pairs)
    lines += random.sample(_HEADERS, random.choice((0, 0, 0, 1, 2)))
    if body or method != "GET":
        lines.append(f"Content-Length: {len(body)}")
    head = "\r\n".join([f"{method} {path} HTTP/1.1", *lines, "Connection: close", "", ""])
    request = head.encode("utf-8", "surrogatepass") + body
    is_damaged = random.random() < 0.15
    if is_damaged:
        request = damage(random, request, _WORDS)
    chunked = b"Transfer-Encoding" in request  # its body is malformed, and may be waited for
    return Case(
        files={"request": request}, main="request", words=(_DAMAGED,) if is_damaged or chunked else ()
    )


def _text(random: Random, names: tuple[str, ...]) -> str:
    if random.random() < 0.7:
        return random.choice(names)
    return quote(random.choice((*TEXTS, *map(str, INTEGERS))), safe=random.choice(("", "/")))


def make_callback(random: Random) -> bytes:
    """Make the body of a callback, most often with some values changed."""
    output, callback = random.choice([*_known()[1].items()])
    outputs = callback["output"]
    slots = [_slot(one.to_dict()) for one in (outputs if isinstance(outputs, list) else [outputs])]
    body = {
        "output": output,
        "outputs": slots if isinstance(outputs, list) else slots[0],
        "inputs": [_slot(one) | {"value": _value(random, one)} for one in callback["inputs"]],
        "state": [_slot(one) | {"value": _value(random, one)} for one in callback["state"]],
        "changedPropIds": [],
    }
    if random.random() < 0.5:
        body = change_document(random, body, random.choice((1, 1, 2)))
    return to_json(body).encode("utf-8", "surrogatepass")


def _slot(one: dict[str, Any]) -> dict[str, Any]:
    component = one["id"]
    if isinstance(component, str) and component.startswith("{"):
        component = {
            key: "ops" if isinstance(value, list) else value for key, value in json.loads(component).items()
        }
        component |= {"run": RUN} if "run" in component else {}
    return {"id": component, "property": one["property"].partition("@")[0]}


def _value(random: Random, one: dict[str, Any]) -> Any:
    """Return a value as a page sends it, or any."""
    rows = [{"run": random.choice(_NAMES)}]
    usual = {
        "view": {
            "path": random.choice(("/ops", "/", "/timeline", "/compare", None)),
            "search": f"?run={RUN}",
        },
        "n_clicks": random.choice((None, 1)),
        "n_intervals": 3,
        "selectedRows": random.choice((None, rows)),
        "getRowsRequest": {
            "startRow": 0,
            "endRow": random.choice(INTEGERS),
            "sortModel": [],
            "filterModel": {},
        },
        "clickData": {"points": [{"customdata": random.choice(_PATHS)}]},
        "id": _slot(one)["id"],
        "data": None,
        "pathname": "/ops",
        "search": f"?run={RUN}&base={random.choice(_NAMES)}",
    }
    value = usual.get(one["id"], usual.get(one["property"], random.choice(_NAMES)))
    return value if random.random() < 0.8 else random.choice((*TEXTS, *INTEGERS, None, [], {}, [rows], 1.5))


def read(case: Case, folder: Path) -> bool:
    """Send a request; returns whether it was answered with 200.

    Raises:
        DefectError: The answer is an error of the server, tells a secret or leads elsewhere, or is missing.
    """
    server, request = _server(), case.write(folder).read_bytes()
    server.restore()
    del server.logged.found[:]
    answer = _sent(server.port, request, _DAMAGED_S if _DAMAGED in case.words else _ANSWER_S)
    if answer is None and _DAMAGED not in case.words:
        raise DefectError("no answer")
    if answer is not None:
        _check(*answer)
        _forget(server, answer[2])
    if server.logged.found:
        raise DefectError(f"logged: {server.logged.found[0]}")
    left = sorted(entry.name for entry in server.folder.iterdir())
    if left != ["secret.txt", "store"] or (server.folder / "secret.txt").read_text() != _SECRET:
        raise DefectError(f"written outside of the store: {left}")
    return answer is not None and answer[0] == http.HTTPStatus.OK


def _sent(port: int, request: bytes, seconds: float) -> tuple[int, http.client.HTTPMessage, bytes] | None:
    """Return status, headers and body of the answer; None if there is none in time."""
    with socket.create_connection(("127.0.0.1", port), timeout=_ANSWER_S) as connection:
        try:
            connection.sendall(request)
            connection.settimeout(seconds)
            answer = http.client.HTTPResponse(connection, method=request.split(b" ")[0].decode("latin-1"))
            with answer:
                answer.begin()
                return answer.status, answer.headers, answer.read()
        except (OSError, http.client.HTTPException):
            return None


def _check(status: int, headers: http.client.HTTPMessage, body: bytes) -> None:
    if status >= http.HTTPStatus.INTERNAL_SERVER_ERROR and status not in _ALLOWED:
        raise DefectError(f"status {status}: {body[:200]!r}")
    if _SECRET.encode() in body or b"root:x:0" in body or b"Traceback (most recent" in body:
        raise DefectError("the answer tells a file of the machine, or a traceback")
    location = headers.get("Location")
    if location is not None and not re.fullmatch(
        r"(?:http://127\.0\.0\.1)?/(?![/\\])[^\\\x00-\x20]*", location
    ):
        raise DefectError(f"leads to {location!r}")
    missing = [name for name in security.HEADERS if name not in headers]
    if missing:
        raise DefectError(f"status {status} without {missing}")


def _forget(server: _Server, body: bytes) -> None:
    """Cancel an import that the request has begun, as few may be pending."""
    found = re.search(rb'"id":\s*"([\w.-]+)"', body) if b'"phase"' in body else None
    for _ in range(2 if found else 0):  # a cancelled one is forgotten
        line = f"DELETE /import/{found[1].decode() if found else ''} HTTP/1.1\r\nHost: 127.0.0.1"
        _sent(server.port, f"{line}\r\nConnection: close\r\n\r\n".encode(), _ANSWER_S)
