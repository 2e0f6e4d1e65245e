"""Runs on object storage, where nothing can be renamed: the tables first, `run.json` last.

A run's folder counts when its `run.json` is there. Beside it, `.index/<run id>.json` repeats that file: it is
written after and deleted before, so it tells whole runs in one request for a thousand of them. A folder that
is not in the index, as of a store that was copied by another tool, is asked for its `run.json` itself.
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

from tracekit import meta as run_meta
from tracekit.errors import TracekitError
from tracekit.parts import deliver, sealed
from tracekit.places import RemotePath
from tracekit.places.remote import RemoteError
from tracekit.run import RUN_ID, Run

from . import manifests, owner
from .keeper import Leftover
from .local import LocalKeeper

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from tracekit.meta import RunMeta
    from tracekit.parts import Delivered
    from tracekit.places import Place, Stat

    from .keeper import Open

INDEX = ".index"
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
        folders, index = self._looked()
        with ThreadPoolExecutor(AT_ONCE) as threads:
            found = list(threads.map(lambda name: self._found(name, index.get(name), read=read), folders))
        ordered = sorted((one for one in found if one), key=lambda one: one[0])
        return [run for _, run in ordered]

    def _found(self, name: str, copied: RemotePath | None, *, read: bool) -> tuple[_Age, Run] | None:
        """A folder's run; None where it is none, which the index saves asking."""
        run = Run(self.path / name)
        manifest = copied or self.path / name / run_meta.FILE_NAME
        try:
            stat = _known(manifest)
        except FileNotFoundError:
            return None
        age = (name.partition("-")[0], stat.st_mtime_ns, name)
        return age, self._with_meta(run, manifest, stat) if read else run

    def _with_meta(self, run: Run, manifest: RemotePath, stat: Stat) -> Run:
        name = run.path.name
        if (before := self._seen.get(name)) and before.written_ns == stat.st_mtime_ns:
            return before
        try:
            content = manifests.content(manifest, stat, self.beside / "manifests" / f"{name}.json")
            known = Run.known(run.path, run_meta.decode(content, run.path), stat.st_mtime_ns)
        except (TracekitError, msgspec.MsgspecError, OSError, ValueError):
            return run  # says what is wrong when it is asked
        self._seen[name] = known
        return known

    def _looked(self) -> tuple[set[str], dict[str, RemotePath]]:
        """The folders that may be runs, and what the index has of them."""
        with ThreadPoolExecutor(2) as threads:
            index = threads.submit(lambda: list((self.path / INDEX).iterdir()))
            here = list(self.path.iterdir())
        if not here:
            self._check_bucket()
        folders = {one.name for one in here if RUN_ID.fullmatch(one.name) and one.is_dir()}
        return folders, {one.name.removesuffix(".json"): one for one in index.result()}

    def _check_bucket(self) -> None:
        """An empty store may be new; a bucket must be there."""
        bucket = (self.path, *self.path.parents)[-1]
        if not bucket.is_dir():
            raise RemoteError("there is no such bucket")

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
            (self.path / INDEX / f"{target.name}.json").write_bytes(content)
        return Run.known(target, known, time.time_ns())

    def remove(self, run: Run) -> None:
        """Delete a run: what lists it first."""
        target = self.path / run.path.name
        (self.path / INDEX / f"{target.name}.json").unlink(missing_ok=True)
        (target / run_meta.FILE_NAME).unlink(missing_ok=True)
        target.remove()

    def leftovers(self) -> list[Leftover]:
        """Folders without `run.json`, and what the index has of runs that are gone."""
        folders, index = self._looked()
        whole = {run.path.name for run in self.listed()}
        with ThreadPoolExecutor(AT_ONCE) as threads:
            found = list(threads.map(self._leftover, sorted(folders - whole)))
        gone = [
            _leftover(place, [place], None) for name, place in sorted(index.items()) if name not in folders
        ]
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
        elif leftover.place.parent.name == INDEX:
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
