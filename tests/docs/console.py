"""Run the commands of a page one by one in a shell, and compare their output."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path

_UNITS = "ns|[µm]s|s|min|h|B|[KMG]i?B|[KMG]B/s|[TG]FLOP/s|MHz|W|J|°C"
VARYING = (
    (r"\s+", " "),
    (r"\b\d{8}T\d{6}Z-([\w.-]+?)-[0-9a-f]{6}\b", r"<run \1>"),
    (r"\b\d{4}-\d\d-\d\d(?:[T ]\d\d:\d\d(?::\d\d)?(?:Z|\+\d\d:\d\d)?)?", "<moment>"),
    (r"\b[0-9a-f]{12}(?:[0-9a-f]{28})?\b", "<commit>"),
    (rf"[-+−]?\b[\d,]+(\.\d+)?(?: (?:{_UNITS})(?![\w/])|%)", "<quantity>"),
    (r"\b[\d.,]+×", "<quantity>"),
    (r"\b\d{4}-\d\d-…\S*Z", "<moment>"),
    (r"\b[0-9a-f]{9}\b", "<commit>"),
    (r"\bport \d+|:\d{4,5}\b", "<port>"),
    (r"\b\d+ rules checked", "<rules> checked"),  # every new rule changes it
    (r"[─━-]{3,}", "<rule>"),
)
"""What differs from run to run: pattern and what stands for it. A number with a unit is a measurement."""


PROGRAMS = {
    "pip": " -m pip",
    "python": "",
    "python3": "",
    "torchrun": " -m torch.distributed.run",
    "tracekit": " -c 'from tracekit.cli.main import main; main()'",
}
"""What a reader has on the path: arguments of this interpreter, by name."""


@dataclass(frozen=True)
class Ended:
    """How a command ended: its exit code, and all it printed as a terminal would show it."""

    code: int
    printed: str


class Console:
    """Runs commands in a folder; the working directory and what is exported lasts from one to the next."""

    def __init__(self, folder: Path, home: Path) -> None:
        self._state = home / "state.sh"
        self._folder = folder
        self._state.write_text(f"cd {shlex.quote(str(folder))}\n")
        self._environment = {
            **{name: os.environ[name] for name in ("LANG", "PATH", "XDG_CACHE_HOME") if name in os.environ},
            "PATH": f"{_programs(home / 'bin')}:{os.environ['PATH']}",
            "HOME": str(home),
            "PIP_DISABLE_PIP_VERSION_CHECK": "1",
            "PIP_NO_BUILD_ISOLATION": "0",  # builds with this environment's setuptools, without an index
            "PIP_NO_DEPS": "1",  # of which one is tracekit itself
            "PIP_TARGET": str(home / "packages"),  # so that nothing is installed beside the tests
            "PYTHONPATH": f"{home / 'packages'}",
            "COLUMNS": "100",
            "OMP_NUM_THREADS": "1",
            "PYTHONDONTWRITEBYTECODE": "1",
            "GIT_CEILING_DIRECTORIES": str(home),
            "GIT_CONFIG_NOSYSTEM": "1",
            **{f"GIT_{role}_NAME": "Reader" for role in ("AUTHOR", "COMMITTER")},
            **{f"GIT_{role}_EMAIL": "reader@example.org" for role in ("AUTHOR", "COMMITTER")},
        }
        self.last = 0

    def run(self, command: str, *, seconds: float = 3_600) -> Ended:
        """Run one command; both of its streams come back as one."""
        state = shlex.quote(str(self._state))
        script = (
            f"source {state}\n(exit {self.last})\n{command}\ncode=$?\n"
            f'{{ export -p; printf "cd %q\\n" "$PWD"; }} > {state}\nexit $code\n'
        )
        done = subprocess.run(
            ["bash", "-c", script],
            cwd=self._folder,
            env=self._environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            timeout=seconds,
        )
        self.last = done.returncode
        return Ended(done.returncode, done.stdout.decode())


def _programs(folder: Path) -> Path:
    """A folder with `PROGRAMS`, whatever else is installed."""
    folder.mkdir()
    for name, arguments in PROGRAMS.items():
        (folder / name).write_text(f'#!/bin/sh\nexec {shlex.quote(sys.executable)}{arguments} "$@"\n')
        (folder / name).chmod(0o755)
    return folder


def same(printed: str, shown: str) -> bool:
    """Whether a command printed what a page shows, but for what varies; `...` stands for any text.

    Example:
        >>> same("took 1.52 s, 3 rows", "took 1.31 s, 3 rows"), same("took 1 s, 3 rows", "took 1 s, 4 rows")
        (True, False)
        >>> same("a\\nb\\nc", "a\\n...\\nc\\n")
        True
    """
    parts = (re.escape(settled(part)) for part in re.split(r"\.\.\.", shown))
    return re.fullmatch(".*?".join(parts), settled(printed), re.S) is not None


def settled(text: str) -> str:
    """Text without what varies from run to run."""
    for pattern, word in VARYING:
        text = re.sub(pattern, word, text)
    return text.strip()
