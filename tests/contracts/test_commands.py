"""Every command that the product or a document names exists, with the options that it names."""

from __future__ import annotations

import ast
import re
import shlex
from pathlib import Path
from typing import TYPE_CHECKING

import click
import pytest
from click.testing import CliRunner

from tests.docs.console import same
from tracekit.cli.main import cli

if TYPE_CHECKING:
    from collections.abc import Iterator

ROOT = Path(__file__).parents[2]
PRODUCT = [
    file
    for folder in ("tracekit", "analyses", "collectors", "dashboards")
    for file in sorted((ROOT / folder).rglob("*.py"))
]
DOCUMENTS = [
    ROOT / "README.md",
    *(file for file in sorted((ROOT / "docs").rglob("*.md")) if file.name != "commands.md"),  # is generated
]
MENTION = re.compile(r"`(tracekit [^`]+)`")
LINE = re.compile(r"^ *(?:\$ )?(tracekit [a-z-]+(?: .*)?)$", re.MULTILINE)
"""A command on its line, as in help pages and examples."""
BLOCK = re.compile(r"^```.*?^```", re.MULTILINE | re.DOTALL)
SHELL = re.compile(r" (?:\||&&|;|>|2>) ")
FILLED = "VALUE"
"""Stands for what a program inserts into a text, and for the rest of a text in quotes."""


def texts(file: Path) -> Iterator[str]:
    """The texts of a module, with their inserted values replaced."""
    for node in ast.walk(ast.parse(file.read_text())):
        if isinstance(node, ast.JoinedStr):
            parts = (part.value if isinstance(part, ast.Constant) else FILLED for part in node.values)
            yield "".join(map(str, parts))
        elif isinstance(node, ast.Constant) and isinstance(node.value, str):
            yield node.value


def commands(file: Path) -> Iterator[str]:
    """The commands that a module or a document names, without what follows them in a shell."""
    if file.suffix == ".md":
        text = file.read_text()
        places = [(LINE, "\n".join(BLOCK.findall(text))), (MENTION, BLOCK.sub("", text))]
    else:
        places = [(pattern, text) for text in texts(file) for pattern in (LINE, MENTION)]
    for pattern, text in places:
        for command in pattern.findall(text.replace("\\\n", " ")):
            yield SHELL.split(" ".join(command.split()) + " ")[0]


def words_of(command: str) -> list[str]:
    words = re.sub(r"""(["'])(?:(?!\1).)*(?:\1|$)""", FILLED, command)
    return [word for word in shlex.split(words, comments=True) if word not in ("...", "…")]


def parse(command: str) -> None:
    """Parse a command without running it.

    Raises:
        UsageError: The command or an option does not exist.
    """
    parsed: click.Command = cli
    context, rest = click.Context(cli), words_of(command)[1:]
    while isinstance(parsed, click.Group) and rest and not rest[0].startswith("-"):
        name, found, rest = parsed.resolve_command(context, rest)
        assert found is not None
        parsed, context = found, click.Context(found, info_name=name, parent=context)
    if rest and rest[-1].startswith("--"):  # an option that is mentioned has no value
        rest = [*rest, FILLED]
    parsed.make_parser(context).parse_args(rest)


def broken(command: str) -> str:
    try:
        parse(command)
    except click.UsageError as error:
        return f"{command}: {error}"
    return ""


@pytest.mark.parametrize("files", [PRODUCT, DOCUMENTS], ids=["product", "documents"])
def test_commands_that_are_named_can_be_parsed(files: list[Path]) -> None:
    named = {command for file in files for command in commands(file)}
    assert {words_of(command)[1] for command in named} >= {"collect", "analyze", "findings", "diff"}
    assert [found for command in sorted(named) if (found := broken(command))] == []


@pytest.mark.parametrize("command", ["tracekit collect --stack -- a", "tracekit colect", "tracekit suite rn"])
def test_what_does_not_exist_is_found(command: str) -> None:
    assert broken(command)


def test_the_example_of_findings_in_the_readme_is_what_is_printed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shown = (ROOT / "README.md").read_text().split("$ tracekit findings ", 1)[1].split("```", 1)[0]
    trace, _, expected = shown.partition("\n")
    monkeypatch.setenv("COLUMNS", "100")
    monkeypatch.chdir(tmp_path)
    assert CliRunner().invoke(cli, ["sample", "loader", trace]).exit_code == 0
    result = CliRunner().invoke(cli, ["findings", trace, "--store", str(tmp_path / "store")])
    assert same(result.stdout, expected), result.stdout
