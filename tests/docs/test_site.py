"""The built site: no warnings, no external requests, no broken links."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit

import pytest

from docs.making import links
from docs.making import site as making
from tracekit import registry, schema
from tracekit.analysis import available
from tracekit.cli.main import COMMANDS

pytest.importorskip("material", reason="the extra [docs] is not installed")

ROOT = Path(__file__).parents[2]
LOADS = {
    "audio": "src",
    "embed": "src",
    "iframe": "src",
    "img": "src",
    "input": "src",
    "link": "href",
    "object": "data",
    "script": "src",
    "source": "src",
    "video": "src",
}
"""What a browser asks for by itself: the attribute that says where it is, by element."""
WITHOUT_PICTURE = {"capture", "d2h_copies", "modules", "parallelism"}
"""Analyses of which the shipped samples have nothing to draw."""
_ELSEWHERE = re.compile(r"""(?:url\(|@import|fetch\(|import\()\s*["']?(?:https?:)?//""")


class Page(HTMLParser):
    """What a page asks for, links to, and can be linked by."""

    def __init__(self, path: Path) -> None:
        super().__init__()
        self.asks: list[str] = []
        self.links: list[str] = []
        self.anchors: set[str] = set()
        self.feed(path.read_text())

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        found = {name: value or "" for name, value in attrs}
        self.anchors |= {found[name] for name in ("id", "name") if name in found}
        if tag in LOADS and found.get(LOADS[tag]):
            self.asks.append(found[LOADS[tag]])
        self.asks += [part.split()[0] for part in found.get("srcset", "").split(",") if part.strip()]
        if tag == "a" and "href" in found:
            self.links.append(found["href"])


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("site")
    done = subprocess.run(
        [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", str(folder)],
        cwd=ROOT,
        env={**os.environ, "NO_MKDOCS_2_WARNING": "1"},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    assert "WARNING" not in done.stdout + done.stderr
    return folder


@pytest.fixture(scope="module")
def pages(site: Path) -> dict[Path, Page]:
    return {path: Page(path) for path in site.rglob("*.html")}


def test_no_page_asks_another_host_for_anything(pages: dict[Path, Page], site: Path) -> None:
    asked = {url for page in pages.values() for url in page.asks}
    assert [url for url in asked if urlsplit(url).netloc] == []
    styles = [path for path in site.rglob("*.css") if _ELSEWHERE.search(path.read_text())]
    inline = [path for path in pages if _ELSEWHERE.search(path.read_text())]
    assert styles + inline == []


def test_every_link_and_file_is_there(pages: dict[Path, Page], site: Path) -> None:
    missing = [
        f"{path.relative_to(site)} -> {url}"
        for path, page in pages.items()
        if path.name != "404.html"  # is served from anywhere, with addresses from the root
        for url in {*page.asks, *page.links}
        if not _leads(url, path, pages)
    ]
    assert missing == []


def _leads(url: str, path: Path, pages: dict[Path, Page]) -> bool:
    parts = urlsplit(url)
    if parts.scheme or parts.netloc:
        return parts.scheme in {"https", "mailto"}
    target = (path.parent / unquote(parts.path)).resolve() if parts.path else path
    if target not in pages:
        return target.is_file() or (target / "index.html").is_file()
    return not parts.fragment or unquote(parts.fragment) in pages[target].anchors


def test_every_command_analysis_table_and_rule_is_described(site: Path) -> None:
    described = Page(site / "commands.html").anchors
    assert [name for name in COMMANDS if f"tracekit-{name}" not in described] == []
    assert {path.stem for path in (site / "analyses").glob("*.html")} == set(
        registry.names(registry.ANALYSES)
    )
    columns = {column.name for table in schema.TABLES.values() for column in table.columns}
    assert _missing(columns | set(schema.TABLES), site / "schema.html") == []
    rules = Page(site / "rules.html").anchors
    assert [rule.code for one in available() for rule in one.rules if rule.code not in rules] == []


def test_pages_of_analyses_show_a_picture(site: Path) -> None:
    without = {path.stem for path in (site / "analyses").glob("*.html") if not _has_picture(path.read_text())}
    assert without <= WITHOUT_PICTURE


def _has_picture(text: str) -> bool:
    return '"../images/' in text or '<div class="figure"' in text


def _missing(words: set[str], path: Path) -> list[str]:
    text = path.read_text()
    return sorted(word for word in words if f"<code>{word}</code>" not in text)


def test_the_search_index_lies_beside_the_pages_and_holds_each(site: Path) -> None:
    index = (site / "search" / "search_index.json").read_text()
    assert all(f"analyses/{one.name}.html" in index for one in available())


def test_a_page_that_is_not_written_yet_leaves_no_entry_in_the_menu() -> None:
    nav = [{"A": [{"B": "b.md"}, {"C": "c.md"}]}, {"D": "d.md"}]
    kept = making.menu(nav, ["b.md", "d.md", "d/e.md"], ["c.md"])
    assert kept == [{"A": [{"B": "b.md"}]}, {"D": [{"All": "d.md"}, {"e": "d/e.md"}]}]


def test_an_entry_that_must_be_there_stays_so_that_the_build_names_it() -> None:
    assert making.menu([{"A": "a.md"}], [], []) == [{"A": "a.md"}]


def test_a_link_out_of_the_documents_leads_to_the_page_of_its_file_or_is_text() -> None:
    text = "[a](../../SECURITY.md#b) ![c](../d.png) [`run`](../../a/run.py) [f](g.md) [h](https://i.org)"
    reported = links.within(text, source="docs/x/y.md", page="x/y.md", copied={"s.md": "SECURITY.md"})
    assert reported == "[a](../s.md#b) ![c](../d.png) `run` [f](g.md) [h](https://i.org)"
