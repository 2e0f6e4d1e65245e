"""Wrong documents fail the document tests."""

from __future__ import annotations

import doctest
from typing import TYPE_CHECKING

import click
import pytest

from docs.making import links
from tests.docs import blocks as blocks_module
from tests.docs import console as console_module
from tests.docs.blocks import Block, Command, blocks, commands
from tests.docs.console import Console, same
from tests.docs.pages import Page
from tests.docs.test_blocks import check_syntax

if TYPE_CHECKING:
    from pathlib import Path
    from types import ModuleType


@pytest.fixture
def wrong(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """What is wrong with a document of this text."""
    monkeypatch.setattr(blocks_module, "ROOT", tmp_path)
    (tmp_path / "home").mkdir()

    def carried_out(text: str) -> list[str]:
        (tmp_path / "document.md").write_text(text)
        page = Page(tmp_path / "document.md", tmp_path / "home")
        return [one for _, found in page.carry_out() for one in found]

    return carried_out


def test_a_page_that_is_right_has_nothing_wrong(wrong) -> None:
    assert not wrong(
        '```python title="hello.py"\nprint("hello")\n```\n'
        "```console\n$ python hello.py\nhello\n$ false\n$ echo $?\n1\n$ cd /\n$ pwd\n/\n```\n"
        "```python\nassert 1 + 1 == 2\n```\n```pycon\n>>> 1 + 1\n2\n```\n"
        '```sh title="Needs a GPU"\nfalse\n```\n```toml\na = 1\n```\n'
    )


@pytest.mark.parametrize(
    "text",
    [
        "```console\n$ echo hello\nbye\n```\n",
        "```console\n$ echo hello\n```\n",
        "```console\n$ false\n```\n",
        "```console\n$ false\n$ echo $?\n0\n```\n",
        "```sh\nfalse\ntrue\n```\n",
        "```python\nassert 1 + 1 == 3\n```\n",
        "```pycon\n>>> 1 + 1\n3\n```\n",
    ],
)
def test_a_page_that_is_wrong_is_told(text: str, wrong) -> None:
    assert len(wrong(text)) == 1


def test_data_that_cannot_be_read_is_told(wrong) -> None:
    with pytest.raises(ValueError, match="Invalid"):
        wrong("```toml\na = \n```\n")


def test_what_varies_is_let_go_and_nothing_else() -> None:
    run = "20261122T003027Z-train-0b1bdf"
    assert same(f"{run} took 1.52 s", "20270101T000000Z-train-ffffff took 3 ms")
    assert not same(f"{run} took 1.52 s", "20261122T003027Z-other-0b1bdf took 1.52 s")
    assert not same("3 rows", "4 rows")
    assert same("a\nb\nc\n", "a\n...\nc\n")
    assert not same("a\nb\nc\n", "a\n...\nd\n")


def test_a_console_is_taken_apart_at_its_prompts() -> None:
    text = "$ echo a \\\n    b\na b\n$ true\n"
    assert commands(Block("a.md", 1, "console", "", text)) == [
        Command("echo a \\\n    b", "a b\n"),
        Command("true", ""),
    ]


def test_a_block_knows_its_language_title_and_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(blocks_module, "ROOT", tmp_path)
    (tmp_path / "a.md").write_text('# A\n\n  ```sh title="Takes an hour"\n  true\n  ```\n')
    (block,) = blocks(tmp_path / "a.md")
    assert block == Block("a.md", 3, "sh", "Takes an hour", "true\n")
    assert block.reason == "Takes an hour"


def test_names_of_commands_and_options_are_checked() -> None:
    check_syntax("tracekit runs --limit 3 | cat")
    check_syntax('tracekit query "SELECT 1\n  AS one" --format csv\n')
    for line in (
        "tracekit run",
        "tracekit runs --limits 3",
        "true && tracekit analyze --nothing",
        'tracekit query "SELECT 1\n  AS one" --nothing',
        'tracekit query "SELECT 1\n  AS nothing',
    ):
        with pytest.raises((AssertionError, KeyError, click.UsageError), match=r"run|limits|nothing"):
            check_syntax(line)


def test_the_console_keeps_the_exit_code_the_folder_and_what_is_exported(tmp_path: Path) -> None:
    (tmp_path / "home").mkdir()
    console = Console(tmp_path, tmp_path / "home")
    console.run("export A=1; cd /; (exit 7)")
    assert console.run('echo "$? $A $PWD"').printed == "7 1 /\n"


@pytest.mark.parametrize("module", [links, blocks_module, console_module])
def test_examples_of_docstrings_hold(module: ModuleType) -> None:
    reported = doctest.testmod(module)
    assert reported.attempted > 0
    assert reported.failed == 0
