"""One virtual environment for each peer, made where it is missing; else this Python, if it has the peer."""

from __future__ import annotations

import importlib.metadata
import json
import shutil
import subprocess
import sys
import venv
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

LIST = Path(__file__).parents[1] / "peers.txt"
_STAMP = "requirements.txt"
_VERSIONS = (
    "import importlib.metadata as m, json;"
    "print(json.dumps({each.metadata['Name'].lower(): each.version for each in m.distributions()}))"
)
_EXTENSION = (
    "import duckdb, duckdb_extension_sqlite_scanner as found, pathlib\n"
    "for path in pathlib.Path(found.__file__).parent.rglob('*.duckdb_extension'):\n"
    "    duckdb.sql(f\"INSTALL '{path}'\")"
)
"""Puts DuckDB's extension from its package to where DuckDB looks: below the home folder."""


@dataclass(frozen=True, kw_only=True)
class Environment:
    """Where a peer is installed.

    Attributes:
        name: The peer.
        python: The interpreter that has it.
        version: Its version; empty where it is not installed.
        missing: Why it is not installed; empty where it is.
        home: What its processes take for the home folder; None for the user's.
    """

    name: str
    python: Path = Path(sys.executable)
    version: str = ""
    missing: str = ""
    home: Path | None = None


def listed(text: str) -> dict[str, list[str]]:
    r"""Requirements of each peer.

    Example:
        >>> listed("# why\norjson: orjson>=3 numpy\n")
        {'orjson': ['orjson>=3', 'numpy']}
    """
    lines = [line.partition("#")[0].strip() for line in text.splitlines()]
    pairs = [line.partition(":") for line in lines if line]
    return {name.strip(): requirements.split() for name, _, requirements in pairs}


def environments(
    folder: Path, *, install: bool, tell: Callable[[str], None] = lambda _: None
) -> dict[str, Environment]:
    """The environment of every peer of `peers.txt`.

    Args:
        folder: Below it they are made.
        install: False makes none and downloads nothing; what is there is used.
        tell: Told of each that is made.
    """
    return {
        name: _environment(folder / name, name, requirements, install=install, tell=tell)
        for name, requirements in listed(LIST.read_text()).items()
    }


def _environment(
    folder: Path, name: str, requirements: Sequence[str], *, install: bool, tell: Callable[[str], None]
) -> Environment:
    stamp, wanted = folder / _STAMP, "\n".join(requirements)
    if stamp.is_file() and stamp.read_text() == wanted:
        return _found(folder, name)
    if not install:
        return _here(name)
    tell(f"installing {name}")
    why = _made(folder, requirements)
    if why:
        return Environment(name=name, missing=f"not installed: {why}")
    stamp.write_text(wanted)
    return _found(folder, name)


def _made(folder: Path, requirements: Sequence[str]) -> str:
    """Make an environment; why it came to nothing."""
    shutil.rmtree(folder, ignore_errors=True)
    venv.create(folder, with_pip=False)
    python = str(_python(folder))
    pip = [sys.executable, "-m", "pip", "--quiet", "--python", python, "install", *requirements]
    done = subprocess.run(pip, check=False, capture_output=True, text=True)
    if done.returncode:
        errors = [line for line in done.stderr.splitlines() if line.startswith("ERROR")]
        return errors[-1] if errors else "pip failed"
    if any(each.startswith("duckdb-extension") for each in requirements):
        command, environment = [python, "-P", "-c", _EXTENSION], {"HOME": str(_home(folder))}
        done = subprocess.run(command, check=False, capture_output=True, text=True, env=environment)
        return done.stderr.strip().splitlines()[-1] if done.returncode else ""
    return ""


def _found(folder: Path, name: str) -> Environment:
    text = subprocess.run(
        [_python(folder), "-P", "-c", _VERSIONS], check=True, capture_output=True, text=True
    ).stdout
    version = json.loads(text).get(name.lower(), "")
    return Environment(name=name, python=_python(folder), version=version, home=_home(folder))


def _here(name: str) -> Environment:
    try:
        return Environment(name=name, version=importlib.metadata.version(name))
    except importlib.metadata.PackageNotFoundError:
        return Environment(name=name, missing="not installed")


def _python(folder: Path) -> Path:
    return folder.absolute() / "bin" / "python"


def _home(folder: Path) -> Path:
    home = folder.absolute() / "home"
    home.mkdir(exist_ok=True)
    return home
