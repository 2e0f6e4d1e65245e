"""Cache of results on disk, by run, analysis and code.

A number that people raise by hand is forgotten when a helper changes; a kept number would then be wrong.

The archive's checksums tell damage; nothing in it is ever run. A result is only kept when it reads back the
same, column types and missing values included.

A file is written beside and renamed into place, so it is whole or absent. It holds the key of what it is the
result of; another key's result takes its place, so there is one file an analysis however often code and runs
change. Who asks while another process computes the same waits for it.

`shelf` finds, computes and keeps; `codec` is the form of a kept file; `code` is what tells that the program
which computed it is still the same. Nothing here is ever needed: whatever is missing, damaged or of something
else is computed again.
"""

from __future__ import annotations

import fcntl
import hashlib
import platform
import re
import sys
import zipfile
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import cache
from importlib import metadata
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec
import numpy as np
import pandas as pd
import pyarrow as pa

import tracekit
from tracekit import analysis, storage
from tracekit.analysis import Finding, Remark, Result
from tracekit.errors import UnusableInputError
from tracekit.runs import meta as run_meta
from tracekit.runs.rank_view import RankView
from tracekit.runs.run import ENDING
from tracekit.schema import SCHEMA_VERSION
from tracekit.storage import owners

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tracekit.analysis import Analysis
    from tracekit.executors import Workers
    from tracekit.runs.run import Run
    from tracekit.runs.store import Store

__all__ = ["FOLDER", "Shelf"]


_PARTS = {".py", ".json"}
"""Endings of files that decide what an analysis gives: its code and its tables of devices."""


def code_version(analysis: Analysis) -> str | None:
    """What changes whenever the analysis may give something else; None where its code is in no file.

    Example:
        >>> from tracekit.analysis import get
        >>> code_version(get("steps")) == code_version(get("steps")) != code_version(get("ops"))
        True
    """
    folders = _folders(analysis.compute.__module__)
    if not folders:
        return None
    parts = [analysis.name, *_surroundings(), *(_digest(folder) for folder in (_core(), *folders))]
    return hashlib.sha256("\n".join(parts).encode()).hexdigest()


def _surroundings() -> list[str]:
    """The schema of runs, and the versions of what analyses compute with."""
    libraries = [library.__version__ for library in (np, pd, pa)]
    schema = f"schema {SCHEMA_VERSION}"
    return [schema, tracekit.__version__, platform.python_version(), *libraries, metadata.version("scipy")]


def _core() -> Path:
    return Path(tracekit.__file__).parent


def _folders(module: str) -> list[Path]:
    """The folders of the packages a module is in; the module's own file where it is in none."""
    names = module.split(".")
    packages = [sys.modules.get(".".join(names[:end])) for end in range(1, len(names))]
    folders = [Path(place) for package in packages for place in getattr(package, "__path__", ())]
    own = getattr(sys.modules.get(module), "__file__", None)
    return folders if folders or own is None else [Path(own)]


@cache
def _digest(place: Path) -> str:
    """The digest of a file, or of what a folder has in it."""
    digest = hashlib.sha256()
    found = [place] if place.is_file() else sorted(one for one in place.rglob("*") if one.suffix in _PARTS)
    for file in found:
        digest.update(f"{file.relative_to(place)}\n".encode())
        digest.update(file.read_bytes())
    return digest.hexdigest()


UNREADABLE = (
    OSError,
    ValueError,  # of Arrow and JSON too
    TypeError,
    KeyError,
    EOFError,
    NotImplementedError,
    zipfile.BadZipFile,
    pa.ArrowException,
    msgspec.MsgspecError,
)
"""What may be raised where a file is damaged, or a result is of a kind that cannot be kept."""
_HEAD = "result.json"


@dataclass(frozen=True, kw_only=True)
class _Table:
    """A table of a result: its name and those of its columns that are of Python objects."""

    name: str
    objects: list[str]


@dataclass(frozen=True, kw_only=True)
class _Note:
    text: str
    remark: bool


@dataclass(frozen=True, kw_only=True)
class _Head:
    """What a kept file has beside its tables.

    Attributes:
        key: What it is the result of.
    """

    key: str
    tables: list[_Table]
    findings: list[Finding]
    notes: list[_Note]


