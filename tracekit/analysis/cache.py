"""Cache of results on disk, by run, analysis and code, and of what commands show of them.

The key of a result is a digest of the run's content, of the code of tracekit and of the package that
registers the analysis, of the versions of the libraries, and of peaks that the user gave if the analysis
depends on them; version numbers raised by hand would be forgotten when a helper changes. No key imports the
analysis.

Each analysis of a run has one file: a ZIP archive of Arrow tables and JSON, written atomically, that also
contains the key. Its checksums detect damage, and reading it runs no code. A result is cached only if it
reads back unchanged, including column types and missing values. Missing, damaged and outdated files are
computed again. Processes that request the same result at the same time wait for the first one.

An answer, which a command shows of results, has a file of JSON alone: reading it loads neither pandas nor
Arrow. The keys of its results and the names of all installed packages are its key.
"""

from __future__ import annotations

import hashlib
import os
import platform
import re
import signal
import sys
import zipfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from functools import cache
from importlib.util import find_spec
from io import FileIO
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias, TypeVar

import msgspec

from tracekit import analysis, registry, storage
from tracekit.analysis import Finding, Remark, Result, by_rank
from tracekit.analysis.kernel_names import COMMUNICATION
from tracekit.analysis.model import StoredTable, encode_table
from tracekit.errors import PluginError, UnusableInputError, hide_warnings
from tracekit.registry import VERSION
from tracekit.runs import meta as run_meta
from tracekit.runs.run import RankView, Run
from tracekit.runs.tables import ENDING
from tracekit.schema import SCHEMA_VERSION
from tracekit.storage import locks
from tracekit.storage.atomic import write_atomically

if TYPE_CHECKING:
    from multiprocessing.process import BaseProcess

    from tracekit.executors import Workers
    from tracekit.runs.store import Store

__all__ = ["FOLDER", "ResultCache"]

_PARTS = (".py", ".json")  # suffixes of files that affect results: code and tables of devices
_LIBRARIES = tuple(f"{name}-" for name in ("numpy", "pandas", "pyarrow", "scipy"))


@cache
def _installed() -> list[str]:
    """Return the names of the folders of metadata of all installed packages, which contain the versions."""
    return [folder.name for place in sys.path for folder in sorted(Path(place).glob("*-info"))]


def code_version(name: str) -> str | None:
    """Return a digest of the code of an analysis, which is not imported; None if its code is not in files.

    Example:
        >>> code_version("steps") == code_version("steps") != code_version("ops")
        True
    """
    try:
        point = registry.find(registry.ANALYSES, name)
        places = _code_places(point.module)
    except (PluginError, ValueError):
        return None  # it cannot be loaded, or its module is not in files
    libraries = [folder for folder in _installed() if folder.startswith(_LIBRARIES)]
    versions = [f"schema {SCHEMA_VERSION}", VERSION, platform.python_version(), *libraries]
    # The user may have configured the pattern.
    parts = [name, point.value, *versions, COMMUNICATION, *map(_digest, places)]
    return hashlib.sha256("\n".join(parts).encode()).hexdigest()


def _code_places(module: str) -> list[Path]:
    """Return the folders of tracekit and its analyses, and the top-level package or module of another module.

    Raises:
        ValueError: The latter is not in files.
    """
    package = module.partition(".")[0]
    return _own_places() if package == "tracekit" else [*_own_places(), *_find_places(package)]


@cache
def _own_places() -> list[Path]:
    return [*_find_places("tracekit"), *_find_places("tracekit.analyses")]


def _find_places(name: str) -> list[Path]:
    spec = find_spec(name)  # imports no plug-in
    found = spec and (spec.submodule_search_locations or (spec.has_location and [str(spec.origin)]))
    if not found:
        raise ValueError(f"{name} is not in files")
    return [*map(Path, found)]


def _is_in_key(name: str) -> bool:
    """Tell whether the key of an analysis covers its function, which may be from another package."""
    loaded = analysis.get(name)
    function = loaded.by_rank.map if loaded.by_rank else loaded.compute
    file = getattr(sys.modules.get(function.__module__), "__file__", None)
    places = _code_places(registry.find(registry.ANALYSES, name).module)
    return file is not None and any(map(Path(file).is_relative_to, places))


@cache
def _digest(place: Path) -> str:
    """Return the digest of a file, or of the content of a folder."""
    digest = hashlib.sha256()
    inside = (f"{folder}/{name}" for folder, _, names in os.walk(place) for name in names)
    files = [str(place)] if place.is_file() else sorted(file for file in inside if file.endswith(_PARTS))
    for file in files:  # texts and raw files, as paths and buffers take twice the time
        digest.update(f"{file.removeprefix(str(place))}\n".encode())
        with FileIO(file) as stream:
            digest.update(stream.readall())
    return digest.hexdigest()


