"""The shelf: results of analyses in the store's folder `.results`, one folder a run, one file an analysis.

A file is written beside and renamed into place, so it is whole or absent. It holds the key of what it is the
result of; another key's result takes its place, so there is one file an analysis however often code and runs
change. Who asks while another process computes the same waits for it.
"""

from __future__ import annotations

import fcntl
import hashlib
import re
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING

from tracekit import analysis, owners, places
from tracekit import meta as run_meta
from tracekit.errors import UnusableInputError
from tracekit.rank_view import RankView
from tracekit.run import ENDING

from . import code, codec

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from tracekit.analysis import Result
    from tracekit.fleet import Workers
    from tracekit.run import Run
    from tracekit.store import Store

FOLDER = ".results"
LARGEST = 128 << 20
"""Bytes of one file at most; a larger result is computed each time."""
ROOM = 2 << 30
"""Bytes of all files at most; the oldest go first."""
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")
_ENDING = ".zip"


@dataclass(frozen=True)
class Shelf:
    """Results of the analyses of a store's runs; other runs are computed each time.

    Attributes:
        store: The store, which may be read-only: then nothing new is kept.
        largest: Bytes of one file at most.
        room: Bytes of all files at most.
        fresh: Compute each time, and keep that instead of what was kept before.
        workers: What reads the ranks of a run; this process by default.

    Example:
        >>> shelf = Shelf(Store(locate()))  # doctest: +SKIP
        >>> shelf.analyze(run, "steps")  # computed and kept; read the next time  # doctest: +SKIP
    """

    store: Store
    largest: int = LARGEST
    room: int = ROOM
    fresh: bool = False
    workers: Workers | None = None

    def analyze(self, run: Run, name: str) -> Result:
        """The result of an analysis: as `tracekit.analysis.analyze` gives it, kept or computed now.

        Raises:
            PluginError: The analysis is unknown or failed; that is not kept.
        """
        key = self._key(run, name)
        if key is None:
            return self._now(run, name)
        path = self.store.beside / FOLDER / run.path.name / f"{name}{_ENDING}"
        return self._found(path, key) or self._computed(run, name, path, key)

    def _found(self, path: Path, key: str) -> Result | None:
        return None if self.fresh else _kept(path, key)

    def _key(self, run: Run, name: str) -> str | None:
        """What a result depends on: the run's content and the program; None where it cannot be kept."""
        if isinstance(run, RankView):
            return None  # of a part of the run
        if not _NAME.fullmatch(name) or run.path.parent.resolve() != self.store.path.resolve():
            return None
        version = code.version(analysis.get(name))
        content = _content(run)
        return f"{name}/{version}/{content}" if version and content else None

    def _computed(self, run: Run, name: str, path: Path, key: str) -> Result:
        if not self._prepared(path.parent):
            return self._now(run, name)
        with _in_turn(path.with_suffix(".lock")):
            found = self._found(path, key)  # by who had the turn before
            if found is None:
                found = self._now(run, name)
                if self._keep(path, key, found):
                    self._make_room()
        return found

    def _now(self, run: Run, name: str) -> Result:
        if self.workers is None:
            return analysis.analyze(run, name)
        return analysis.analyze(run, name, workers=self.workers)

    def _prepared(self, folder: Path) -> bool:
        try:
            self.store.folder(FOLDER)
            folder.mkdir(exist_ok=True)
        except (UnusableInputError, OSError):
            return False
        return True

    def _keep(self, path: Path, key: str, result: Result) -> bool:
        """Keep a result if it can be kept exactly and is not too large; a failure is no loss."""
        if result.passing:
            return False
        temporary = path.with_name(f".tmp-{owners.mark()}")
        try:
            if not codec.write(temporary, key, result) or temporary.stat().st_size > self.largest:
                return False
            temporary.rename(path)
        except codec.UNREADABLE:
            return False
        finally:
            with suppress(OSError):
                temporary.unlink(missing_ok=True)
        return True

    def _make_room(self) -> None:
        """Delete the oldest files beyond the room there is, and what no living run has."""
        files = sorted(_files(self.store.beside / FOLDER), reverse=True)
        left = self.room
        for _, size, path in files:
            left -= size
            if left < 0:
                with suppress(OSError):
                    path.unlink()


def _kept(path: Path, key: str) -> Result | None:
    try:
        return codec.read(path, key)
    except codec.UNREADABLE:
        return None


def _content(run: Run) -> str | None:
    """What tells a run's content: its metadata, which has the digests of its tables, and what its files are.

    A file that was changed without its digest is told by its size or time.
    """
    try:
        digest = hashlib.sha256(run_meta.encode(run.meta))
        for file in places.inside(run.path, deep=True):
            if file.suffix == ENDING or file.name == run_meta.FILE_NAME:
                stat = file.stat()
                name = "/".join(file.parts[len(run.path.parts) :])
                digest.update(f"{name} {stat.st_size} {stat.st_mtime_ns}\n".encode())
    except OSError:
        return None
    return digest.hexdigest()


@contextmanager
def _in_turn(path: Path) -> Iterator[None]:
    """Hold a lock that ends with the process, waiting for it; without one where none can be had."""
    try:
        stream = path.open("a")
    except OSError:
        yield
        return
    with stream:
        with suppress(OSError):
            fcntl.flock(stream, fcntl.LOCK_EX)
        yield


def _files(folder: Path) -> Iterator[tuple[int, int, Path]]:
    """Time, size and place of each kept file."""
    for path in places.inside(folder, f"*/*{_ENDING}"):
        with suppress(OSError):
            stat = path.stat()
            yield stat.st_mtime_ns, stat.st_size, path
