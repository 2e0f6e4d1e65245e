"""What `run.json` of remote runs says, read once: a run does not change, so a copy here serves.

A run's folder counts when its `run.json` is there. The index tells whole runs, a thousand with one request;
a folder that is not in it, as of a store that another tool copied, is asked for its `run.json` itself.
"""

from __future__ import annotations

import hashlib
import os
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, nullcontext, suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, TypeAlias

import msgspec

from tracekit import storage
from tracekit.errors import TracekitError
from tracekit.runs import meta as run_meta
from tracekit.runs.backends import local, owner
from tracekit.runs.backends.local import Leftover, LocalKeeper
from tracekit.runs.meta import RUN_ID
from tracekit.runs.run import Run
from tracekit.runs.tables import deliver, sealed
from tracekit.storage import RemotePath
from tracekit.storage.filesystems import RemoteError

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from tracekit.runs.backends.local import Entry, Open
    from tracekit.runs.meta import RunMeta
    from tracekit.runs.tables import Delivered
    from tracekit.storage import Place, Stat


def manifest_content(source: RemotePath, known: Stat, copy: Path) -> bytes:
    """The content of a small file: the copy's where that has its size and time, else read and copied.

    Args:
        source: The file.
        known: Its size and time, as a listing told.
        copy: The copy, which need not exist, in a folder that may be one that cannot be written.

    Raises:
        OSError: It cannot be read.
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
"""Says in a run's folder, until the run is whole, who writes it."""
AT_ONCE = 32
"""Requests under way at a time."""


_Age: TypeAlias = tuple[str, int, str]
"""What runs are sorted by: the second of the id, the time of the manifest, the id."""


@dataclass(frozen=True)
class RemoteDraft:
    """A folder of this machine, and the run's own place, where files of it are delivered."""

    path: Path
    address: Place


@dataclass(frozen=True)
class RemoteKeeper:
    """Runs under an address."""

    path: RemotePath
    _seen: dict[str, Run] = field(default_factory=dict, compare=False, repr=False)

    @property
    def beside(self) -> Path:
        """A folder of the user's cache, for this store alone."""
        root = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
        return root / "tracekit" / "stores" / hashlib.sha256(str(self.path).encode()).hexdigest()[:16]

    def prepare(self) -> None:
        """Make the folder beside."""
        LocalKeeper(self.beside).prepare()

    def listed(self, *, read: bool = False) -> list[Run]:
        """The whole runs, oldest first."""
        folders, entries = self._looked()
        with ThreadPoolExecutor(AT_ONCE) as threads:
            found = list(threads.map(lambda name: self._found(name, entries.get(name), read=read), folders))
        ordered = sorted((one for one in found if one), key=lambda one: one[0])
        return [run for _, run in ordered]

    def _found(self, name: str, entry: Entry | None, *, read: bool) -> tuple[_Age, Run] | None:
        """A folder's run; None where it is none, which the index saves asking."""
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
            known = Run.known(run.path, run_meta.decode(content, run.path), written_ns)
        except (TracekitError, msgspec.MsgspecError, OSError, ValueError):
            return run  # says what is wrong when it is asked
        self._seen[name] = known
        return known

    def _looked(self) -> tuple[set[str], dict[str, Entry]]:
        """The folders that may be runs, and what the index has of them."""
        with ThreadPoolExecutor(2) as threads:
            entries = threads.submit(local.entries, self.path)
            here = list(self.path.iterdir())
        if not here:
            self._check_bucket()
        return {one.name for one in here if RUN_ID.fullmatch(one.name) and one.is_dir()}, entries.result()

    def _check_bucket(self) -> None:
        """An empty store may be new; a bucket must be there."""
        bucket = (self.path, *self.path.parents)[-1]
        if not bucket.is_dir():
            raise RemoteError("the bucket does not exist")

    @contextmanager
    def draft(self, run_id: str | None) -> Iterator[RemoteDraft]:
        """A folder of this machine, and with a run id a place there; both vanish unless committed."""
        with LocalKeeper(self.beside).draft(None) as local:
            if run_id is None:
                yield RemoteDraft(local.path, local.path)
                return
            address = self.path / run_id
            with self._marked(address):
                yield RemoteDraft(local.path, address)

    @contextmanager
    def _marked(self, address: RemotePath) -> Iterator[None]:
        """What is written there meanwhile vanishes unless it is a run in the end."""
        mark, whole = address / MARK, address / run_meta.FILE_NAME
        mark.write_bytes(msgspec.json.encode(owner.current()))
        try:
            yield
        finally:
            with suppress(OSError):
                if whole.is_file():
                    mark.unlink(missing_ok=True)
                else:
                    address.remove()

    def commit(self, draft: Open, meta: RunMeta, delivered: Sequence[Delivered]) -> Run:
        """Send the tables of the draft's folder, write `run.json`, then the index."""
        target = self.path / meta.run_id
        with nullcontext() if draft.address == target else self._marked(target):
            tables = sealed([*delivered, *deliver(draft.path, target)])
            known = replace(meta, tables=tables)
            content = run_meta.encode(known)
            (target / run_meta.FILE_NAME).write_bytes(content)
            written = local.add(self.path, target.name, content)
        return Run.known(target, known, written)

    def remove(self, run: Run) -> None:
        """Delete a run: what lists it first."""
        target = self.path / run.path.name
        local.drop(self.path, target.name)
        (target / run_meta.FILE_NAME).unlink(missing_ok=True)
        target.remove()

    def leftovers(self) -> list[Leftover]:
        """Folders without `run.json`, and what the index has of runs that are gone."""
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
        """Delete a leftover, wherever it is."""
        if not isinstance(leftover.place, RemotePath):
            LocalKeeper(self.beside).free(leftover)
        elif leftover.place.parent.name == local.FOLDER:
            leftover.place.unlink(missing_ok=True)
        else:
            leftover.place.remove()


def _known(place: RemotePath) -> Stat:
    return place.known or place.stat()


def _owner(mark: RemotePath) -> owner.Owner | None:
    try:
        return msgspec.json.decode(mark.read_bytes(), type=owner.Owner)
    except (OSError, msgspec.MsgspecError):
        return None


def _leftover(place: RemotePath, files: Sequence[RemotePath], by: owner.Owner | None) -> Leftover:
    stats = [_known(file) for file in files]
    newest = max((stat.st_mtime_ns for stat in stats), default=0)
    return Leftover(
        place=place,
        age_s=max(0.0, time.time() - newest / 1e9),
        bytes=sum(stat.st_size for stat in stats),
        owner=str(by) if by else "nobody known",
        alive=by.alive if by else None,
    )
