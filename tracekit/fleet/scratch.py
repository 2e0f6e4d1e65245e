"""Where a task may keep on its machine what a later one goes on with."""

from __future__ import annotations

import tempfile
from contextlib import contextmanager
from contextvars import ContextVar
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

_FOLDER: ContextVar[Path | None] = ContextVar("scratch", default=None)


def scratch() -> Path:
    """The folder for files between tasks: what a worker of a cluster was started with, else the system's.

    Nobody empties it but those who fill it; a later task finds its files only on the same host.
    """
    return _FOLDER.get() or Path(tempfile.gettempdir())


@contextmanager
def scratch_at(folder: Path) -> Iterator[None]:
    """Have `scratch` name this folder."""
    token = _FOLDER.set(folder)
    try:
        yield
    finally:
        _FOLDER.reset(token)
