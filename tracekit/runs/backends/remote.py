"""Backend of stores on object storage, with local copies of `run.json`.

A run is complete when its `run.json` exists. The index lists a thousand complete runs with one request;
folders that are not in it, as in a copied store, are checked for `run.json`.
"""

from __future__ import annotations

import hashlib
import os
import platform
import time
import uuid
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, nullcontext, suppress
from dataclasses import dataclass, field, replace
from functools import cache
from pathlib import Path
from typing import TypeAlias

import msgspec
import psutil

from tracekit import storage
from tracekit.errors import TracekitError
from tracekit.runs import meta as run_meta
from tracekit.runs.backends import local
from tracekit.runs.backends.local import Entry, Leftover, LocalKeeper, Open
from tracekit.runs.meta import RUN_ID, RunMeta
from tracekit.runs.run import Run
from tracekit.runs.tables import Delivered, deliver, sealed
from tracekit.storage import Place, RemotePath, Stat
from tracekit.storage.filesystems import RemoteError


def manifest_content(source: RemotePath, known: Stat, copy: Path) -> bytes:
    """Return the content of a small file, from a local copy if its size and time match.

    Args:
        source: The file.
        known: Its size and time, from a listing.
        copy: The local copy, which need not exist, in a folder that may not be writable.

    Raises:
        OSError: The file cannot be read.
    """
    with suppress(OSError):
        stat = copy.stat()
        if (stat.st_size, stat.st_mtime_ns) == (known.st_size, known.st_mtime_ns):
            return copy.read_bytes()
    found = source.read_bytes()
    with suppress(OSError), storage.put(copy) as file:
        file.write_bytes(found)
        os.utime(file, ns=(known.st_mtime_ns, known.st_mtime_ns))
    return found


MARK = "draft.json"
"""File in a run's folder that names its writer until the run is complete."""
AT_ONCE = 32
"""Number of concurrent requests."""


_SLACK_S = 2.0
"""Tolerance of a process's start time in seconds."""


@dataclass(frozen=True, kw_only=True)
class Owner:
    """A process on a machine, distinct from later processes with the same id.

    Attributes:
        machine: Digest that identifies a machine.
        pid: Process id.
        started: Start time, seconds since the epoch.
    """

    machine: str
    pid: int
    started: float

    @property
    def alive(self) -> bool | None:
        """Return whether it is running; None if it is of another machine."""
        if self.machine != _machine():
            return None
        try:
            return abs(psutil.Process(self.pid).create_time() - self.started) < _SLACK_S
        except psutil.Error:
            return False

    def __str__(self) -> str:
        if self.alive is None:
            return f"process {self.pid} of another machine"
        return f"process {self.pid}, {'which still runs' if self.alive else 'which has ended'}"


@cache
def _machine() -> str:
    """Return a digest of this machine and its boot."""
    text = f"{platform.node()} {uuid.getnode():x} {psutil.boot_time():.0f}"
    return hashlib.sha256(text.encode()).hexdigest()[:16]


_Age: TypeAlias = tuple[str, int, str]
"""Sort key of runs: second of the id, time of `run.json`, id."""


@dataclass(frozen=True)
class RemoteDraft:
    """Draft with a local folder; files are delivered to the run's place."""

    path: Path
    address: Place


