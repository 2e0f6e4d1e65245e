"""Runs in a folder of this machine: written to a hidden folder beside and renamed into place."""

from __future__ import annotations

import os
import re
import secrets
import shutil
import time
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

import psutil

from tracekit import meta as run_meta
from tracekit.parts import seal, sealed, table_files, told_of
from tracekit.run import RUN_ID, Run

from .keeper import Leftover

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from tracekit.meta import RunMeta, TableFile
    from tracekit.parts import Delivered

    from .keeper import Open

_TEMPORARY = re.compile(r"\.tmp-(\d+)-[0-9a-f]+")


@dataclass(frozen=True)
class LocalDraft:
    """A hidden folder of the store, to which files are delivered, too."""

    path: Path

    @property
    def address(self) -> Path:
        """The folder itself."""
        return self.path


@dataclass(frozen=True)
class LocalKeeper:
    """Runs under one folder, which need not exist yet."""

    path: Path

    @property
    def beside(self) -> Path:
        """The store itself, whose other folders have names that begin with a dot."""
        return self.path

    def listed(self, *, read: bool = False) -> list[Run]:
        """The whole runs, oldest first; they are read when asked, which takes no time here."""
        if not self.path.is_dir():
            return []
        entries = [
            entry
            for entry in self.path.iterdir()
            if RUN_ID.fullmatch(entry.name) and (entry / run_meta.FILE_NAME).is_file()
        ]
        return [Run(entry) for entry in sorted(entries, key=_age)]

    @contextmanager
    def draft(self, run_id: str | None) -> Iterator[LocalDraft]:
        """A hidden folder to write a run into; it vanishes unless it is committed."""
        directory = self._temporary()
        self.prepare()
        directory.mkdir()
        try:
            yield LocalDraft(directory)
        finally:
            shutil.rmtree(directory, ignore_errors=True)

    def prepare(self) -> None:
        """Make the folder, and free it of what ended processes left."""
        self.path.mkdir(parents=True, exist_ok=True)
        ignore = self.path / ".gitignore"
        if not ignore.exists():
            ignore.write_text("*\n")
        for entry in self.path.iterdir():
            match = _TEMPORARY.fullmatch(entry.name)
            if match and not psutil.pid_exists(int(match[1])):
                shutil.rmtree(entry, ignore_errors=True)

    def commit(self, draft: Open, meta: RunMeta, delivered: Sequence[Delivered]) -> Run:
        """Seal the tables in `run.json` and rename the folder to the run's id."""
        run_meta.write(draft.path, replace(meta, tables=_sealed(draft.path, delivered)))
        target = self.path / meta.run_id
        draft.path.rename(target)
        return Run(target)

    def remove(self, run: Run) -> None:
        """Delete a run: it is renamed first."""
        grave = self._temporary()
        Path(str(run.path)).rename(grave)
        shutil.rmtree(grave)

    def leftovers(self) -> list[Leftover]:
        """Drafts and graves, those of living processes among them."""
        found = self.path.iterdir() if self.path.is_dir() else ()
        pairs = ((entry, _TEMPORARY.fullmatch(entry.name)) for entry in found)
        return [_leftover(entry, int(match[1])) for entry, match in pairs if match]

    def free(self, leftover: Leftover) -> None:
        """Delete a leftover."""
        shutil.rmtree(Path(str(leftover.place)))

    def _temporary(self) -> Path:
        return self.path / f".tmp-{os.getpid()}-{secrets.token_hex(4)}"


def _sealed(folder: Path, delivered: Sequence[Delivered]) -> dict[str, TableFile]:
    """What the tables are; one that was delivered consists of what is told of, and of nothing else."""
    if not delivered:
        return {name: seal(files) for name, files in table_files(folder)}
    kept = {(one.table, one.file.name) for one in delivered}
    own: list[Delivered] = []
    for name, files in table_files(folder):
        if name not in {one.table for one in delivered}:
            own += [told_of(name, file) for file in files]
            continue
        for file in files:
            if (name, file.name) not in kept:
                file.unlink()
    return sealed([*delivered, *own])


def _leftover(entry: Path, pid: int) -> Leftover:
    """A hidden folder; its name tells the process, which began before the folder was made."""
    newest, size = 0.0, 0
    for file in (entry, *entry.rglob("*")):
        with suppress(OSError):
            stat = file.lstat()
            newest, size = max(newest, stat.st_mtime), size + stat.st_size * file.is_file()
    alive = psutil.pid_exists(pid)
    return Leftover(
        place=entry,
        age_s=max(0.0, time.time() - newest),
        bytes=size,
        owner=f"process {pid}, {'which still runs' if alive else 'which has ended'}",
        alive=alive,
    )


def _age(run: Path) -> tuple[str, int, str]:
    """Sorts runs by time; within the second of the run id, by when they were sealed."""
    return run.name.partition("-")[0], (run / run_meta.FILE_NAME).stat().st_mtime_ns, run.name
