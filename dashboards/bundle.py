"""Scripts and styles of the frame: few files that a browser keeps, compressed once; and compressed responses.

Dash names each file of its packages and of `assets` in the page, 77 in all. They are served as one here,
except libraries that load further files from beside themselves: those use nothing of the others but React,
so that they can follow.
"""

from __future__ import annotations

import gzip
import hashlib
import html
import json
import logging
import re
import threading
import zlib
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pyarrow as pa
from dash import Dash
from flask import Flask, Response, abort, request, stream_with_context

_LOG = logging.getLogger(__name__)
_SOURCE = re.compile(r'(?:src|href)="([^"]+)"')
_FURTHER = b"currentScript"  # occurs in libraries that load further files from where they are themselves
_ASKED = b"window.tracekitDependencies = "
"""Begin of what is said of all callbacks, for which Dash's renderer asks first of all."""
_ALONE = "dash-renderer"  # script that Dash looks for in the page
_UNUSED = ("/dash_table/", "/deps/polyfill@")
"""What no page needs: another table, and features of languages that every browser with these styles has."""
_LATER = "/dash_ag_grid/dash_ag_grid"  # library that `assets/grid_library.js` loads when it is needed
_LATER_LINK = '<link id="grid-library" rel="prefetch" href="{}">'
PLOTLY_FOLDER = Path(__file__).parent / "assets"
"""Folder of the part of Plotly for Cartesian traces, as its authors publish it (MIT license)."""
_PLOTLY_NAME = re.compile(r"plotly-[a-z]+-[0-9.]+\.min\.js")
_FOLDER = "/bundle/"
_KEPT = "public, max-age=31536000, immutable"
STATIC = (_FOLDER, "/_dash-component-suites/")
"""Begins of paths of files that do not change."""
_MIN_BYTES = 1 << 10
_KEPT_LEVELS = {"br": 7, "gzip": 6}
"""Levels for what is compressed once; each further one of Brotli costs seconds."""
_LEVELS = {"br": 4, "gzip": 1}  # levels for other responses: about 10 ms per MB
_STREAM_LEVEL = 6  # level of gzip for pages, which are sent in pieces
_PLACE = "<!-- first -->"  # mark in the index of where the requested page is
_TEXTS = {"application/json", "image/svg+xml", "text/css", "text/html", "text/javascript", "text/plain"}
_TYPES = {"js": "text/javascript", "css": "text/css"}


@dataclass
class Bundles:
    """Files joined, by their name, which is that of their content."""

    server: Flask
    files: dict[str, bytes] = field(default_factory=dict)
    compressed: dict[tuple[str, str], bytes] = field(default_factory=dict)  # by address and encoding
    tags: dict[str, str] = field(default_factory=dict)  # by the tags that they replace

    def replace(self, tags: str, kind: str, template: str) -> str:
        """Return tags that load the same as these.

        Args:
            tags: Tags, each with an address.
            kind: Ending of the files, `js` or `css`.
            template: A tag, with `{}` for the address.
        """
        if tags not in self.tags:
            addresses = [
                html.unescape(address)
                for address in _SOURCE.findall(tags)
                if not any(name in address for name in _UNUSED)
            ]
            later = [html.escape(address) for address in addresses if _LATER in address]
            joined = self._join([address for address in addresses if _LATER not in address], kind)
            self.tags[tags] = "\n".join([*map(template.format, joined), *map(_LATER_LINK.format, later)])
        return self.tags[tags]

    def _join(self, addresses: list[str], kind: str) -> Iterator[str]:
        contents = {address: self._read(address) for address in addresses}
        if kind == "js":
            contents[""] = _ASKED + json.dumps(self._read("/_dash-dependencies").decode()).encode()
        alone = [address for address, text in contents.items() if _ALONE in address or _FURTHER in text]
        # The first semicolon keeps a directive of the first script from those that follow.
        between = b"\n;\n" if kind == "js" else b"\n"
        joined = between.join([b"", *(text for address, text in contents.items() if address not in alone)])
        name = f"{hashlib.sha256(joined).hexdigest()[:16]}.{kind}"
        self.files[name] = joined
        yield f"{_FOLDER}{name}"
        yield from alone

    def _read(self, address: str) -> bytes:
        """Return the content of an address, for which no browser asks."""
        with self.server.test_request_context(address):
            response = self.server.make_response(self.server.dispatch_request())
            response.direct_passthrough = False
            content: bytes = response.get_data()
            response.close()
            return content

    def serve(self, name: str) -> Response:
        """Return joined files, or a part of Plotly, which is stored compressed."""
        packed = PLOTLY_FOLDER / f"{name}.gz"
        is_plotly = _PLOTLY_NAME.fullmatch(name) and packed.is_file()
        if name not in self.files and not is_plotly:
            abort(404)
        content = gzip.decompress(packed.read_bytes()) if is_plotly else self.files[name]
        response = Response(content, mimetype=_TYPES[name.rpartition(".")[2]])
        response.headers["Cache-Control"] = _KEPT
        return response

    def compress(self, response: Response) -> Response:
        """Compress a response as the browser accepts it; a file that does not change, once."""
        is_file = response.is_streamed or response.direct_passthrough
        if response.status_code != 200 or response.mimetype not in _TEXTS or is_file:
            return response
        response.vary.add("Accept-Encoding")
        accepted = request.accept_encodings
        encoding = next((name for name in _LEVELS if accepted.quality(name)), "")
        content = response.get_data()
        if not encoding or response.content_encoding or len(content) < _MIN_BYTES:
            return response
        if request.path.startswith(STATIC):
            key = (request.full_path, encoding)
            if key not in self.compressed:
                self.compressed[key] = _compress(content, encoding, _KEPT_LEVELS[encoding])
            response.set_data(self.compressed[key])
        else:
            response.set_data(_compress(content, encoding, _LEVELS[encoding]))
        response.content_encoding = encoding
        return response