@dataclass(frozen=True)
class RemoteKeeper:
    """Backend of an address."""

    path: RemotePath
    _seen: dict[str, Run] = field(default_factory=dict, compare=False, repr=False)

    @property
    def beside(self) -> Path:
        """Folder of the user's cache for this store."""
        root = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
        return root / "tracekit" / "stores" / hashlib.sha256(str(self.path).encode()).hexdigest()[:16]

    def prepare(self) -> None:
        """Create the local folder."""
        LocalKeeper(self.beside).prepare()

    def listed(self, *, read: bool = False) -> list[Run]:
        """Return the complete runs, oldest first."""
        folders, entries = self._looked()
        with ThreadPoolExecutor(AT_ONCE) as threads:
            found = list(threads.map(lambda name: self._found(name, entries.get(name), read=read), folders))
        ordered = sorted((one for one in found if one), key=lambda one: one[0])
        return [run for _, run in ordered]

    def _found(self, name: str, entry: Entry | None, *, read: bool) -> tuple[_Age, Run] | None:
        """Return the run of a folder; None if it is not a run. The index saves requests."""
        manifest = entry.place if entry else self.path / name / run_meta.FILE_NAME
        try:
            stat = _known(manifest)
        except FileNotFoundError:
            return None
        written = entry.written_ns if entry else stat.st_mtime_ns
        run = self._read(name, manifest, stat, written) if read else Run(self.path / name)
        return (name.partition("-")[0], written, name), run

    def _read(self, name: str, manifest: RemotePath, stat: Stat, written_ns: int) -> Run:
        if (before := self._seen.get(name)) and before.written_ns == written_ns:
            return before
        run = Run(self.path / name)
        try:
            content = manifest_content(manifest, stat, self.beside / "manifests" / f"{name}.json")
            known = Run.from_metadata(run.path, written_ns, meta=run_meta.decode(content, run.path))
        except (TracekitError, msgspec.MsgspecError, OSError, ValueError):
            return run  # raises the error when it is read
        self._seen[name] = known
        return known

    def _looked(self) -> tuple[set[str], dict[str, Entry]]:
        """Return the folders that may be runs, and the entries of the index."""
        with ThreadPoolExecutor(2) as threads:
            entries = threads.submit(local.entries, self.path)
            here = list(self.path.iterdir())
        if not here:
            self._check_bucket()
        return {one.name for one in here if RUN_ID.fullmatch(one.name) and one.is_dir()}, entries.result()

    def _check_bucket(self) -> None:
        """Check that the bucket of an empty store exists."""
        bucket = (self.path, *self.path.parents)[-1]
        if not bucket.is_dir():
            raise RemoteError("the bucket does not exist")

    @contextmanager
    def draft(self, run_id: str | None) -> Iterator[RemoteDraft]:
        """Create a local folder and, with a run id, a remote place; deleted at exit unless committed."""
        with LocalKeeper(self.beside).draft(None) as local:
            if run_id is None:
                yield RemoteDraft(local.path, local.path)
                return
            address = self.path / run_id
            with self._marked(address):
                yield RemoteDraft(local.path, address)

    @contextmanager
    def _marked(self, address: RemotePath) -> Iterator[None]:
        """Mark a remote folder as a draft, and delete it at exit unless committed."""
        this = Owner(machine=_machine(), pid=os.getpid(), started=psutil.Process().create_time())
        mark, whole = address / MARK, address / run_meta.FILE_NAME
        mark.write_bytes(msgspec.json.encode(this))
        try:
            yield
        finally:
            with suppress(OSError):
                if whole.is_file():
                    mark.unlink(missing_ok=True)
                else:
                    address.remove()

    def commit(self, draft: Open, meta: RunMeta, delivered: Sequence[Delivered]) -> Run:
        """Upload the tables, then `run.json`, then the entry of the index."""
        target = self.path / meta.run_id
        with nullcontext() if draft.address == target else self._marked(target):
            tables = sealed([*delivered, *deliver(draft.path, target)])
            known = replace(meta, tables=tables)
            content = run_meta.encode(known)
            (target / run_meta.FILE_NAME).write_bytes(content)
            written = local.add(self.path, target.name, content)
        return Run.from_metadata(target, written, meta=known)

    def remove(self, run: Run) -> None:
        """Delete a run: first the entry of the index and `run.json`."""
        target = self.path / run.path.name
        local.drop(self.path, target.name)
        (target / run_meta.FILE_NAME).unlink(missing_ok=True)
        target.remove()

    def leftovers(self) -> list[Leftover]:
        """Return folders without `run.json`, and entries of the index without a run."""
        folders, entries = self._looked()
        whole = {run.path.name for run in self.listed()}
        with ThreadPoolExecutor(AT_ONCE) as threads:
            found = list(threads.map(self._leftover, sorted(folders - whole)))
        alone = sorted(entries.keys() - folders)
        gone = [_leftover(entries[name].place, [entries[name].place], None) for name in alone]
        return [*found, *gone, *LocalKeeper(self.beside).leftovers()]

    def _leftover(self, name: str) -> Leftover:
        place = self.path / name
        files = [one for one in place.rglob("*") if one.is_file()]
        mark = next((one for one in files if one.name == MARK), None)
        return _leftover(place, files, _owner(mark) if mark else None)

    def free(self, leftover: Leftover) -> None:
        """Delete a leftover, local or remote."""
        if not isinstance(leftover.place, RemotePath):
            LocalKeeper(self.beside).free(leftover)
        elif leftover.place.parent.name == local.FOLDER:
            leftover.place.unlink(missing_ok=True)
        else:
            leftover.place.remove()


def _known(place: RemotePath) -> Stat:
    return place.stat()


def _owner(mark: RemotePath) -> Owner | None:
    try:
        return msgspec.json.decode(mark.read_bytes(), type=Owner)
    except (OSError, msgspec.MsgspecError):
        return None


def _leftover(place: RemotePath, files: Sequence[RemotePath], by: Owner | None) -> Leftover:
    stats = [_known(file) for file in files]
    newest = max((stat.st_mtime_ns for stat in stats), default=0)
    return Leftover(
        place=place,
        age_s=max(0.0, time.time() - newest / 1e9),
        bytes=sum(stat.st_size for stat in stats),
        owner=str(by) if by else "nobody known",
        alive=by.alive if by else None,
    )
