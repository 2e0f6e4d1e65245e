"""Interface of backends, the backend of local folders, and the index of remote runs.

An entry of the index is a copy of a run's `run.json`, named `<run id>@<ns since the epoch>.json`, as times of
object storage have a resolution of seconds. Entries are written after `run.json` and deleted before it, so
each belongs to a complete run, unless another tool deleted it.
"""

from __future__ import annotations

import os
import re
import shutil
import stat
import time
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Protocol

import msgspec

from tracekit.runs import meta as run_meta
from tracekit.runs.index import Index, Stamp
from tracekit.runs.meta import RUN_ID, RunMeta, TableFile
from tracekit.runs.run import Run
from tracekit.runs.tables import Delivered, describe_file, seal, sealed, table_files
from tracekit.storage import Place, RemotePath, inside, locks
from tracekit.storage.atomic import TEMPORARY, delete, temporary_path


class Leftover(msgspec.Struct, frozen=True, kw_only=True):
    """A temporary folder of a writer or remover, running or aborted.

    Attributes:
        place: The folder.
        age_s: Seconds since the last write.
        bytes: Its size.
        owner: Description of its process.
        alive: Whether the process is running; None if unknown on this machine: then only its age indicates
            whether it is abandoned.
    """

    place: Place
    age_s: float
    bytes: int
    owner: str
    alive: bool | None


class Open(Protocol):
    """Interface of a draft in a backend.

    Attributes:
        path: A local folder, deleted with the draft.
        address: Place where files of the run are delivered.
    """

    @property
    def path(self) -> Path:
        """The local folder."""

    @property
    def address(self) -> Place:
        """The place of the run's files."""


class Keeper(Protocol):
    """Interface of a backend; all runs that it lists are complete, whenever it is killed.

    Attributes:
        beside: Local folder for other data of the store.
    """

    @property
    def beside(self) -> Path:
        """Path of that folder."""

    def listed(self, *, read: bool = False) -> list[Run]:
        """Return the complete runs, oldest first.

        Args:
            read: Read their metadata too, if concurrent reading is faster.
        """

    def prepare(self) -> None:
        """Create the local folder."""

    def draft(self, run_id: str | None) -> AbstractContextManager[Open]:
        """Create a draft, which is deleted at exit unless committed."""

    def commit(self, draft: Open, meta: RunMeta, delivered: Sequence[Delivered]) -> Run:
        """Commit a draft: move its tables and write `run.json` as the last file."""

    def remove(self, run: Run) -> None:
        """Delete a run; a partly deleted run is not listed."""

    def leftovers(self) -> list[Leftover]:
        """Return the temporary folders."""

    def free(self, leftover: Leftover) -> None:
        """Delete a leftover."""


_MARKED = re.compile(re.escape(TEMPORARY) + locks.MARK_PATTERN)


class LocalDraft(msgspec.Struct, frozen=True):
    """Draft in a hidden folder of the store, where files are delivered too."""

    path: Path

    @property
    def address(self) -> Path:
        """The folder itself."""
        return self.path


@dataclass(frozen=True)
class LocalKeeper:
    """Backend of a local folder, which need not exist yet."""

    path: Path
    _index: Index = field(init=False, compare=False, repr=False)

    def __post_init__(self) -> None:
        """Create the index in memory."""
        object.__setattr__(self, "_index", Index(self.path))

    @property
    def beside(self) -> Path:
        """The store itself, where names of other folders start with a dot."""
        return self.path

    def listed(self, *, read: bool = False) -> list[Run]:
        """Return the complete runs, oldest first, with their headers if they are to be read."""
        if not self.path.is_dir():
            return []
        named = [entry for entry in self.path.iterdir() if RUN_ID.fullmatch(entry.name)]
        found = [(entry, stamp) for entry in named if (stamp := _stamp(entry))]
        found.sort(key=lambda one: _age(*one))
        return self._index.runs(found) if read else [Run(entry) for entry, _ in found]

    @contextmanager
    def draft(self, run_id: str | None) -> Iterator[LocalDraft]:
        """Create a hidden folder, which is deleted at exit unless committed."""
        directory = temporary_path(self.path)
        self.prepare()
        directory.mkdir()
        try:
            with locks.hold(directory, blocking=False):
                yield LocalDraft(directory)
        finally:
            shutil.rmtree(directory, ignore_errors=True)

    def prepare(self) -> None:
        """Create the folder, and delete abandoned drafts."""
        self.path.mkdir(parents=True, exist_ok=True)
        ignore = self.path / ".gitignore"
        if not ignore.exists():
            ignore.write_text("*\n")
        for entry in self.path.iterdir():
            name = entry.name.removeprefix(TEMPORARY)
            if name != entry.name and locks.is_abandoned(entry, name):
                delete(entry)

    def commit(self, draft: Open, meta: RunMeta, delivered: Sequence[Delivered]) -> Run:
        """Write the digests of the tables to `run.json`, and rename the folder to the run's id."""
        run_meta.write(draft.path, replace(meta, tables=_sealed(draft.path, delivered)))
        target = self.path / meta.run_id
        draft.path.rename(target)
        return Run(target)

    def remove(self, run: Run) -> None:
        """Rename a run to a temporary name, then delete it."""
        grave = temporary_path(self.path)
        Path(str(run.path)).rename(grave)
        if grave.is_symlink():
            grave.unlink()
        else:
            shutil.rmtree(grave)

    def leftovers(self) -> list[Leftover]:
        """Return drafts and runs being deleted, also those of running processes."""
        found = self.path.iterdir() if self.path.is_dir() else ()
        return [_leftover(entry) for entry in found if _MARKED.fullmatch(entry.name)]

    def free(self, leftover: Leftover) -> None:
        """Delete a leftover."""
        delete(Path(str(leftover.place)))


