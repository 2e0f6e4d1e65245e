"""Every code block of every document is executed, page by page."""

from __future__ import annotations

import shlex
from typing import TYPE_CHECKING

import pytest

from docs.making import analyses as of_analyses
from docs.making import commands as of_commands
from docs.making import devices as of_devices
from docs.making.commands import walk
from tests.docs.blocks import FENCE, PAGES, Block, blocks, commands
from tests.docs.pages import PARSED, RUN, SHOWN, Page

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

pytest.importorskip("torch")
pytest.importorskip("dash")

MADE = of_commands.pages() | of_analyses.pages() | of_devices.pages()
EVERY = [block for path in PAGES for block in blocks(path)]
each_page = pytest.mark.parametrize(
    "path", [pytest.param(path, id=path.name) for path in PAGES if blocks(path)]
)


@pytest.mark.timeout(1_200)
@each_page
def test_a_page_does_what_it_shows(path: Path, tmp_path: Path) -> None:
    wrong = [
        f"{block.page}:{block.line}: {one}"
        for block, found in Page(path, tmp_path).carry_out()
        for one in found
    ]
    assert not wrong, "\n\n".join(wrong)


def test_every_block_says_what_it_is() -> None:
    known = {*PARSED, *RUN, *SHOWN, "pycon", "python"}
    assert [f"{one.page}:{one.line}" for one in EVERY if one.language not in known] == []


@pytest.mark.parametrize(
    "block",
    [pytest.param(one, id=f"{one.page}:{one.line}") for one in EVERY if one.reason and one.language in RUN],
)
def test_what_is_not_run_names_commands_and_options_that_exist(block: Block) -> None:
    for command in commands(block):
        check_syntax(command.text)


@pytest.mark.parametrize("page", MADE)
def test_pages_made_of_metadata_show_commands_and_options_that_exist(page: str) -> None:
    for match in FENCE.finditer(MADE[page]):
        if match["info"].strip() == "sh":
            check_syntax(match["text"])


def check_syntax(script: str) -> None:
    """Fails where a `tracekit` command has no such name or option."""
    for words in _typed(script.replace("\\\n", " ")):
        for at, word in enumerate(words):
            if word == "tracekit" and (at == 0 or words[at - 1] in {"&&", "|", ";", "--"}):
                _parse(_until(words[at + 1 :]))


def _typed(script: str) -> Iterator[list[str]]:
    """The words of each line, and of lines that a quotation holds together."""
    text = ""
    for line in script.splitlines():
        text = f"{text}\n{line}" if text else line
        try:
            words = shlex.split(text, comments=True)
        except ValueError:  # the quotation goes on
            continue
        yield words
        text = ""
    assert not text, f"a quotation has no end: {text}"


def _until(words: list[str]) -> list[str]:
    """The words of one command of a line."""
    ends = [at for at, word in enumerate(words) if word in {"&&", "|", ";", ">"}]
    return words[: ends[0]] if ends else words


def _parse(words: list[str]) -> None:
    known = {tuple(one.command_path.split()[1:]): one for one in walk()}
    named = tuple(words[:2]) if tuple(words[:2]) in known else tuple(words[:1])
    context = known[named]
    context.command.make_context(context.command_path, words[len(named) :], resilient_parsing=False)
