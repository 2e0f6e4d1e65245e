"""Start computing a page's first results when its address is requested.

The browser spends about a second loading scripts before it asks for the first block.
"""

from __future__ import annotations

import logging
import threading

from flask import Flask, request

from tracekit.errors import TracekitError

from .site import Site, View

_LOG = logging.getLogger(__name__)
NAME = "tracekit-prefetch"
"""Name of the prefetch thread; at most one runs at a time."""


def connect(site: Site) -> None:
    """Prefetch for each page that a browser opens; install after the request checks."""
    server: Flask = site.app.server
    free = threading.Lock()

    @server.before_request
    def prefetch() -> None:
        if "text/html" not in request.headers.get("Accept", "") or request.method != "GET":
            return
        view = View.parse(request.path, request.query_string.decode(errors="replace"))
        if view.page in site.pages and free.acquire(blocking=False):
            threading.Thread(target=_work, args=(site, view, free), name=NAME, daemon=True).start()


def _work(site: Site, view: View, free: threading.Lock) -> None:
    try:
        prefetch(site, view)
    except TracekitError:
        pass  # the page shows the error
    except Exception:
        _LOG.exception("prefetch for page %s failed", view.page)
    finally:
        free.release()


def prefetch(site: Site, view: View) -> None:
    """Compute the results that a page shows first, if its run exists.

    Raises:
        PluginError: An analysis failed.
        UnusableInputError: The device of the peaks is not listed.
    """
    page, context = site.pages[view.page], site.context(view, dark=False)
    if context.chosen is not None:
        for name in page.prefetch or page.covers:
            context.result(name)
