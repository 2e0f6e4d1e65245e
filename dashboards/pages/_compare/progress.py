"""Progress of a running comparison, polled by the page."""

from __future__ import annotations

from typing import TYPE_CHECKING

from flask import jsonify, request

from tracekit.errors import TracekitError

from ...view import View
from .asked import STAGES, requested

if TYPE_CHECKING:
    from flask import Response

    from ...site import Site


def connect(site: Site) -> None:
    """Register the progress route."""

    def progress() -> Response:
        view = View.parse("/compare", request.query_string.decode("utf-8", "replace"))
        context = site.context(view, dark=False)
        try:
            one = requested(context) if context.chosen else None
        except TracekitError:
            one = None
        text = STAGES.of(one.without_analyses, one.by_op) if one else ""
        return jsonify(text=text, ended=one is None or (not text and STAGES.ended(one.by_op)))

    site.app.server.add_url_rule("/progress/compare", "progress_compare", progress)
