"""What a store asks of the place that its runs are at.

An entry is a copy of a run's `run.json`, named `<run id>@<ns since the epoch>.json`: the service's own times
are of whole seconds, and of two runs within one the later must be known. Entries are written after `run.json`
and deleted before, so each is of a whole run, except where another tool deleted that.
"""

from __future__ import annotations

import re
import shutil
import stat
import time
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

import msgspec

from tracekit.runs import meta as run_meta
from tracekit.runs.meta import RUN_ID
from tracekit.runs.run import Run
from tracekit.runs.tables import seal, sealed, table_files, told_of
from tracekit.storage import inside, owners

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from contextlib import AbstractContextManager

    from tracekit.runs.meta import RunMeta, TableFile
    from tracekit.runs.tables import Delivered
    from tracekit.storage import Place, RemotePath


class Leftover(msgspec.Struct, frozen=True, kw_only=True):
    """What a writer or remover that did not come to its end left in a store; never listed, never needed.

    Attributes:
        place: The folder.
        age_s: Seconds since something was last written in it.
        bytes: What it takes up.
        owner: Who began it, in words.
        alive: Whether that process still runs; None where that cannot be told from this machine: then only
            its age says whether it is given up.
    """

    place: Place
    age_s: float
    bytes: int
    owner: str
    alive: bool | None


class Open(Protocol):
    """A draft, as its keeper knows it.

    Attributes:
        path: A folder of this machine that vanishes with the draft.
        address: Where files of the run are delivered.
    """

    @property
    def path(self) -> Path:
        """A folder of this machine."""

    @property
    def address(self) -> Place:
        """Where the run's files go."""


class Keeper(Protocol):
    """Keeps runs at a place; whatever happens to it, a run that it lists is whole.

    Attributes:
        beside: Folder of this machine for what belongs to the store and is no run.
    """

    @property
    def beside(self) -> Path:
        """Where that folder is."""

    def listed(self, *, read: bool = False) -> list[Run]:
        """The whole runs, oldest first.

        Args:
            read: Read their metadata, too, where doing so one after the other would take long.
        """

    def prepare(self) -> None:
        """Make the store's own folder on this machine."""

    def draft(self, run_id: str | None) -> AbstractContextManager[Open]:
        """A place to write a run to; what is not committed vanishes."""

    def commit(self, draft: Open, meta: RunMeta, delivered: Sequence[Delivered]) -> Run:
        """Make a draft a run: its tables are put where they stay and told in `run.json`, which comes last."""

    def remove(self, run: Run) -> None:
        """Delete a run; half deleted, it is not listed."""

    def leftovers(self) -> list[Leftover]:
        """What those who did not come to an end left."""

    def free(self, leftover: Leftover) -> None:
        """Delete a leftover."""


TEMPORARY = ".tmp-"
"""How what is not whole yet, or not any more, is named; the owner's mark follows."""
_MARKED = re.compile(re.escape(TEMPORARY) + owners.PATTERN)


class LocalDraft(msgspec.Struct, frozen=True):
    """A hidden folder of the store, to which files are delivered, too."""

    path: Path

    @property
    def address(self) -> Path:
        """The folder itself."""
        return self.path


class LocalKeeper(msgspec.Struct, frozen=True):
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
        named = [entry for entry in self.path.iterdir() if RUN_ID.fullmatch(entry.name)]
        aged = [(age, entry) for entry in named if (age := _age(entry))]
        return [Run(entry) for _, entry in sorted(aged)]

    @contextmanager
    def draft(self, run_id: str | None) -> Iterator[LocalDraft]:
        """A hidden folder to write a run into; it vanishes unless it is committed."""
        directory = self._temporary()
        self.prepare()
        directory.mkdir()
        try:
            with owners.holding(directory):
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
            name = entry.name.removeprefix(TEMPORARY)
            if name != entry.name and owners.is_abandoned(entry, name):
                discard(entry)

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
        if grave.is_symlink():
            grave.unlink()
        else:
            shutil.rmtree(grave)

    def leftovers(self) -> list[Leftover]:
        """Drafts and graves, those of living processes among them."""
        found = self.path.iterdir() if self.path.is_dir() else ()
        return [_leftover(entry) for entry in found if _MARKED.fullmatch(entry.name)]

    def free(self, leftover: Leftover) -> None:
        """Delete a leftover."""
        discard(Path(str(leftover.place)))

    def _temporary(self) -> Path:
        return self.path / f"{TEMPORARY}{owners.mark()}"


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


def _leftover(entry: Path) -> Leftover:
    """A hidden folder; its name tells the process."""
    newest, size = 0.0, 0
    for file in (entry, *inside(entry, deep=True)):
        with suppress(OSError):
            told = file.lstat()
            newest, size = max(newest, told.st_mtime), size + told.st_size * file.is_file()
    mark = entry.name.removeprefix(TEMPORARY)
    pid, alive = mark.partition("-")[0].partition(".")[0], not owners.is_abandoned(entry, mark)
    return Leftover(
        place=entry,
        age_s=max(0.0, time.time() - newest),
        bytes=size,
        owner=f"process {pid}, {'which still runs' if alive else 'which has ended'}",
        alive=alive,
    )


def _age(run: Path) -> tuple[str, int, str] | None:
    """Sorts runs by time; within the second of the run id, by when they were sealed. None for what is none.

    Asked once: a run may be deleted meanwhile.
    """
    try:
        sealed = (run / run_meta.FILE_NAME).stat()
    except OSError:
        return None
    if not stat.S_ISREG(sealed.st_mode):
        return None
    return run.name.partition("-")[0], sealed.st_mtime_ns, run.name


def discard(path: Path) -> None:
    """Delete a folder or a file, as far as that goes; of a link, the link alone."""
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path, ignore_errors=True)
    else:
        with suppress(OSError):
            path.unlink()


FOLDER = ".index"
_NAME = re.compile(r"(.+)@(\d{1,19})\.json")


@dataclass(frozen=True, kw_only=True)
class Entry:
    """What the index has of a run.

    Attributes:
        place: The copy of its `run.json`.
        written_ns: When it was written, ns since the epoch, by the writer's clock.
    """

    place: RemotePath
    written_ns: int


def entries(store: RemotePath) -> dict[str, Entry]:
    """The entries by run id.

    Raises:
        OSError: The service refuses.
    """
    found = ((_NAME.fullmatch(one.name), one) for one in (store / FOLDER).iterdir())
    return {match[1]: Entry(place=place, written_ns=int(match[2])) for match, place in found if match}


def add(store: RemotePath, run_id: str, content: bytes) -> int:
    """Add a run, whose `run.json` has this content; returns the time that it is given."""
    now = time.time_ns()
    (store / FOLDER / f"{run_id}@{now}.json").write_bytes(content)
    return now


def drop(store: RemotePath, run_id: str) -> None:
    """Delete a run's entry, if it has one."""
    if entry := entries(store).get(run_id):
        entry.place.unlink(missing_ok=True)
