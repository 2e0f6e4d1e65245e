"""Backend of stores on object storage, with local copies of `run.json`.

A run is complete when its `run.json` exists. The index, the folder `.index`, lists a thousand complete runs
with one request; folders that are not in it, as in a copied store, are checked for `run.json`. An entry of
the index is a copy of `run.json`, named `<run id>@<ns since the epoch>.json`, as times of object storage have
a resolution of seconds. Entries are written after `run.json` and deleted before it, so each belongs to a
complete run, unless another tool deleted that.
"""

from __future__ import annotations

import hashlib
import os
import platform
import re
import time
import uuid
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, nullcontext, suppress
from dataclasses import dataclass, field, replace
from functools import cache
from pathlib import Path
from typing import NamedTuple

import msgspec
import psutil

from tracekit import storage
from tracekit.errors import TracekitError
from tracekit.runs import meta as run_meta
from tracekit.runs.backends.local import Leftover, LocalBackend
from tracekit.runs.meta import RUN_ID, RunMeta
from tracekit.runs.run import Run
from tracekit.runs.tables import WrittenFile, move_to_draft, table_entries
from tracekit.storage import Place, RemotePath, locks
from tracekit.storage.filesystems import RemoteError

WRITER = "draft.json"
"""File in a run's folder that names its writer until the run is complete."""
INDEX = ".index"
_ENTRY = re.compile(r"(.+)@(\d{1,19})\.json")
MAX_REQUESTS = 32
"""Number of concurrent requests."""
_START_TOLERANCE = 2.0  # in the unit of `Writer.started`
_BOOT_ID = Path("/proc/sys/kernel/random/boot_id")


@dataclass(frozen=True, kw_only=True)
class Writer:
    """A process on a machine, distinct from later processes with the same id."""

    machine: str  # digest that identifies a machine
    pid: int  # process id
    started: float  # start time in clock ticks since boot; without `/proc`, in seconds since the epoch

    @property
    def alive(self) -> bool | None:
        """Return whether it is running; None if it is of another machine."""
        if self.machine != _machine():
            return None
        return abs(_start_time(self.pid) - self.started) < _START_TOLERANCE

    def __str__(self) -> str:
        if self.alive is None:
            return f"process {self.pid} of another machine"
        return f"process {self.pid}, {'which still runs' if self.alive else 'which has ended'}"


def _start_time(pid: int) -> float:
    """Return when a process started, in the unit of `Writer.started`; -1 if it has ended."""
    ticks = locks.start_ticks(pid)
    if ticks is not None:
        return ticks
    try:
        return float(psutil.Process(pid).create_time())
    except psutil.Error:
        return -1.0


@cache
def _machine() -> str:
    """Return a digest of this machine and its boot, which does not depend on the clock where /proc exists."""
    try:
        boot = _BOOT_ID.read_text().strip()
    except OSError:
        boot = f"{psutil.boot_time():.0f}"
    text = f"{platform.node()} {uuid.getnode():x} {boot}"
    return hashlib.sha256(text.encode()).hexdigest()[:16]


class Entry(NamedTuple):
    """Entry of the index: the copy of `run.json`, and when it was written by the writer's clock, ns."""

    place: RemotePath
    written_ns: int


