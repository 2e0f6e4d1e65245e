"""Virtual environments of the tools that tracekit is compared with (`peers.txt`)."""

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

LIST = Path(__file__).with_name("peers.txt")
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
"""Installs DuckDB's extension from its package to the home folder, where DuckDB looks for it."""


@dataclass(frozen=True, kw_only=True)
class Environment:
    """Environment of a peer.

    Attributes:
        name: The peer.
        python: Its interpreter.
        version: Its version; empty if not installed.
        missing: Why it is not installed; empty if it is.
        home: Home folder of its processes; None for the user's.
    """

    name: str
    python: Path = Path(sys.executable)
    version: str = ""
    missing: str = ""
    home: Path | None = None


def requirements_of(text: str) -> dict[str, list[str]]:
    r"""Parse the requirements of each peer.

    Example:
        >>> requirements_of("# why\norjson: orjson>=3 numpy\n")
        {'orjson': ['orjson>=3', 'numpy']}
    """
    lines = [line.partition("#")[0].strip() for line in text.splitlines()]
    pairs = [line.partition(":") for line in lines if line]
    return {name.strip(): requirements.split() for name, _, requirements in pairs}


def environments(
    folder: Path, *, install: bool, log: Callable[[str], None] = lambda _: None
) -> dict[str, Environment]:
    """Find or create the environment of every peer in `peers.txt`.

    Args:
        folder: Folder of the environments.
        install: Whether to create missing ones; otherwise this Python is used if it has the peer.
        log: Called with a line for each that is created.
    """
    return {
        name: _environment(folder / name, name, requirements, install=install, log=log)
        for name, requirements in requirements_of(LIST.read_text()).items()
    }


def _environment(
    folder: Path, name: str, requirements: Sequence[str], *, install: bool, log: Callable[[str], None]
) -> Environment:
    stamp, wanted = folder / _STAMP, "\n".join(requirements)
    if stamp.is_file() and stamp.read_text() == wanted:
        return _existing(folder, name)
    if not install:
        return _this_python(name)
    log(f"installing {name}")
    error = _create(folder, requirements)
    if error:
        return Environment(name=name, missing=f"not installed: {error}")
    stamp.write_text(wanted)
    return _existing(folder, name)


def _create(folder: Path, requirements: Sequence[str]) -> str:
    """Create an environment; the error if that fails."""
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


def _existing(folder: Path, name: str) -> Environment:
    text = subprocess.run(
        [_python(folder), "-P", "-c", _VERSIONS], check=True, capture_output=True, text=True
    ).stdout
    version = json.loads(text).get(name.lower(), "")
    return Environment(name=name, python=_python(folder), version=version, home=_home(folder))


def _this_python(name: str) -> Environment:
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
