"""Where an export goes: written beside its place and moved there when it is whole."""

from __future__ import annotations

import os
import secrets
import shutil
from contextlib import contextmanager
from typing import TYPE_CHECKING

from tracekit.errors import UnusableInputError
from tracekit.meta import FILE_NAME
from tracekit.schema import TABLES

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


@contextmanager
def whole(path: Path, *, overwrite: bool) -> Iterator[Path]:
    """A path that becomes `path` when the block ends well, and vanishes otherwise.

    Args:
        path: Where it goes.
        overwrite: Whether a file, or the folder of an earlier export, may give way to it.

    Raises:
        UnusableInputError: Something is there already, or it cannot be written.
    """
    if path.is_dir() and not (overwrite and _made(path)):
        hint = "choose another -o" if overwrite else "use --force to overwrite it, or choose another -o"
        why = " and contains other files" if overwrite else ""
        raise UnusableInputError(f"the folder {path} already exists{why}", hint=hint)
    if path.exists() and not overwrite:
        raise UnusableInputError(
            f"{path} already exists", hint="use --force to overwrite it, or choose another -o"
        )
    beside = path.with_name(f".{os.getpid()}-{secrets.token_hex(4)}-{path.name}")
    try:
        yield beside
        if path.is_dir() and not path.is_symlink():
            _remove(path)
        beside.replace(path)
    except BrokenPipeError:
        raise
    except OSError as error:
        reason = os.strerror(error.errno) if error.errno else str(error)
        raise UnusableInputError(f"{path} cannot be written: {reason}", hint="choose another -o") from error
    finally:
        _remove(beside)


def _made(folder: Path) -> bool:
    """Whether a folder holds nothing but what an export writes."""
    ours = {f"{table}{ending}" for table in TABLES for ending in (".csv", ".parquet")} | {FILE_NAME}
    return all(entry.name in ours for entry in folder.iterdir())


def _remove(path: Path) -> None:
    if path.is_dir():
        shutil.rmtree(path, ignore_errors=True)
    else:
        path.unlink(missing_ok=True)
