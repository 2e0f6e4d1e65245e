"""Pages generated from metadata: those of the site, and their copies in the repository.

    python -m docs.making.site

writes the copies.
"""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tracekit.dashboards.analysis_pages.pages import load_pages
from tracekit.dashboards.shortcuts import as_markdown

from docs.making import analyses, commands, devices, tables
from tracekit.analysis import available
from tracekit.render.reference import page

if TYPE_CHECKING:
    from collections.abc import Collection

ROOT = Path(__file__).parents[2]
DASHBOARD, KEYS = "dashboard.md", "## Keyboard shortcuts\n"
"""The page of which a section is generated, and the heading of that."""
COPIED = {
    "changelog.md": "CHANGELOG.md",
    "security.md": "SECURITY.md",
    "skill.md": "tracekit/agents/SKILL.md",
}
"""Pages of the site whose files lie outside of the documents."""


def pages() -> dict[str, str]:
    """Every page that is made: Markdown by its path among the documents."""
    copied = {page: (ROOT / file).read_text() for page, file in COPIED.items() if (ROOT / file).is_file()}
    made = analyses.pages() | _reference()
    return {path: _for_python(text) for path, text in made.items()} | copied


def _reference() -> dict[str, str]:
    return commands.pages() | devices.pages() | tables.pages()


def repository_pages() -> dict[str, str]:
    """Pages of the repository that are generated: Markdown by path. `analyses.md` has all analyses there."""
    rules = {analyses.RULES: analyses.pages()[analyses.RULES]}
    dashboard = (ROOT / "docs" / DASHBOARD).read_text()
    written, _, rest = dashboard.partition(KEYS)
    _, mark, following = rest.partition("\n## ")
    keys = as_markdown(load_pages())
    return {
        **_reference(),
        **rules,
        analyses.INDEX: page(available()),
        DASHBOARD: f"{written}{keys}{mark}{following}",
    }


@cache
def moved() -> dict[str, str]:
    """Pages of the site for sections of pages of the repository."""
    return analyses.anchors()


_ESCAPES = {r"\<": "&lt;", r"\>": "&gt;", r"\&": "&amp;", r"\~": "~"}
"""What GitHub's Markdown shows as it is and Python's does not."""


def _for_python(text: str) -> str:
    """Markdown that was escaped for GitHub, as Python-Markdown shows it the same."""
    parts = text.split("`")
    parts[1::2] = [part.replace("\\|", "|") for part in parts[1::2]]
    for escaped, entity in _ESCAPES.items():
        parts[::2] = [part.replace(escaped, entity) for part in parts[::2]]
    return "`".join(parts)


def menu(nav: list[Any], known: Collection[str], optional: Collection[str]) -> list[Any]:
    """The menu with the pages of folders under their index, and without optional pages that are not there.

    Args:
        nav: Entries of `mkdocs.yml`: titles to a path, or to entries.
        known: Paths of all pages.
        optional: Paths that may be missing.
    """
    entries: list[Any] = []
    for entry in nav:
        (title, target), *_ = entry.items()
        if isinstance(target, list):
            entries.append({title: menu(target, known, optional)})
        elif target in known or target not in optional:
            entries.append({title: _with_folder(target, known)})
    return entries


def _with_folder(target: str, known: Collection[str]) -> str | list[Any]:
    """A page, or a section of it and the pages in the folder of its name."""
    inside = [path for path in known if path.startswith(target.removesuffix(".md") + "/")]
    return [{"All": target}, *({Path(path).stem: path} for path in inside)] if inside else target


if __name__ == "__main__":
    for path, text in repository_pages().items():
        (ROOT / "docs" / path).write_text(text)
