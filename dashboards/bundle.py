"""Scripts and styles of the frame: few files that a browser keeps, compressed once.

Dash names each file of its packages and of `assets` in the page, 77 in all. Files in a row are served as one
here, except libraries that load further files from beside themselves.
"""

from __future__ import annotations

import gzip
import hashlib
import html
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from itertools import groupby
from typing import Any

from dash import Dash
from flask import Flask, Response, abort, request

_SOURCE = re.compile(r'(?:src|href)="([^"]+)"')
_FURTHER = b"currentScript"
"""Occurs in libraries that load further files from where they are themselves."""
_ALONE = "dash-renderer"
"""Script that Dash looks for in the page."""
_UNUSED = "/dash_table/"
_LATER = "/dash_ag_grid/dash_ag_grid"
"""Library that `assets/grid_library.js` loads when it is needed."""
_LATER_LINK = '<link id="grid-library" rel="prefetch" href="{}">'
_FOLDER = "/bundle/"
_KEPT = "public, max-age=31536000, immutable"
STATIC = (_FOLDER, "/_dash-component-suites/")
"""Begins of paths of files that do not change."""
_MIN_BYTES = 1 << 10
_TYPES = {"js": "text/javascript", "css": "text/css"}


@dataclass
class Bundles:
    """Files joined, by their name, which is that of their content."""

    server: Flask
    files: dict[str, bytes] = field(default_factory=dict)
    compressed: dict[str, bytes] = field(default_factory=dict)  # by address
    tags: dict[str, str] = field(default_factory=dict)  # by the tags that they replace

    def replace(self, tags: str, kind: str, template: str) -> str:
        """Return tags that load the same as these.

        Args:
            tags: Tags, each with an address.
            kind: Ending of the files, `js` or `css`.
            template: A tag, with `{}` for the address.
        """
        if tags not in self.tags:
            addresses = [html.unescape(found) for found in _SOURCE.findall(tags) if _UNUSED not in found]
            later = [html.escape(address) for address in addresses if _LATER in address]
            joined = self._join([address for address in addresses if _LATER not in address], kind)
            self.tags[tags] = "\n".join([*map(template.format, joined), *map(_LATER_LINK.format, later)])
        return self.tags[tags]

    def _join(self, addresses: list[str], kind: str) -> Iterator[str]:
        contents = [(address, self._read(address)) for address in addresses]
        for is_single, group in groupby(contents, key=lambda file: _ALONE in file[0] or _FURTHER in file[1]):
            files = list(group)
            if is_single:
                yield from (address for address, _ in files)
                continue
            # The first semicolon keeps a directive of the first script from those that follow.
            between = b"\n;\n" if kind == "js" else b"\n"
            joined = between.join([b"", *(content for _, content in files)])
            name = f"{hashlib.sha256(joined).hexdigest()[:16]}.{kind}"
            self.files[name] = joined
            yield f"{_FOLDER}{name}"

    def _read(self, address: str) -> bytes:
        """Return the content of an address, for which no browser asks."""
        with self.server.test_request_context(address):
            response = self.server.make_response(self.server.dispatch_request())
            response.direct_passthrough = False
            content: bytes = response.get_data()
            response.close()
            return content

    def serve(self, name: str) -> Response:
        """Return joined files."""
        if name not in self.files:
            abort(404)
        response = Response(self.files[name], mimetype=_TYPES[name.rpartition(".")[2]])
        response.headers["Cache-Control"] = _KEPT
        return response

    def compress(self, response: Response) -> Response:
        """Compress a file that does not change, once."""
        if not request.path.startswith(STATIC) or response.status_code != 200:
            return response
        response.vary.add("Accept-Encoding")
        if not request.accept_encodings.quality("gzip") or response.content_encoding:
            return response
        if request.full_path not in self.compressed:
            content = response.get_data()
            if len(content) < _MIN_BYTES:
                return response
            self.compressed[request.full_path] = gzip.compress(content, 6, mtime=0)
        response.set_data(self.compressed[request.full_path])
        response.content_encoding = "gzip"
        return response


class BundledDash(Dash):
    """A Dash app whose page loads few files."""

    def __init__(self, *args: Any, **named: Any) -> None:
        super().__init__(*args, **named)
        self.bundles = Bundles(self.server)
        # the requested page as HTML, for the given styles, which is shown until scripts have drawn it
        self.first: Callable[[str], str] = lambda _: ""
        # the address of what browsers without scripts show in place of the requested page
        self.report: Callable[[], str] = lambda: ""
        self.server.add_url_rule(f"{_FOLDER}<name>", "bundle", self.bundles.serve)
        self.server.after_request(self.bundles.compress)

    def interpolate_index(self, *args: Any, **parts: Any) -> str:
        """Return the page, with joined files in place of each."""
        parts["css"] = self.bundles.replace(parts["css"], "css", '<link rel="stylesheet" href="{}">')
        parts["scripts"] = self.bundles.replace(parts["scripts"], "js", '<script src="{}"></script>')
        if address := html.escape(self.report()):
            refresh = f'<meta http-equiv="refresh" content="0; url={address}">'
            parts["metas"] += f"<noscript>{refresh}</noscript>"
        parts["app_entry"] += self.first(parts["css"])
        page: str = super().interpolate_index(*args, **parts)
        return page
