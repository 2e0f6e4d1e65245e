"""Backend of local folders."""

from __future__ import annotations

import os
import re
import shutil
import stat
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from pathlib import Path

import msgspec

from tracekit.runs import meta as run_meta
from tracekit.runs.index import Index, Stamp
from tracekit.runs.meta import RUN_ID, RunMeta, TableFile
from tracekit.runs.run import Run
from tracekit.runs.tables import WrittenFile, describe_file, table_entries, table_files, whole_entry
from tracekit.storage import Place, inside, locks
from tracekit.storage.atomic import TEMPORARY, delete, temporary_path


class Leftover(msgspec.Struct, frozen=True, kw_only=True):
    """A temporary folder of a writer or remover, running or aborted."""

    place: Place  # the folder
    age_s: float  # seconds since the last write
    bytes: int  # its size
    owner: str  # description of its process
    # whether the process is running; None if unknown on this machine: then only its age indicates whether it
    # is abandoned
    alive: bool | None


_MARKED = re.compile(re.escape(TEMPORARY) + locks.MARK_PATTERN)


@dataclass(frozen=True)
class LocalBackend:
    """Backend of a local folder, which need not exist yet."""

    path: Path
    _index: Index = field(init=False, compare=False, repr=False)

    def __post_init__(self) -> None:
        """Create the index in memory."""
        object.__setattr__(self, "_index", Index(self.path))

    @property
    def local_folder(self) -> Path:
        """The store itself, where names of other folders start with a dot."""
        return self.path

    def list_runs(self, *, read: bool = False) -> list[Run]:
        """Return the complete runs, oldest first, with their headers if they are to be read."""
        if not self.path.is_dir():
            return []
        folders = [entry for entry in self.path.iterdir() if RUN_ID.fullmatch(entry.name)]
        stamped = [(folder, stamp) for folder in folders if (stamp := _stamp(folder))]
        # by the second of the run id, then by the time of `run.json`
        stamped.sort(key=lambda run: (run[0].name.partition("-")[0], run[1].written_ns, run[0].name))
        return self._index.runs(stamped) if read else [Run(folder) for folder, _ in stamped]

    @contextmanager
    def draft(self, _run_id: str | None) -> Iterator[tuple[Path, Path]]:
        """Create a hidden folder, which is deleted at exit unless committed; it is also the address."""
        directory = temporary_path(self.path)
        self.prepare()
        directory.mkdir()
        # The lock tells processes of other containers, which cannot see this one, that the draft is in use.
        try:
            with locks.hold(directory, blocking=False):
                yield directory, directory
        finally:
            shutil.rmtree(directory, ignore_errors=True)

    def prepare(self) -> None:
        """Create the folder, and delete abandoned drafts."""
        self.path.mkdir(parents=True, exist_ok=True)
        ignore = self.path / ".gitignore"
        if not ignore.exists():  # a store in a repository is not committed
            ignore.write_text("*\n")
        for entry in self.path.iterdir():
            name = entry.name.removeprefix(TEMPORARY)
            if name != entry.name and locks.is_abandoned(entry, name):
                delete(entry)

    def commit(self, draft: Path, _address: Place, meta: RunMeta, written: Sequence[WrittenFile]) -> Run:
        """Write the digests of the tables to `run.json`, and rename the folder to the run's id."""
        run_meta.write(draft, replace(meta, tables=_table_entries(draft, written)))
        target = self.path / meta.run_id
        draft.rename(target)  # from here on the run is listed, with all its files
        return Run(target)

    def remove(self, run: Run) -> None:
        """Rename a run to a temporary name, then delete it."""
        grave = temporary_path(self.path)
        Path(str(run.path)).rename(grave)
        if grave.is_symlink():  # a linked run is removed from the store, not deleted where it is
            grave.unlink()
        else:
            shutil.rmtree(grave)

    def leftovers(self) -> list[Leftover]:
        """Return drafts and runs being deleted, also those of running processes."""
        entries = self.path.iterdir() if self.path.is_dir() else ()
        return [_leftover(entry) for entry in entries if _MARKED.fullmatch(entry.name)]

    def delete_leftover(self, leftover: Leftover) -> None:
        """Delete a leftover."""
        delete(Path(str(leftover.place)))


def _table_entries(folder: Path, written: Sequence[WrittenFile]) -> dict[str, TableFile]:
    """Return the entries of tables; those with reported files consist of these only."""
    # Others are of tasks that were done twice or that nobody waited for.
    if not written:
        return {name: whole_entry(files) for name, files in table_files(folder)}
    reported = {(part.table, part.file.name) for part in written}
    tables = {part.table for part in written}
    described: list[WrittenFile] = []
    for name, files in table_files(folder):
        for file in files:
            if name not in tables:
                described.append(describe_file(name, file))
            elif (name, file.name) not in reported:
                file.unlink()
    return table_entries([*written, *described])


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
    """Return the state of a run's `run.json`; None if it is not a run."""
    # One system call, as a run may be deleted concurrently.
    try:
        status = os.stat(f"{run}/{run_meta.FILE_NAME}")  # noqa: PTH116 (a path takes longer than the call)
    except OSError:
        return None
    return Stamp.of(status) if stat.S_ISREG(status.st_mode) else None