def write(path: Path, key: str, result: Result) -> bool:
    """Write a result; returns whether it reads back the same.

    Args:
        path: The file, which is replaced.
        key: What it is the result of; only who knows it can read it.
        result: What to keep.

    Raises:
        OSError: It cannot be written. The other `UNREADABLE`: it is of a kind that cannot be kept.
    """
    tables = [_Table(name=name, objects=_objects(frame)) for name, frame in result.tables.items()]
    notes = [_Note(text=str(note), remark=isinstance(note, Remark)) for note in result.notes]
    head = _Head(key=key, tables=tables, findings=list(result.findings), notes=notes)
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr(_HEAD, msgspec.json.encode(head, enc_hook=_number))
        for place, frame in enumerate(result.tables.values()):
            with archive.open(_member(place), "w", force_zip64=True) as stream:
                _write_table(stream, frame)
    kept = read(path, key)
    return kept is not None and same(kept, result)


def read(path: Path, key: str) -> Result | None:
    """The result that a file keeps; None when it is of another key.

    Raises:
        UNREADABLE: There is no such file, or it is damaged.
    """
    with zipfile.ZipFile(path) as archive:
        head = msgspec.json.decode(archive.read(_HEAD), type=_Head)
        if head.key != key:
            return None
        tables = {
            one.name: _read_table(archive.read(_member(place)), one.objects)
            for place, one in enumerate(head.tables)
        }
    notes = tuple(Remark(note.text) if note.remark else note.text for note in head.notes)
    return Result(tables=tables, findings=tuple(head.findings), notes=notes)


def same(one: Result, other: Result) -> bool:
    """Whether two results are the same in all: tables with their types, findings, notes and their kinds."""
    notes = [(type(note), note) for note in one.notes] == [(type(note), note) for note in other.notes]
    plain = notes and one.findings == other.findings and list(one.tables) == list(other.tables)
    return plain and all(_same(frame, other.tables[name]) for name, frame in one.tables.items())


def _same(one: pd.DataFrame, other: pd.DataFrame) -> bool:
    return bool(one.equals(other)) and list(one.dtypes) == list(other.dtypes)


def _member(place: int) -> str:
    return f"{place}.arrow"


def _objects(frame: pd.DataFrame) -> list[str]:
    return [str(name) for name, kind in frame.dtypes.items() if pd.api.types.is_object_dtype(kind)]


def _write_table(stream: Any, frame: pd.DataFrame) -> None:
    table = pa.Table.from_pandas(frame)
    columns = [one.chunk(0) if one.num_chunks == 1 else one.combine_chunks() for one in table.columns]
    options = pa.ipc.IpcWriteOptions(compression="zstd")
    with pa.ipc.new_stream(stream, table.schema, options=options) as writer:
        # A batch even where there are no rows: it brings the categories.
        writer.write_batch(pa.RecordBatch.from_arrays(columns, schema=table.schema))


def _read_table(data: bytes, objects: list[str]) -> pd.DataFrame:
    with pa.ipc.open_stream(data) as reader:
        table = reader.read_all()
    frame: pd.DataFrame = table.to_pandas()
    for name in objects:  # text comes back as pandas' own kind of it
        frame[name] = pd.Series(table[name].to_pylist(), index=frame.index, dtype=object)
    return frame


def _number(value: Any) -> Any:
    """A number of numpy as Python's."""
    if hasattr(value, "item"):
        return value.item()
    raise TypeError(f"{type(value).__name__} cannot be kept")


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
        version = code_version(analysis.get(name))
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
            if not write(temporary, key, result) or temporary.stat().st_size > self.largest:
                return False
            temporary.rename(path)
        except UNREADABLE:
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
        return read(path, key)
    except UNREADABLE:
        return None


def _content(run: Run) -> str | None:
    """What tells a run's content: its metadata, which has the digests of its tables, and what its files are.

    A file that was changed without its digest is told by its size or time.
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
    for path in storage.inside(folder, f"*/*{_ENDING}"):
        with suppress(OSError):
            stat = path.stat()
            yield stat.st_mtime_ns, stat.st_size, path