def _sealed(folder: Path, delivered: Sequence[Delivered]) -> dict[str, TableFile]:
    """Return the entries of tables; delivered tables consist of the delivered files only."""
    if not delivered:
        return {name: seal(files) for name, files in table_files(folder)}
    expected = {(one.table, one.file.name) for one in delivered}
    own: list[Delivered] = []
    for name, files in table_files(folder):
        if name not in {one.table for one in delivered}:
            own += [describe_file(name, file) for file in files]
            continue
        for file in files:
            if (name, file.name) not in expected:
                file.unlink()
    return sealed([*delivered, *own])


def _leftover(entry: Path) -> Leftover:
    """Return the leftover of a hidden folder, whose name contains the process."""
    newest, size = 0.0, 0
    for file in (entry, *inside(entry, deep=True)):
        with suppress(OSError):
            status = file.lstat()
            newest, size = max(newest, status.st_mtime), size + status.st_size * file.is_file()
    mark = entry.name.removeprefix(TEMPORARY)
    pid, alive = mark.partition("-")[0].partition(".")[0], not locks.is_abandoned(entry, mark)
    return Leftover(
        place=entry,
        age_s=max(0.0, time.time() - newest),
        bytes=size,
        owner=f"process {pid}, {'which still runs' if alive else 'which has ended'}",
        alive=alive,
    )


def _stamp(run: Path) -> Stamp | None:
    """Return the state of a run's `run.json`; None if it is not a run.

    One system call, as a run may be deleted concurrently.
    """
    try:
        found = os.stat(f"{run}/{run_meta.FILE_NAME}")  # noqa: PTH116 (a path takes longer than the call)
    except OSError:
        return None
    return Stamp.of(found) if stat.S_ISREG(found.st_mode) else None


def _age(run: Path, stamp: Stamp) -> tuple[str, int, str]:
    """Return the sort key of a run: second of the run id, then time of `run.json`."""
    return run.name.partition("-")[0], stamp.written_ns, run.name


FOLDER = ".index"
_NAME = re.compile(r"(.+)@(\d{1,19})\.json")


@dataclass(frozen=True, kw_only=True)
class Entry:
    """Entry of the index.

    Attributes:
        place: The copy of `run.json`.
        written_ns: Time of writing, ns since the epoch, by the writer's clock.
    """

    place: RemotePath
    written_ns: int


def entries(store: RemotePath) -> dict[str, Entry]:
    """Return the entries by run id.

    Raises:
        OSError: Access is denied.
    """
    found = ((_NAME.fullmatch(one.name), one) for one in (store / FOLDER).iterdir())
    return {match[1]: Entry(place=place, written_ns=int(match[2])) for match, place in found if match}


def add(store: RemotePath, run_id: str, content: bytes) -> int:
    """Add a run with the content of its `run.json`; return the time of the entry."""
    now = time.time_ns()
    (store / FOLDER / f"{run_id}@{now}.json").write_bytes(content)
    return now


def drop(store: RemotePath, run_id: str) -> None:
    """Delete a run's entry, if it exists."""
    if entry := entries(store).get(run_id):
        entry.place.unlink(missing_ok=True)
