"""Create the Dash app over a store."""

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
    """Create a dashboard over the runs of a store.

    Args:
        store: The runs; new ones appear without a reload.
        hosts: Host names that the server answers to.
        token: Access token; empty for loopback.
        upload_limit: Maximum bytes of one browser import.

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
        suppress_callback_exceptions=True,  # blocks exist only on their pages
        compress=False,
        serve_locally=True,
        assets_ignore=r"early\.js$",  # loaded by the frame before first paint
        index_string=shell.INDEX,
    )
    site = Site(app=app, store=store, pages=registered(), results=Results(analyze=Shelf(store).analyze))
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
