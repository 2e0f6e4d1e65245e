"""`tracekit skill`: print or install the skill that teaches coding agents to use tracekit."""

from __future__ import annotations

from importlib.resources import files
from pathlib import Path

from tracekit.cli import lazy_click as click

NAME = "SKILL.md"


@click.command("skill")
@click.option(
    "--install",
    "folder",
    type=click.Path(file_okay=False, path_type=Path),
    metavar="DIR",
    help="Write DIR/tracekit/SKILL.md, for example in .claude/skills.",
)
def command(*, folder: Path | None) -> None:
    """Print the skill that teaches coding agents how to find out why a program is slow.

    \b
    tracekit skill --install .claude/skills
    """  # noqa: D301 (click reads the \b)
    text = files("tracekit.agents").joinpath(NAME).read_text(encoding="utf-8")
    if folder is None:
        click.echo(text, nl=False)
        return
    target = folder.expanduser() / "tracekit" / NAME
    target.parent.mkdir(parents=True, exist_ok=True)
    target.write_text(text, encoding="utf-8")
    click.echo(f"installed {target}")
