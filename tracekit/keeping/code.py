"""The version of an analysis: what its own files and those it builds on contain.

A number that people raise by hand is forgotten when a helper changes; a kept number would then be wrong.
"""

from __future__ import annotations

import hashlib
import platform
import sys
from functools import cache
from importlib import metadata
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pandas as pd
import pyarrow as pa

import tracekit
from tracekit.schema import SCHEMA_VERSION

if TYPE_CHECKING:
    from tracekit.analysis import Analysis

_PARTS = {".py", ".json"}
"""Endings of files that decide what an analysis gives: its code and its tables of devices."""


def version(analysis: Analysis) -> str | None:
    """What changes whenever the analysis may give something else; None where its code is in no file.

    Example:
        >>> from tracekit.analysis import get
        >>> version(get("steps")) == version(get("steps")) != version(get("ops"))
        True
    """
    folders = _folders(analysis.compute.__module__)
    if not folders:
        return None
    parts = [analysis.name, *_surroundings(), *(_digest(folder) for folder in (_core(), *folders))]
    return hashlib.sha256("\n".join(parts).encode()).hexdigest()


def _surroundings() -> list[str]:
    """The schema of runs, and the versions of what analyses compute with."""
    libraries = [library.__version__ for library in (np, pd, pa)]
    schema = f"schema {SCHEMA_VERSION}"
    return [schema, tracekit.__version__, platform.python_version(), *libraries, metadata.version("scipy")]


def _core() -> Path:
    return Path(tracekit.__file__).parent


def _folders(module: str) -> list[Path]:
    """The folders of the packages a module is in; the module's own file where it is in none."""
    names = module.split(".")
    packages = [sys.modules.get(".".join(names[:end])) for end in range(1, len(names))]
    folders = [Path(place) for package in packages for place in getattr(package, "__path__", ())]
    own = getattr(sys.modules.get(module), "__file__", None)
    return folders if folders or own is None else [Path(own)]


@cache
def _digest(place: Path) -> str:
    """The digest of a file, or of what a folder has in it."""
    digest = hashlib.sha256()
    found = [place] if place.is_file() else sorted(one for one in place.rglob("*") if one.suffix in _PARTS)
    for file in found:
        digest.update(f"{file.relative_to(place)}\n".encode())
        digest.update(file.read_bytes())
    return digest.hexdigest()
