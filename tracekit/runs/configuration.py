"""What a project configures in its `pyproject.toml`, and a user by environment variables.

A key of `[tool.tracekit]` is the default of the option of that name in all commands, and one of
`[tool.tracekit.COMMAND]` in one command. The variables `TRACEKIT_OPTION` and `TRACEKIT_COMMAND_OPTION` take
precedence. `store` and lists of patterns also hold for `import tracekit`.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

from tracekit.errors import UnusableInputError

CONFIGURATION = "pyproject.toml"
PREFIX = "TRACEKIT_"
STORE = "store"
PATTERNS = ("communication", "serving")
"""Keys of lists of regular expressions, which are no options."""
PERSONAL = frozenset(
    (
        "allow_collect",
        "allow_delete",
        "also",
        "debug",
        "help",
        "host",
        "install",
        "open",
        "output",
        "version",
        "yes",
    )
)
"""Options that a project cannot set for its users: what they permit, delete, open or overwrite."""


@dataclass(frozen=True)
class Setting:
    """A configured value and where it was set: a variable, or a file with the table."""

    value: Any
    origin: str


def project_settings(folder: Path) -> tuple[Path | None, dict[str, Any]]:
    """Return `[tool.tracekit]` of the nearest `pyproject.toml`, and the file; None and empty without one.

    Args:
        folder: Where to begin; its parents are searched too.
    """
    for file in (place / CONFIGURATION for place in (folder, *folder.parents)):
        if file.is_file():
            table = _read(file)
            return (file, table) if table and isinstance(table, dict) else (None, {})
    return None, {}


@lru_cache(maxsize=4)  # each import of a run asks, and the file is rarely another one
def _parse(text: str) -> Any:
    import tomllib  # takes 7 ms, and few projects configure anything

    return tomllib.loads(text)


def _read(file: Path) -> Any:
    try:
        text = file.read_text("utf-8")
        return _parse(text)["tool"]["tracekit"] if "tracekit" in text else {}
    except (OSError, ValueError, LookupError, TypeError):
        return {}  # not a project of ours


def find_setting(
    command: str, option: str, folder: Path, environ: Mapping[str, str] = os.environ
) -> Setting | None:
    """Return what is configured for an option of a command; None if nothing is.

    Args:
        command: Name of the command.
        option: Name of the option with underscores.
        folder: Where to search for `pyproject.toml`.
        environ: The environment.

    Example:
        >>> find_setting("check", "threshold", Path("/"), {"TRACEKIT_THRESHOLD": "5%"})
        Setting(value='5%', origin='$TRACEKIT_THRESHOLD')
    """
    for variable in (f"{PREFIX}{command}_{option}", f"{PREFIX}{option}"):
        name = variable.upper().replace("-", "_")
        if environ.get(name):
            return Setting(environ[name], f"${name}")
    file, settings = project_settings(folder)
    own = settings.get(command)
    if option in PERSONAL:
        return None
    if isinstance(own, dict) and option in own:
        return Setting(own[option], f"[tool.tracekit.{command}] in {file}")
    if option in settings and not isinstance(settings[option], dict):
        return Setting(settings[option], f"[tool.tracekit] in {file}")
    return None


def configured_store(folder: Path) -> str | None:
    """Return the store of a project: a path in its file is relative to the file; None if it has none.

    Raises:
        UnusableInputError: It is not text.
    """
    file, settings = project_settings(folder)
    place = settings.get(STORE)
    if file is None or place is None:
        return None
    if not isinstance(place, str) or not place:
        raise UnusableInputError(f"{file}: `store` in [tool.tracekit] is not a path or an address")
    is_relative = "://" not in place and not place.startswith("~")
    return str(file.parent / place) if is_relative else place


def patterns(key: str, folder: Path, *, hint: str) -> list[str]:
    """Return the regular expressions of a key of `[tool.tracekit]`, from the nearest `pyproject.toml`.

    Args:
        key: The key.
        folder: Where to begin; its parents are searched too.
        hint: What to do if they cannot be used.

    Raises:
        UnusableInputError: They are not a list of regular expressions.

    Example:
        >>> from pathlib import Path
        >>> patterns("communication", Path("/"), hint="")
        []
    """
    file, settings = project_settings(folder)
    try:
        return [re.compile(pattern).pattern for pattern in settings.get(key, ()) if pattern]
    except (re.error, TypeError) as error:
        message = f"{file}: `{key}` in [tool.tracekit] is not a list of regular expressions: {error}"
        raise UnusableInputError(message, hint=hint) from error