_HEAD, _ANSWER = "result.json", "answer.json"
_Answer = TypeVar("_Answer")


@dataclass(frozen=True, kw_only=True)
class _Head:
    """Content of a file beside the columns of its tables."""

    key: str
    tables: dict[str, StoredTable]  # in order
    findings: list[Finding]
    notes: list[tuple[str, bool]]  # each with whether it is a remark


def write(path: Path, key: str, result: Result) -> bool:
    """Write a result; return whether it reads back unchanged.

    Args:
        path: The file, which is replaced.
        key: Key of the result, required for reading.
        result: The result. One that cannot be cached raises any error.
    """
    head = _Head(
        key=key,
        tables={name: StoredTable.of(frame) for name, frame in result.tables.items()},
        findings=list(result.findings),
        notes=[(str(note), isinstance(note, Remark)) for note in result.notes],
    )
    encoded = msgspec.json.encode(head, enc_hook=_number)
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr(_HEAD, encoded)
        for place, frame in enumerate(result.tables.values()):
            archive.writestr(f"{place}.arrow", encode_table(frame))
    return msgspec.json.decode(encoded, type=_Head) == head


def read(path: Path, key: str) -> Result | None:
    """Read a result; None if the file has another key. A missing or damaged file raises any error."""
    with zipfile.ZipFile(path) as archive:
        head = _read_head(archive)
        if head.key != key:
            return None
        tables = {
            name: table.decode(archive.read(f"{place}.arrow"))
            for place, (name, table) in enumerate(head.tables.items())
        }
    notes = tuple(Remark(text) if is_remark else text for text, is_remark in head.notes)
    return Result(tables=tables, findings=tuple(head.findings), notes=notes)


def _read_head(archive: zipfile.ZipFile) -> _Head:
    return msgspec.json.decode(archive.read(_HEAD), type=_Head)


def _peek(path: Path, key: str | None) -> _Head | None:
    """Return the head of a file with this key, if there is one."""
    with suppress(Exception), zipfile.ZipFile(path) as archive:
        head = _read_head(archive)
        return head if head.key == key else None
    return None


def _write_answer(path: Path, key: str, answer: _Answer) -> bool:
    """Write an answer; return whether it reads back unchanged."""
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr(_ANSWER, msgspec.json.encode((key, answer), enc_hook=_number))
    return _read_answer(path, key, type(answer)) == answer


def _read_answer(path: Path, key: str, kind: type[_Answer]) -> _Answer | None:
    """Read an answer; None if the file has another key."""
    with zipfile.ZipFile(path) as archive:
        stored, answer = msgspec.json.decode(archive.read(_ANSWER), type=tuple[str, kind])  # type: ignore[valid-type]
    return answer if stored == key else None


def _number(value: Any) -> Any:
    """Convert a NumPy number to Python's."""
    if hasattr(value, "item"):
        return value.item()
    raise TypeError(f"{type(value).__name__} cannot be cached")


FOLDER = ".results"
LARGEST = 128 << 20
"""Limit of the bytes of a file; larger results are not cached."""
ROOM = 2 << 30
"""Limit of the bytes of all files, of which the oldest are deleted; a sixteenth more is allowed meanwhile."""
_WRITTEN: dict[Path, int] = {}  # bytes written to a folder since its oldest files were deleted
MIN_AHEAD = 8
"""Missing results from which a second process saves more time than its start takes."""
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")
_ENDING = ".zip"
_Finish: TypeAlias = "Callable[[ResultCache, Run, analysis.Analyze], object]"


