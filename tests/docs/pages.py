"""A page carried out from top to bottom, in a folder of its own.

    python -m tests.docs.pages docs/tutorial.md

prints what its commands print now.
"""

from __future__ import annotations

import json
import shlex
import sys
import tempfile
import tomllib
from configparser import ConfigParser
from pathlib import Path
from typing import TYPE_CHECKING

import yaml

from tests.docs.blocks import ROOT, blocks, commands
from tests.docs.console import Console, same, settled

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from tests.docs.blocks import Block, Command

RUN = ("bash", "console", "sh")
PARSED: dict[str, Callable[[str], object]] = {
    "ini": lambda text: ConfigParser().read_string(text),
    "json": json.loads,
    "toml": tomllib.loads,
    "yaml": yaml.safe_load,
}
"""Languages that are data, by what reads them."""
SHOWN = ("diff", "mermaid", "nginx", "sql", "text")
"""Languages with nothing to run or to read."""


class Page:
    """Carries out blocks of one page in their order.

    Args:
        path: The document.
        home: An empty folder; the page is carried out in its folder `work`.
    """

    def __init__(self, path: Path, home: Path) -> None:
        self.path = path
        self.folder = home / "work"
        self.folder.mkdir()
        self.console = Console(self.folder, home)

    def carry_out(self) -> Iterator[tuple[Block, list[str]]]:
        """Each block and what is wrong with it, once it has been carried out."""
        for block in blocks(self.path):
            yield block, list(self._wrong(block))

    def _wrong(self, block: Block) -> Iterator[str]:
        if block.reason:
            return
        if block.language in PARSED:
            PARSED[block.language](block.text)
        if block.file:
            target = self.folder / block.file
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_text(block.text)
        elif block.language == "python":
            yield from self._python(block)
        elif block.language == "pycon":
            yield from self._session(block)
        elif block.language in RUN:
            yield from self._typed(commands(block))

    def _typed(self, typed: list[Command]) -> Iterator[str]:
        """A command fails where it ends badly and the page does not ask for its exit code next."""
        for at, command in enumerate(typed):
            ended = self.console.run(command.text)
            asked = at + 1 < len(typed) and typed[at + 1].text == "echo $?"
            if ended.code and not asked:
                yield f"$ {command.text}\nended with {ended.code}:\n{ended.printed}"
            elif not same(ended.printed, command.shown):
                yield (
                    f"$ {command.text}\nprinted:\n{ended.printed}\nnot:\n{command.shown}\n"
                    f"settled:\n{settled(ended.printed)}\nnot:\n{settled(command.shown)}"
                )

    def _python(self, block: Block) -> Iterator[str]:
        target = self.folder / ".block.py"
        target.write_text(block.text)
        ended = self.console.run(f"python {shlex.quote(str(target))}")
        if ended.code:
            yield f"the program ended with {ended.code}:\n{ended.printed}"

    def _session(self, block: Block) -> Iterator[str]:
        """A session of Python, compared as a doctest in the page's folder."""
        target = self.folder / ".session"
        target.write_text(block.text)
        options = "-o ELLIPSIS -o NORMALIZE_WHITESPACE"
        ended = self.console.run(f"python -m doctest {options} {shlex.quote(str(target))}")
        if ended.code:
            yield ended.printed


def main() -> None:
    """Print the transcript of each document named."""
    for name in sys.argv[1:]:
        with tempfile.TemporaryDirectory() as home:
            page = Page(ROOT / name, Path(home))
            for block in blocks(page.path):
                print(f"\n--- {block.page}:{block.line} {block.language} {block.title}")
                if block.language in RUN and not block.reason and not block.file:
                    for command in commands(block):
                        ended = page.console.run(command.text)
                        print(f"$ {command.text}\n{ended.printed}", end="")
                        print(f"[{ended.code}]")
                else:
                    print("\n".join(page._wrong(block)))


if __name__ == "__main__":
    main()
