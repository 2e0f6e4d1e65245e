"""A server that speaks S3, of moto, on loopback; it notes what is asked of it."""

from __future__ import annotations

import logging
import threading
import warnings
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    Environ = dict[str, Any]
    Start = Callable[..., Any]
    Application = Callable[[Environ, Start], Iterable[bytes]]


@dataclass
class Asked:
    """A request, and the bytes of the body that went back."""

    method: str
    path: str
    bytes: int = 0


@dataclass
class Noting:
    """Hands requests on, and notes each before anything of the answer goes back."""

    application: Application
    asked: list[Asked] = field(default_factory=list)
    before: Callable[[Environ], None] = lambda _: None

    def __call__(self, environ: Environ, start: Start) -> Iterable[bytes]:
        self.before(environ)
        one = Asked(environ["REQUEST_METHOD"], environ["PATH_INFO"])
        self.asked.append(one)
        for piece in self.application(environ, start):
            one.bytes += len(piece) if one.method != "HEAD" else 0
            yield piece


@dataclass(frozen=True)
class Server:
    """The server, and how it is reached."""

    endpoint: str
    noting: Noting

    def variables(self) -> dict[str, str]:
        """What tells a client in the environment how to reach it."""
        return {
            "AWS_ACCESS_KEY_ID": "someone",
            "AWS_SECRET_ACCESS_KEY": "very-secret",
            "AWS_REGION": "us-east-1",
            "AWS_EC2_METADATA_DISABLED": "true",
            "AWS_ENDPOINT_URL": self.endpoint,
        }

    def begin(self, bucket: str) -> None:
        """Forget everything, and make a bucket."""
        from moto.core import DEFAULT_ACCOUNT_ID
        from moto.s3.models import s3_backends

        s3_backends.reset()
        s3_backends[DEFAULT_ACCOUNT_ID]["aws"].create_bucket(bucket, "us-east-1")

    @contextmanager
    def counting(self) -> Iterator[list[Asked]]:
        """What is asked meanwhile."""
        del self.noting.asked[:]
        yield self.noting.asked


@contextmanager
def serving() -> Iterator[Server]:
    """A server with no bucket, on a port of its own."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of what moto imports
        logging.getLogger("werkzeug").setLevel(logging.WARNING)
        from moto.moto_server.werkzeug_app import DomainDispatcherApplication, create_backend_app
        from werkzeug.serving import make_server

        noting = Noting(DomainDispatcherApplication(create_backend_app))
        server = make_server("127.0.0.1", 0, noting, threaded=True)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield Server(f"http://127.0.0.1:{server.server_port}", noting)
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
