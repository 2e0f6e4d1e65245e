"""Rewrite links that lead out of the documents: to a page if there is one, else to text."""

from __future__ import annotations

import os
import re
from pathlib import PurePosixPath
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping

DOCS = "docs"
_LINK = re.compile(r"(?<!!)\[([^\]]*)\]\(([^)#\s]+)(#[^)\s]*)?\)")


def within(
    text: str, *, source: str, page: str, copied: Mapping[str, str], moved: Mapping[str, str] | None = None
) -> str:
    """Markdown whose links stay on the site.

    Args:
        text: The document.
        source: Its path in the repository, from which its links lead.
        page: Its path among the pages.
        copied: Pages of files that lie outside of the documents: paths in the repository by path of the page.
        moved: Pages of the site for sections of pages of the repository, as `PAGE.md#ANCHOR`.

    Example:
        >>> copies = {"security.md": "SECURITY.md"}
        >>> within("[a](../SECURITY.md) [b](c.md)", source="docs/x.md", page="x.md", copied=copies)
        '[a](security.md) [b](c.md)'
        >>> within("[`run`](a/run.py) [b](docs/c.md#d)", source="SECURITY.md", page="s.md", copied=copies)
        '`run` [b](c.md#d)'
    """
    pages = {file: name for name, file in copied.items()}

    def led(match: re.Match[str]) -> str:
        words, target, anchor = match[1], match[2], match[3] or ""
        if ":" in target:
            return match[0]
        file = os.path.normpath(PurePosixPath(source).parent / target)
        found = pages.get(file) or (file.removeprefix(f"{DOCS}/") if file.startswith(f"{DOCS}/") else "")
        if not found:
            return words
        if moved and found + anchor in moved:
            found, anchor = moved[found + anchor], ""
        return f"[{words}]({os.path.relpath(found, PurePosixPath(page).parent)}{anchor})"

    return _LINK.sub(led, text)
