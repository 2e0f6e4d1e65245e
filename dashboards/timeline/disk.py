"""Indexes on disk: in the store's folder `.timeline`, one folder a run, whole or not at all."""

from __future__ import annotations

import contextlib
import re
import shutil
import zipfile
from typing import TYPE_CHECKING, Any

import msgspec
import numpy as np

from tracekit import owners
from tracekit.errors import UnusableInputError

from .build import VERSION, Outline

if TYPE_CHECKING:
    from pathlib import Path

    from tracekit.store import Store

    from .build import Arrays

FOLDER = ".timeline"
_OUTLINE, _CAUSES = "outline.json", "causes.npz"
_ARRAYS = ("start", "total", "row", "label", "masks", "places", "lengths")
_TEMPORARY = re.compile(rf"\.tmp-({owners.PATTERN})(?:\.npz)?")


def place(store: Store, run_id: str) -> Path:
    """Where the index of a run is kept."""
    return store.beside / FOLDER / run_id / f"v{VERSION}"


def load(folder: Path, seal: dict[str, str]) -> tuple[Outline, Arrays] | None:
    """What is kept of a run with this seal, its arrays mapped into memory; None when nothing whole is."""
    try:
        outline = msgspec.json.decode((folder / _OUTLINE).read_bytes(), type=Outline)
        if outline.seal != seal:
            return None
        return outline, {name: _mapped(folder / f"{name}.npy") for name in _ARRAYS}
    except (OSError, ValueError, msgspec.MsgspecError):
        return None


def _mapped(path: Path) -> Any:
    """An array of a file, mapped; one without elements cannot be."""
    array = np.load(path, mmap_mode="r", allow_pickle=False)
    return np.array(array) if not array.size else array


def save(store: Store, run_id: str, outline: Outline, arrays: Arrays) -> bool:
    """Keep an index; whoever else keeps one of the same run at the same time leaves one of them.

    Returns:
        Whether it can be loaded now; False where the store cannot be written.
    """
    target = place(store, run_id)
    try:
        temporary = store.folder(FOLDER) / f".tmp-{owners.mark()}"
        with store.writing():
            temporary.mkdir()
    except UnusableInputError:
        return False
    try:
        for name in _ARRAYS:
            np.save(temporary / f"{name}.npy", arrays[name], allow_pickle=False)
        (temporary / _OUTLINE).write_bytes(msgspec.json.encode(outline))
        target.parent.mkdir(exist_ok=True)
        _move(temporary, target, outline)
    except OSError:
        return False
    finally:
        shutil.rmtree(temporary, ignore_errors=True)
    return True


def _move(temporary: Path, target: Path, outline: Outline) -> None:
    """Rename into place; what is there already stays if it is of the same run and whole."""
    if target.exists() and load(target, outline.seal) is None:
        grave = temporary.with_name(f".tmp-{owners.mark()}")
        with contextlib.suppress(OSError):  # at once: somebody may still be writing causes into it
            target.rename(grave)
        shutil.rmtree(grave, ignore_errors=True)
    try:
        temporary.rename(target)
    except OSError:
        if load(target, outline.seal) is None:
            raise


def save_causes(folder: Path, arrays: dict[str, Any]) -> None:
    """Keep the causes of idle time beside their index, where that is on disk; a failure is no loss."""
    temporary = folder / f".tmp-{owners.mark()}.npz"
    with contextlib.suppress(OSError):
        try:
            np.savez(temporary, **arrays)
            temporary.rename(folder / _CAUSES)
        finally:
            temporary.unlink(missing_ok=True)


def load_causes(folder: Path) -> dict[str, Any] | None:
    """What `save_causes` kept; None when there is none."""
    try:
        with np.load(folder / _CAUSES, allow_pickle=False) as kept:
            return {name: kept[name] for name in kept.files}
    except (OSError, ValueError, zipfile.BadZipFile):
        return None


def sweep(store: Store) -> None:
    """Delete the indexes of runs that are gone, of older versions, and what was never finished."""
    folder = store.beside / FOLDER
    if not folder.is_dir():
        return
    entries = list(folder.iterdir())  # before the runs: one that is stored meanwhile is not taken for gone
    runs = {run.path.name for run in store.runs()}
    for entry in entries:
        if _left_over(entry) or (entry.name not in runs and not _TEMPORARY.fullmatch(entry.name)):
            shutil.rmtree(entry, ignore_errors=True)
        elif entry.name in runs:
            _tidy(entry)


def _tidy(folder: Path) -> None:
    """Delete what a run's folder has beside its index of this version."""
    for version in folder.iterdir():
        if version.name != f"v{VERSION}":
            shutil.rmtree(version, ignore_errors=True)
            continue
        for file in version.iterdir():
            if _left_over(file):
                file.unlink(missing_ok=True)


def _left_over(path: Path) -> bool:
    """Whether it is of a process that has ended before it was finished."""
    temporary = _TEMPORARY.fullmatch(path.name)
    return temporary is not None and owners.is_dead(temporary[1])
