"""MkDocs hooks: add generated pages, and build the menu."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING

from mkdocs.structure.files import File, Files

sys.path.insert(0, str(Path(__file__).parents[1]))  # MkDocs runs its hooks from anywhere

from docs.making import diagrams, links, site

if TYPE_CHECKING:
    from mkdocs.config.defaults import MkDocsConfig
    from mkdocs.structure.pages import Page


def on_config(config: MkDocsConfig) -> MkDocsConfig:
    """Complete the menu."""
    folder = Path(config.docs_dir)
    written = {path.relative_to(folder).as_posix() for path in folder.rglob("*.md")}
    known = dict.fromkeys([*written, *site.pages()])
    config.nav = site.menu(config.nav or [], known, set(config.extra["optional"]))
    return config


def on_files(files: Files, *, config: MkDocsConfig) -> Files:
    """Add the generated pages, replacing their copies in the repository."""
    for path, content in site.pages().items():
        if existing := files.get_file_from_path(path):
            files.remove(existing)
        files.append(File.generated(config, path, content=content))
    return files


def on_page_markdown(markdown: str, *, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Draw diagrams and figures, and keep links on the site."""
    path = page.file.src_uri
    source = site.COPIED.get(path, f"{links.DOCS}/{path}")
    text = diagrams.drawn(markdown)
    if path.startswith("analyses/"):
        text = diagrams.with_example(text, page.file.name)
    return links.within(text, source=source, page=path, copied=site.COPIED, moved=site.moved())
