"""What a page shows first is begun when its address is asked for, while the browser loads the page's scripts.

A browser takes about a second until it asks for the first block; the server has nothing else to do by then.
"""

from __future__ import annotations

import logging
import threading
from typing import TYPE_CHECKING

from flask import request

from tracekit.errors import TracekitError

from .view import View

if TYPE_CHECKING:
    from flask import Flask

    from .site import Site

_LOG = logging.getLogger(__name__)
NAME = "tracekit-ahead"
"""Name of the thread that works ahead; there is one at a time."""


def connect(site: Site) -> None:
    """Work ahead for each page that a browser opens; after whatever refuses requests."""
    server: Flask = site.app.server
    free = threading.Lock()

    @server.before_request
    def begin() -> None:
        if "text/html" not in request.headers.get("Accept", "") or request.method != "GET":
            return
        view = View.parse(request.path, request.query_string.decode(errors="replace"))
        if view.page in site.pages and free.acquire(blocking=False):
            threading.Thread(target=_work, args=(site, view, free), name=NAME, daemon=True).start()


def _work(site: Site, view: View, free: threading.Lock) -> None:
    try:
        begin(site, view)
    except TracekitError:
        pass  # whoever shows it says why
    except Exception:
        _LOG.exception("working ahead for page %s failed", view.page)
    finally:
        free.release()


def begin(site: Site, view: View) -> None:
    """Have the results computed that a page shows first, if its run is there.

    Raises:
        PluginError: An analysis failed.
    """
    page, run = site.pages[view.page], site.context(view, dark=False).chosen
    if run is not None:
        for name in page.ahead or page.covers:
            site.results.of(run, name)
