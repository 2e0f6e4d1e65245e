"""How a command of tracekit, of a peer or of one of the programs here is started."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING

from benchmarks.runner import Contender

if TYPE_CHECKING:
    from benchmarks.peers import Environment

PROGRAMS = Path(__file__).parents[1] / "programs"
_TRACEKIT = "from tracekit.cli.main import main\nif __name__ == '__main__': main()"


def tracekit(name: str, does: str, *arguments: object, against: str = "") -> Contender:
    """A command of tracekit, with a store of its own.

    Args:
        name: How tables call it.
        does: What a run of it consists of.
        arguments: Of the command.
        against: Name of the contender by whose cost its own is divided.
    """
    command = [sys.executable, "-c", _TRACEKIT, *map(str, arguments)]
    return Contender(
        name=name,
        does=does,
        against=against,
        command=lambda scratch: ["env", f"TRACEKIT_STORE={scratch / 'store'}", *command],
    )


def program(
    name: str, does: str, script: str, *arguments: object, against: str, peer: Environment | None = None
) -> Contender:
    """A program of this package, run by a peer's Python.

    Args:
        name: How tables call it.
        does: What a run of it consists of.
        script: File name of the program.
        arguments: Of the program.
        against: Name of the contender by whose cost its own is divided.
        peer: Whose Python runs it; this one by default.
    """
    python = str(peer.python) if peer else sys.executable
    command = [python, "-P", str(PROGRAMS / script), *map(str, arguments)]
    return Contender(
        name=name,
        does=does,
        against=against,
        command=lambda _: command,
        environment=homes(peer),
        missing=peer.missing if peer else "",
    )


def homes(peer: Environment | None) -> dict[str, str]:
    """The variable that names a peer's home folder, where it has one of its own."""
    return {"HOME": str(peer.home)} if peer and peer.home else {}
