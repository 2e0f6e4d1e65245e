"""What a comparison computes now, for a script of the page that asks while it waits."""

from __future__ import annotations

from typing import TYPE_CHECKING

from flask import jsonify, request

from tracekit.errors import TracekitError

from ...view import View
from .asked import STAGES, asked

if TYPE_CHECKING:
    from flask import Response

    from ...site import Site


def connect(site: Site) -> None:
    """The address that is asked."""

    def progress() -> Response:
        view = View.parse("/compare", request.query_string.decode("utf-8", "replace"))
        context = site.context(view, dark=False)
        try:
            one = asked(context) if context.chosen else None
        except TracekitError:
            one = None
        text = STAGES.of(one.quickly, one.wholly) if one else ""
        return jsonify(text=text, ended=one is None or (not text and STAGES.ended(one.wholly)))

    site.app.server.add_url_rule("/progress/compare", "progress_compare", progress)
