"""The fenced blocks of a document: what they are, what they say they need, and the commands in them.

A title that begins with one of `REASONS` says, to the reader as well, why a block is not run here. A title
that is the name of a file makes the block that file.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[2]
GENERATED = ("analyses.md", "commands.md", "peaks.md", "rules.md", "schema.md")
PAGES = sorted(
    [ROOT / "README.md", *(path for path in (ROOT / "docs").rglob("*.md") if path.name not in GENERATED)]
)
REASONS = ("Needs ", "Takes ", "Serves ")
STATED = {
    ("README.md", "pip install -c constraints.txt -e '.[torch"): "Needs an environment of its own",
    ("README.md", "pip install -c constraints.txt -e '.[dash"): "Serves until it is interrupted",
    ("README.md", "tracekit collect -- python train.py"): "Needs your program",
    ("README.md", "tracekit ab HEAD~1"): "Needs your program",
}
"""Reasons of blocks of documents that have no titles, by how these begin."""
FENCE = re.compile(
    r"^(?P<indent> *)(?P<fence>`{3,})(?P<info>[^`\n]*)\n(?P<text>.*?)^ *(?P=fence) *$", re.M | re.S
)
_TITLE = re.compile(r'title="([^"]*)"')
_FILE = re.compile(r"[\w./-]+\.\w+")


@dataclass(frozen=True)
class Block:
    """One fenced block.

    Attributes:
        page: Path of the document from the root.
        line: Where it starts.
        language: First word after the fence.
        title: What stands above it on the page.
        text: Its content.
    """

    page: str
    line: int
    language: str
    title: str
    text: str

    @property
    def reason(self) -> str:
        """Why it is not run here; empty where it is."""
        return self.title if self.title.startswith(REASONS) else ""

    @property
    def file(self) -> str:
        """The file whose content it is; empty where it is none."""
        return self.title if _FILE.fullmatch(self.title) else ""


@dataclass(frozen=True)
class Command:
    """One command of a console and what the document shows of its output."""

    text: str
    shown: str


def blocks(path: Path) -> list[Block]:
    """The fenced blocks of a document, in order."""
    text, page = path.read_text(), path.relative_to(ROOT).as_posix()
    found = []
    for match in FENCE.finditer(text):
        language, _, rest = match["info"].strip().partition(" ")
        titled = _TITLE.search(rest)
        title = titled[1] if titled else ""
        indent = len(match["indent"])
        content = "".join(line[indent:] for line in match["text"].splitlines(keepends=True))
        line = text.count("\n", 0, match.start()) + 1
        language = language or ("console" if content.startswith("$ ") else "text")
        found.append(Block(page, line, language, title or _stated(page, content), content))
    return found


def _stated(page: str, content: str) -> str:
    found = [why for (where, how), why in STATED.items() if where == page and content.startswith(how)]
    return found[0] if found else ""


def commands(block: Block) -> list[Command]:
    """What is typed at the prompt of a console, and the lines of a script.

    Example:
        >>> commands(Block("a.md", 1, "console", "", "$ echo a\\na\\n$ true\\n"))
        [Command(text='echo a', shown='a\\n'), Command(text='true', shown='')]
    """
    if block.language != "console":
        lines = re.findall(r"(?:.*\\\n)*.+", block.text)
        return [Command(line, "...") for line in lines if not line.startswith("#")]
    found = []
    for part in re.split(r"^\$ ", block.text, flags=re.M)[1:]:
        typed = re.match(r"(?:.*\\\n)*.*", part)
        assert typed is not None
        found.append(Command(typed[0], part[typed.end() :].removeprefix("\n")))
    return found
