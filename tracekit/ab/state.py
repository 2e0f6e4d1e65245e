"""State of an unfinished comparison, kept in the store until there is a verdict."""

from __future__ import annotations

import hashlib
import json
import os
from contextlib import suppress
from dataclasses import asdict, dataclass, field, replace
from typing import TYPE_CHECKING

import msgspec

from tracekit import environment

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from tracekit.ab.session import Values
    from tracekit.store import Store

FOLDER = ".ab"
_OF_THE_SHELL = frozenset(
    ("_", "COLUMNS", "COLORTERM", "DISPLAY", "LINES", "OLDPWD", "PWD", "SHLVL", "TERM", "WINDOWID", "STY")
)
_OF_THE_SESSION = ("SSH_", "TMUX", "TERM_", "XDG_", "DBUS_", "VSCODE_", "LESS", "GPG_")


@dataclass(frozen=True)
class Measured:
    """Content of a state file.

    Attributes:
        blocks: Values of base and head by metric, block by block.
        runs: Ids of the stored runs, by side.
        seconds: Time spent.
    """

    blocks: tuple[tuple[dict[str, float], dict[str, float]], ...] = ()
    runs: dict[str, str] = field(default_factory=dict)
    seconds: float = 0.0

    def of(self, store: Store) -> Measured:
        """Return a copy without profiles that are no longer in the store."""
        stored = {run.id for run in store.readable()} if self.runs else set()
        return replace(self, runs={side: name for side, name in self.runs.items() if name in stored})


def given_variables() -> dict[str, str]:
    """Return environment variables that can affect a program: all but those of terminal and shell.

    Only their hash is stored, as part of the state's file name.
    """
    return {
        name: value
        for name, value in os.environ.items()
        if name not in _OF_THE_SHELL and not name.startswith(_OF_THE_SESSION)
    }


def key(question: Mapping[str, object]) -> str:
    """Return the name of the state of a comparison on this machine.

    Args:
        question: All that the values depend on: commits, changes, command, options. Only its hash is stored.
    """
    machine = {
        "cpu": environment.cpu_name(),
        "cpus": sorted(os.sched_getaffinity(0)),
        "gpus": [gpu["uuid"] for gpu in environment.nvml_gpus()],
        "driver": environment.nvml_driver(),
        "packages": environment.packages(),
    }
    text = json.dumps({"machine": machine, **question}, sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()[:24]


@dataclass(frozen=True)
class StateFile:
    """A state file; an unreadable file counts as missing."""

    path: Path

    def read(self) -> Measured:
        """Return the saved results; empty if there is no file."""
        try:
            return msgspec.json.decode(self.path.read_bytes(), type=Measured)
        except (OSError, msgspec.DecodeError):
            return Measured()

    def write(self, measured: Measured) -> None:
        """Replace the file atomically."""
        part = self.path.with_suffix(".part")
        part.write_text(json.dumps(asdict(measured)))
        part.replace(self.path)

    def forget(self) -> None:
        """Delete the file."""
        with suppress(FileNotFoundError):
            self.path.unlink()


def block_values(base: Values, head: Values) -> tuple[dict[str, float], dict[str, float]]:
    """Convert a block for the state file."""
    return dict(base), dict(head)