@dataclass(frozen=True)
class ResultCache:
    """Cache of the results of a store's whole runs; of other runs and of some ranks, none is cached.

    Attributes:
        store: The store; if it is read-only, the cache is too.
        largest: Limit of the bytes of a file.
        room: Limit of the bytes of all files.
        fresh: Compute each time, and replace cached results.
        workers: Executor for the ranks of a run; this process by default.

    Example:
        >>> result_cache = ResultCache(Store(locate()))  # doctest: +SKIP
        >>> result_cache.analyze(run, "steps")  # computed and cached  # doctest: +SKIP
    """

    store: Store
    largest: int = LARGEST
    room: int = ROOM
    fresh: bool = False
    workers: Workers | None = None

    def analyze(self, run: Run, name: str) -> Result:
        """Return the result of `tracekit.analysis.analyze`, cached or computed.

        Raises:
            PluginError: The analysis is unknown or failed; failures are not cached.
        """
        (key,) = self._keys(run, [name])
        if key is None:
            return analysis.analyze(run, name, workers=self.workers)
        path = self._path(run, name)
        return self._read_cached(path, key) or self._compute_locked(run, name, path, key)

    def read_notes(self, run: Run, name: str) -> tuple[bool, tuple[str, ...]] | None:
        """Return whether a cached result has tables, and its notes; None if none is cached."""
        head = _peek(self._path(run, name), *self._keys(run, [name]))
        return (bool(head.tables), tuple(note for note, _ in head.notes)) if head else None

    def answer(
        self,
        run: Run,
        names: Sequence[str],
        words: Sequence[object],
        kind: type[_Answer],
        compute: Callable[[], _Answer],
    ) -> _Answer:
        """Return what a command shows of results, cached or computed; a cached one needs no pandas.

        An answer is cached if all its results are, by their keys and the packages that are installed.

        Args:
            run: The run.
            names: Analyses whose results are shown; all by default.
            words: What is asked, such as the command and its arguments.
            kind: Type of the answer; its `complete` tells whether all results are complete.
            compute: Makes the answer.
        """
        names = names or registry.names(registry.ANALYSES)
        keys = [None] if run.peaks else self._keys(run, names)
        if None in keys:
            return compute()
        key = hashlib.sha256("\n".join([repr(words), *map(str, keys), *_installed()]).encode()).hexdigest()
        path = self._path(run, f"_{hashlib.sha256(repr(words).encode()).hexdigest()[:16]}")
        with suppress(Exception):  # missing, or damaged in any way
            if not self.fresh and (cached := _read_answer(path, key, kind)):
                return cached
        answer: Any = compute()
        if answer.complete and all(map(_peek, (self._path(run, name) for name in names), keys)):
            self._keep(path, lambda file: _write_answer(file, key, answer))
        return answer  # type: ignore[no-any-return]

    @contextmanager
    def compute_ahead(
        self,
        run: Run,
        names: Sequence[str] = (),
        *,
        forks: bool = True,
        niceness: int = 0,
        finish: _Finish | None = None,
    ) -> Iterator[BaseProcess | None]:
        """Compute results without a file in a second process too, last analysis first, during the context.

        Both processes use the cache, so the first one that asks for a result computes it, and the other one
        waits or reads it. The second process is a fork, which starts at once with all libraries loaded. Where
        it would not save time, memory is short, or results are not cached, there is none.

        Args:
            run: The run.
            names: Analyses in the order in which the context asks for them; by default all, in that of
                `analyze_each`.
            forks: Whether the process is a fork; else a new one, as a fork of a process with threads could
                wait forever for a lock that one of them held.
            niceness: By how much the second process gives way to others.
            finish: What it does with the results at its end.

        Yields:
            The second process; None if there is none.
        """
        names = names or [other.name for other in analysis.order_by_facts(analysis.available())]
        missing = [name for name in names if not self._path(run, name).exists()]
        hands_over = not self.fresh and self.workers is None  # a fresh result is not read from the cache
        if (
            not hands_over
            or len(missing) < MIN_AHEAD
            or not by_rank.is_worth_two_processes(run, forks=forks)
            or (run.peaks and not forks)  # a new process is told no peaks
            or self._keys(run, missing[:1]) == [None]
            or not self._make_folder(self._path(run, missing[0]).parent)
        ):
            yield None
            return
        from multiprocessing import get_context

        from tracekit.executors.local import start_process

        if forks:
            _prepare(run)
        places = (self, run) if forks else (str(self.store.path), run.path.name)
        context = get_context("fork") if forks else get_context("spawn")
        process = context.Process(
            target=_compute_each if forks else _open_and_compute_each,
            args=(*places, missing[::-1], os.getpid(), niceness, finish),
            daemon=True,
        )
        try:
            with suppress(OSError):  # no further process is allowed: this one computes all
                start_process(process)
            yield process if process.pid is not None else None
        finally:
            if process.pid is not None:
                process.kill()
                process.join()
            process.close()

    def _path(self, run: Run, name: str) -> Path:
        """Return the file of a result: `.results/RUN/ANALYSIS.zip` in the local folder of the store."""
        return self.store.local_folder / FOLDER / run.path.name / f"{name}{_ENDING}"

    def _read_cached(self, path: Path, key: str) -> Result | None:
        with suppress(Exception):  # missing, or damaged in any way
            return None if self.fresh else read(path, key)
        return None

    def _keys(self, run: Run, names: Sequence[str]) -> list[str | None]:
        """Return the keys of results; None for each that cannot be cached."""
        # a view of some ranks, or a run of elsewhere
        is_stored = not isinstance(run, RankView) and run.path.parent.resolve() == self.store.path.resolve()
        content = _content(run) if is_stored else None
        keys: list[str | None] = []
        for name in names:
            version = code_version(name) if content and _NAME.fullmatch(name) else None
            peaks = analysis.peaks_of(run, name)
            custom = f"/{hashlib.sha256(peaks.digest.encode()).hexdigest()}" if peaks else ""
            keys.append(f"{name}/{version}/{content}{custom}" if version else None)
        return keys

    def _compute_locked(self, run: Run, name: str, path: Path, key: str) -> Result:
        """Compute and cache a result, unless another process did so; a read-only store caches none."""
        if not self._make_folder(path.parent):
            return analysis.analyze(run, name, workers=self.workers)
        with ExitStack() as stack:
            with suppress(OSError):  # without the lock, two processes may compute the same
                stack.enter_context(locks.hold(path.with_suffix(locks.SUFFIX)))
            result = self._read_cached(path, key)  # by the previous holder of the lock
            if result is None:
                result = analysis.analyze(run, name, workers=self.workers)
                if not result.incomplete and _is_in_key(name):
                    self._keep(path, lambda file: write(file, key, result))
        return result

    def _make_folder(self, folder: Path) -> bool:
        try:
            self.store.folder(FOLDER)
            folder.mkdir(exist_ok=True)
        except (UnusableInputError, OSError):
            return False
        return not folder.is_symlink()

    def _keep(self, path: Path, write_to: Callable[[Path], bool]) -> None:
        """Cache what is written unless it is too large or reads back changed; errors are ignored."""
        with suppress(Exception):
            with write_atomically(path) as file:
                size = file.stat().st_size if write_to(file) else self.largest + 1
                if size > self.largest:
                    raise ValueError("it cannot be cached")
            folder = self.store.local_folder / FOLDER
            _WRITTEN[folder] = _WRITTEN.get(folder, self.room) + size
            if _WRITTEN[folder] > self.room // 16:  # listing all files may take longer than writing one
                self._delete_oldest()
                _WRITTEN[folder] = 0

    def _delete_oldest(self) -> None:
        """Delete the files written longest ago above the limit of all files."""
        files = []
        folder = self.store.local_folder / FOLDER
        for path in storage.inside(folder, f"*/*{_ENDING}"):
            if folder.is_symlink() or path.parent.is_symlink():  # what is there may be others'
                continue
            with suppress(OSError):
                stat = path.stat()
                files.append((stat.st_mtime_ns, stat.st_size, path))
        left = self.room
        for _, size, path in sorted(files, reverse=True):
            left -= size
            if left < 0:
                with suppress(OSError):
                    path.unlink()