@dataclass(frozen=True)
class RemoteBackend:
    """Backend of an address."""

    path: RemotePath
    _read_runs: dict[str, Run] = field(default_factory=dict, compare=False, repr=False)

    @property
    def local_folder(self) -> Path:
        """Folder of the user's cache for this store."""
        return storage.cache_folder("stores") / hashlib.sha256(str(self.path).encode()).hexdigest()[:16]

    @property
    def _local(self) -> LocalBackend:
        return LocalBackend(self.local_folder)

    def prepare(self) -> None:
        """Create the local folder."""
        self._local.prepare()

    def list_runs(self, *, read: bool = False) -> list[Run]:
        """Return the complete runs, oldest first."""
        return self._find_complete(*self._list_folders(), read=read)

    def _find_complete(
        self, folders: set[str], entries: dict[str, Entry], *, read: bool = False
    ) -> list[Run]:
        with ThreadPoolExecutor(MAX_REQUESTS) as threads:
            runs = list(threads.map(lambda name: self._find(name, entries.get(name), read=read), folders))
        return [run for *_, run in sorted((run for run in runs if run), key=lambda run: run[:3])]

    def _find(self, name: str, entry: Entry | None, *, read: bool) -> tuple[str, int, str, Run] | None:
        """Return start of the id, time of `run.json`, and id, by which runs are sorted, and the run.

        None if it is not a run.
        """
        manifest = entry.place if entry else self.path / name / run_meta.FILE_NAME
        try:
            stat = manifest.stat()
        except FileNotFoundError:
            return None
        manifest = replace(manifest, listed=stat)  # not requested again
        written_ns = entry.written_ns if entry else stat.st_mtime_ns
        run = self._read(name, manifest, written_ns) if read else Run(self.path / name)
        return name.partition("-")[0], written_ns, name, run

    def _read(self, name: str, manifest: RemotePath, written_ns: int) -> Run:
        if (cached := self._read_runs.get(name)) and cached.written_ns == written_ns:
            return cached
        run = Run(self.path / name)
        try:
            meta = run_meta.decode(self._content(name, manifest), run.path)
        except (TracekitError, msgspec.MsgspecError, OSError, ValueError):
            return run  # raises the error when it is read
        self._read_runs[name] = run = Run.from_metadata(run.path, written_ns, meta=meta)
        return run

    def _content(self, name: str, manifest: RemotePath) -> bytes:
        """Return the content of a `run.json`, from the local copy if its size and time match."""
        copy, remote = self.local_folder / "manifests" / f"{name}.json", manifest.stat()
        with suppress(OSError):
            local = copy.stat()
            if (local.st_size, local.st_mtime_ns) == (remote.st_size, remote.st_mtime_ns):
                return copy.read_bytes()
        content = manifest.read_bytes()
        with suppress(OSError), storage.put(copy) as file:  # the cache may not be writable
            file.write_bytes(content)
            os.utime(file, ns=(remote.st_mtime_ns, remote.st_mtime_ns))
        return content

    def _list_folders(self) -> tuple[set[str], dict[str, Entry]]:
        """Return the folders that may be runs, and the entries of the index."""
        with ThreadPoolExecutor(2) as threads:  # each is at least one round trip
            entries = threads.submit(self._entries)
            content = list(self.path.iterdir())
        if not content and not (self.path, *self.path.parents)[-1].is_dir():
            raise RemoteError("the bucket does not exist")
        folders = {path.name for path in content if RUN_ID.fullmatch(path.name) and path.is_dir()}
        return folders, entries.result()

    def _entries(self) -> dict[str, Entry]:
        """Return the entries of the index by run id."""
        matches = ((_ENTRY.fullmatch(place.name), place) for place in (self.path / INDEX).iterdir())
        return {match[1]: Entry(place, int(match[2])) for match, place in matches if match}

    @contextmanager
    def draft(self, run_id: str | None) -> Iterator[tuple[Path, Place]]:
        """Create a local folder and, with a run id, a remote address; deleted at exit unless committed."""
        with self._local.draft(None) as (folder, _):
            if run_id is None:
                yield folder, folder
                return
            address = self.path / run_id
            with self._claim(address):
                yield folder, address

    @contextmanager
    def _claim(self, address: RemotePath) -> Iterator[None]:
        """Name this process as the writer of a folder, and delete the folder at exit unless committed."""
        process = Writer(machine=_machine(), pid=os.getpid(), started=_start_time(os.getpid()))
        writer, manifest = address / WRITER, address / run_meta.FILE_NAME
        writer.write_bytes(msgspec.json.encode(process))
        try:
            yield
        finally:
            with suppress(OSError):
                if manifest.is_file():
                    writer.unlink(missing_ok=True)
                else:
                    address.remove()

    def commit(self, draft: Path, address: Place, meta: RunMeta, written: Sequence[WrittenFile]) -> Run:
        """Upload the tables, then `run.json`, then the entry of the index."""
        target = self.path / meta.run_id
        with nullcontext() if address == target else self._claim(target):
            meta = replace(meta, tables=table_entries([*written, *move_to_draft(draft, target)]))
            content = run_meta.encode(meta)
            # The entry is last: killed between the two, the run is still found by its `run.json`.
            (target / run_meta.FILE_NAME).write_bytes(content)
            now = time.time_ns()
            (self.path / INDEX / f"{target.name}@{now}.json").write_bytes(content)
        return Run.from_metadata(target, now, meta=meta)

    def remove(self, run: Run) -> None:
        """Delete a run: first the entry of the index and `run.json`."""
        target = self.path / run.path.name
        # In reverse order of `commit`, so that a killed removal leaves no entry of an incomplete run.
        if entry := self._entries().get(target.name):
            entry.place.unlink(missing_ok=True)
        (target / run_meta.FILE_NAME).unlink(missing_ok=True)
        target.remove()

    def leftovers(self) -> list[Leftover]:
        """Return folders without `run.json`, and entries of the index without a run."""
        folders, entries = self._list_folders()
        complete = {run.path.name for run in self._find_complete(folders, entries)}
        with ThreadPoolExecutor(MAX_REQUESTS) as threads:
            drafts = list(threads.map(self._draft_leftover, sorted(folders - complete)))
        orphans = [entries[name].place for name in sorted(entries.keys() - folders)]
        return [*drafts, *(_leftover(place, [place], None) for place in orphans), *self._local.leftovers()]

    def _draft_leftover(self, name: str) -> Leftover:
        place = self.path / name
        files = [path for path in place.rglob("*") if path.is_file()]
        writer = None
        for file in (path for path in files if path.name == WRITER):
            with suppress(OSError, msgspec.MsgspecError):
                writer = msgspec.json.decode(file.read_bytes(), type=Writer)
        return _leftover(place, files, writer)

    def delete_leftover(self, leftover: Leftover) -> None:
        """Delete a leftover, local or remote."""
        if not isinstance(leftover.place, RemotePath):
            self._local.delete_leftover(leftover)
        elif leftover.place.parent.name == INDEX:
            leftover.place.unlink(missing_ok=True)
        else:
            leftover.place.remove()


def _leftover(place: RemotePath, files: Sequence[RemotePath], writer: Writer | None) -> Leftover:
    stats = [file.stat() for file in files]
    newest = max((stat.st_mtime_ns for stat in stats), default=0)
    return Leftover(
        place=place,
        age_s=max(0.0, time.time() - newest / 1e9),
        bytes=sum(stat.st_size for stat in stats),
        owner=str(writer) if writer else "nobody known",
        alive=writer.alive if writer else None,
    )