def _compress(content: bytes, encoding: str, level: int) -> bytes:
    if encoding == "gzip":
        return gzip.compress(content, level, mtime=0)
    packed: bytes = pa.Codec("brotli", compression_level=level).compress(content, asbytes=True)
    return packed


class BundledDash(Dash):
    """A Dash app whose page loads few files."""

    def __init__(self, *args: Any, **named: Any) -> None:
        super().__init__(*args, **named)
        self.bundles = Bundles(self.server)
        self._styles = ""
        # pieces of the requested page, for the given styles: what is shown at first, and the layout
        self.first: Callable[[str], Iterable[str]] = lambda _: ()
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
        parts["app_entry"] += _PLACE
        self._styles = parts["css"]
        page: str = super().interpolate_index(*args, **parts)
        return page

    def prepare(self) -> threading.Thread:
        """Begin to join and compress the files, which takes 0.2 s, before a browser asks for them."""
        self._setup_server()  # else of the first request, while others get pages that lack files
        thread = threading.Thread(target=self._compress_files, name="tracekit-files", daemon=True)
        thread.start()
        return thread

    def _compress_files(self) -> None:
        with self.server.test_request_context("/"):
            page = str(super().index())
        for address in map(html.unescape, _SOURCE.findall(page)):
            if address.startswith(STATIC):
                with self.server.test_request_context(address, headers={"Accept-Encoding": "br"}):
                    self.bundles.compress(self.server.make_response(self.server.dispatch_request()))

    def index(self, *args: Any, **named: Any) -> Response:
        """Return the page in pieces: the first has browsers run the scripts while the others are computed."""
        before, _, after = super().index(*args, **named).partition(_PLACE)

        def write() -> Iterator[bytes]:
            yield before.encode()
            try:
                for piece in self.first(self._styles):
                    yield piece.encode()
            except Exception:
                _LOG.exception("the first response to %s has nothing of its page", request.path)
            yield after.encode()

        # not with Brotli, which has to have all of it
        packs = bool(request.accept_encodings.quality("gzip"))
        headers = {"Vary": "Accept-Encoding"} | ({"Content-Encoding": "gzip"} if packs else {})
        pieces = stream_with_context(_pack(write()) if packs else write())
        return Response(pieces, mimetype="text/html", headers=headers)


def _pack(pieces: Iterable[bytes]) -> Iterator[bytes]:
    """Yield each piece compressed, so that it can be read before the next."""
    packer = zlib.compressobj(_STREAM_LEVEL, zlib.DEFLATED, 16 + zlib.MAX_WBITS)
    for piece in pieces:
        yield packer.compress(piece) + packer.flush(zlib.Z_SYNC_FLUSH)
    yield packer.flush()
