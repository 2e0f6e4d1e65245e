"""Draw Mermaid blocks as SVG at build time, so that pages load no external script."""

from __future__ import annotations

import re
from functools import cache

import mermaidx

_BLOCK = re.compile(r"^```mermaid\n(.*?)^```$", re.MULTILINE | re.DOTALL)


def drawn(markdown: str) -> str:
    """Replace the Mermaid blocks of a page by drawings, whose colors are in `stylesheets/site.css`."""
    numbers = iter(range(len(markdown)))
    return _BLOCK.sub(lambda block: _figure(block[1], f"diagram-{next(numbers)}"), markdown)


def _figure(source: str, name: str) -> str:
    svg = _svg(source).replace("my-svg", name)  # unique on its page
    return f'<div class="diagram" markdown="0">{svg}</div>'


@cache
def _svg(source: str) -> str:
    return str(mermaidx.render(source).svg())
