"""The app: `create_app(store)` makes a dashboard over a store, ready to be served."""

from __future__ import annotations

from typing import TYPE_CHECKING

from dash import Dash

from tracekit.keeping import Shelf

from . import ahead, blocks, security
from .exports import offers
from .frame import pickers, shell
from .grids import long_rows
from .imports import routes
from .results import Results
from .site import Site, registered

if TYPE_CHECKING:
    from tracekit.store import Store

UPLOAD_LIMIT = 4 << 30


def create_app(
    store: Store,
    *,
    hosts: tuple[str, ...] = security.LOOPBACK,
    token: str = "",
    upload_limit: int = UPLOAD_LIMIT,
) -> Dash:
    """A dashboard over the runs of a store.

    Args:
        store: The runs; those that appear later show up by themselves.
        hosts: Names under which the server may be addressed.
        token: What a browser must show once; empty where only this machine can connect.
        upload_limit: Bytes of traces that one import in the browser may send.

    Returns:
        The app, with every page connected; `app.server` is the WSGI application.

    Example:
        >>> from pathlib import Path
        >>> from tracekit.store import Store
        >>> create_app(Store(Path("no-such-store"))).title
        'tracekit'
    """
    app = Dash(
        "tracekit.dashboards",
        title="tracekit",
        update_title="",
        suppress_callback_exceptions=True,  # blocks come and go with their pages
        compress=False,
        serve_locally=True,
        assets_ignore=r"early\.js$",  # the frame asks for it by itself, before anything is painted
        index_string=shell.INDEX,
    )
    site = Site(app=app, store=store, pages=registered(), results=Results(by=Shelf(store).analyze))
    app.layout = shell.frame(site.pages)
    shell.connect(site)
    pickers.connect(site)
    routes.connect(site, limit=upload_limit)
    blocks.connect(site)
    long_rows.connect(site)
    offers.connect(site)
    for page in site.pages.values():
        if page.connect:
            page.connect(site)
    app.server.add_url_rule(security.HEALTH, "healthz", lambda: ("ok", 200, {"Content-Type": "text/plain"}))
    security.protect(app, hosts=hosts, token=token)
    ahead.connect(site)
    return app
