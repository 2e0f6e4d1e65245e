"""Index of a local store: headers of its runs, so that lists need not read every `run.json`.

An entry counts only while size, modification time and change time of its `run.json` are those that it was
made from; the folders of the store decide which runs there are. The file is written as a whole, beside the
runs, once more than `MAX_UNWRITTEN` entries would change. Without it, or if it cannot be read or written,
runs are read.
"""

from __future__ import annotations

import hashlib
import os
import time
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from threading import Lock
from typing import NamedTuple, Self

import msgspec

from tracekit.errors import TracekitError
from tracekit.runs import meta as run_meta
from tracekit.runs.meta import RunMeta
from tracekit.runs.run import Run
from tracekit.schema import SCHEMA_VERSION
from tracekit.storage.atomic import write_atomically

FILE_NAME = ".runs.index"
FORMAT = f"tracekit.index/2 {SCHEMA_VERSION}"
"""First line of the file, with a digest of the rest; change the number with `run_meta.header`."""
MAX_UNWRITTEN = 64
"""Limit of changes that are not written yet: such runs are read each time instead."""
MAX_BYTES = 512 << 20
"""Bytes of an index that is read; 300,000 runs take about 400 MB."""
MIN_AGE_NS = 2_000_000_000
"""Age of a `run.json` from which a later change has another time: the resolution of any file system."""


class Stamp(NamedTuple):
    """State of a `run.json`: its bytes, and when its content and its inode changed, ns since the epoch."""

    size: int
    written_ns: int
    changed_ns: int

    @classmethod
    def of(cls, stat: os.stat_result) -> Self:
        """Return the state of a file."""
        return cls(stat.st_size, stat.st_mtime_ns, stat.st_ctime_ns)


class _Entry(msgspec.Struct, frozen=True, array_like=True):
    stamp: Stamp
    header: RunMeta


@dataclass
class Index:
    """Outlines of the runs in the folder of a store, in memory and in its index file."""

    folder: Path
    _entries: dict[str, _Entry] | None = None
    _runs: dict[str, Run] = field(default_factory=dict)
    _unwritten: int = 0
    _guard: Lock = field(default_factory=Lock)

    def runs(self, folders: Iterable[tuple[Path, Stamp]]) -> list[Run]:
        """Return runs with their headers; those that cannot be read raise the error when it is asked for.

        Args:
            folders: Folder of each run, and the present state of its `run.json`.
        """
        with self._guard:
            before = self._read() if self._entries is None else self._entries
            runs: dict[str, Run] = {}
            entries: dict[str, _Entry] = {}
            read = changed = 0
            for path, stamp in folders:
                name, entry = path.name, before.get(path.name)
                if entry and entry.stamp == stamp:
                    run = self._runs.get(name) or Run.from_metadata(
                        path, stamp.written_ns, header=entry.header
                    )
                else:
                    read += 1
                    run, entry = _read_run(path, stamp, keep=read <= MAX_UNWRITTEN)
                    changed += entry is not None  # what cannot be read is read each time
                runs[name] = run
                if entry:
                    entries[name] = entry
            self._unwritten += changed + len(before.keys() - entries.keys())
            self._entries, self._runs = entries, runs
            if self._unwritten > MAX_UNWRITTEN:
                self._unwritten = 0
                self._write(entries)
            return list(runs.values())

    def _read(self) -> dict[str, _Entry]:
        """Return the entries of the file; none if it is missing, damaged or of another version."""
        with suppress(OSError, ValueError, RecursionError):  # the index only saves time
            file = self.folder / FILE_NAME
            if file.stat().st_size <= MAX_BYTES:
                heading, _, content = file.read_bytes().partition(b"\n")
                if heading == _heading(content):
                    return msgspec.json.decode(content, type=dict[str, _Entry])
        return {}

    def _write(self, entries: dict[str, _Entry]) -> None:
        """Replace the file; leave out runs written just now, which may change again without another time."""
        now = time.time_ns()
        settled = {
            name: entry
            for name, entry in entries.items()
            if max(entry.stamp.written_ns, entry.stamp.changed_ns) < now - MIN_AGE_NS
        }
        content = msgspec.json.encode(settled)
        with suppress(OSError), write_atomically(self.folder / FILE_NAME) as file:
            file.write_bytes(_heading(content) + b"\n" + content)


def _heading(content: bytes) -> bytes:
    return f"{FORMAT} {hashlib.sha256(content).hexdigest()}".encode()


def _read_run(path: Path, stamp: Stamp, *, keep: bool) -> tuple[Run, _Entry | None]:
    """Read a run; keep all of its metadata in memory or only the header."""
    try:
        meta = run_meta.read(path)
        header = run_meta.header(meta)
    except (TracekitError, AttributeError, TypeError):
        return Run(path), None  # raises the error when it is read
    run = Run.from_metadata(path, stamp.written_ns, meta=meta if keep else None, header=header)
    return run, _Entry(stamp, header)