def _prepare(run: Run) -> None:
    """Load the libraries and compute what all analyses need, once for both processes."""
    from tracekit.analysis import savings, trace_quality

    analysis.set_up_libraries()
    with suppress(Exception):  # the analyses report it
        savings.budget(run)
        trace_quality.obstacle(run)


def _compute_each(
    cached: ResultCache, run: Run, names: Sequence[str], parent: int, niceness: int, finish: _Finish | None
) -> None:
    """Compute results so that they are in the cache, in the second process, while the first one runs."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the first process handles Ctrl-C
    hide_warnings()
    os.nice(niceness)
    with suppress(Exception):  # the first process reports a run that cannot be read
        by_rank.keep_facts(run)
    results: dict[str, Result] = {}
    for name in names:
        if os.getppid() != parent:
            return
        with suppress(Exception):  # the first process computes it, and reports the error
            result = cached.analyze(run, name)
            results |= {name: result} if finish else {}
    if finish:
        with suppress(Exception):
            finish(cached, run, lambda run, name: results.get(name) or cached.analyze(run, name))


def _open_and_compute_each(store: str, run: str, *of_each: Any) -> None:
    """Compute results in a new process, which has none of the objects of the first one."""
    from tracekit.runs.store import Store

    opened = Store(storage.parse(store))
    _compute_each(ResultCache(opened), Run(opened.path / run), *of_each)


def _content(run: Run) -> str | None:
    """Return a digest of a run's content: metadata with the digests of tables, and sizes and times of files.

    Sizes and times detect files that were changed without their digest.
    """
    try:
        digest = hashlib.sha256(run_meta.encode(run.meta))
        for file in storage.inside(run.path, deep=True):
            if file.suffix == ENDING or file.name == run_meta.FILE_NAME:
                stat = file.stat()
                name = "/".join(file.parts[len(run.path.parts) :])
                digest.update(f"{name} {stat.st_size} {stat.st_mtime_ns}\n".encode())
    except OSError:
        return None
    return digest.hexdigest()
