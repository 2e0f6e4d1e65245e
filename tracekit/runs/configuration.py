"""What a project configures in its `pyproject.toml`."""

from __future__ import annotations

import re
import tomllib
from functools import lru_cache
from pathlib import Path
from typing import Any

from tracekit.errors import UnusableInputError

CONFIGURATION = "pyproject.toml"


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
    for file in (place / CONFIGURATION for place in (folder, *folder.parents)):
        if file.is_file():
            return _patterns(file, key, hint)
    return []


def _patterns(file: Path, key: str, hint: str) -> list[str]:
    try:
        settings: Any = _parse(file.read_text("utf-8"))
        for name in ("tool", "tracekit", key):
            settings = settings[name]
    except (OSError, ValueError, LookupError, TypeError):
        return []  # not a project of ours
    try:
        return [re.compile(pattern).pattern for pattern in settings if pattern]
    except (re.error, TypeError) as error:
        message = f"{file}: `{key}` in [tool.tracekit] is not a list of regular expressions: {error}"
        raise UnusableInputError(message, hint=hint) from error


_parse = lru_cache(maxsize=4)(tomllib.loads)  # each import of a run asks, and the file is rarely another one
