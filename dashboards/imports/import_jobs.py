"""Uploads and imports of the browser.

Slices are appended to files with safe names in the store's dot folder.

Imports run one at a time, each in a worker process, so that pages stay responsive.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum
from pathlib import Path
from typing import Any, BinaryIO

from tracekit.errors import TracekitError, UnusableInputError
from tracekit.runs.store import Store
from tracekit.storage import locks

from . import worker

FOLDER = ".uploads"
_CHUNK_BYTES = 1 << 20
_UNSAFE = re.compile(r"[^A-Za-z0-9._+=-]+")


def safe_file_name(name: str) -> str:
    """Return a safe file name without folders."""
    last = re.split(r"[/\\]", name)[-1]
    return _UNSAFE.sub("_", last).lstrip(".-_")[-120:] or "trace"


@dataclass
class Upload:
    """Files of one import."""

    store: Store  # store whose dot folder temporarily contains them
    id: str  # id of the import; starts with the id of this process
    limit: int  # maximum bytes of all files
    received: int = 0  # bytes received
    _files: dict[str, Path] = field(default_factory=dict)
    _sizes: dict[str, int] = field(default_factory=dict)

    @property
    def files(self) -> list[Path]:
        """The files, in order of their first slice."""
        return list(self._files.values())

    @property
    def size(self) -> int:
        """Bytes of all files, as declared or received."""
        return max(sum(self._sizes.values()), self.received)

    @property
    def folder(self) -> Path:
        """Folder of the files."""
        return self.store.local_folder / FOLDER / self.id

    def append(self, name: str, *, offset: int, body: BinaryIO) -> None:
        """Append a slice to a file.

        Args:
            name: Name of the file.
            offset: Offset of the slice.
            body: The slice.

        Raises:
            UnusableInputError: It is too large, out of order, or cannot be written.
        """
        with self.store.convert_write_errors():
            path = self._file(name)
            if offset != (path.stat().st_size if path.exists() else 0):
                raise UnusableInputError(f"part of {name[:200]} is missing", hint="drop the file again")
            with path.open("ab") as file:
                while piece := body.read(_CHUNK_BYTES):
                    self.received += len(piece)
                    self._check(self.size)  # the declared size may be wrong
                    file.write(piece)

    def declare(self, name: str, size: int) -> None:
        """Note the size of a complete file.

        Raises:
            UnusableInputError: The files are too large.
        """
        self._sizes[name] = max(size, self._sizes.get(name, 0))
        self._check(self.size)

    def discard(self) -> None:
        """Delete the files."""
        shutil.rmtree(self.folder, ignore_errors=True)

    def _check(self, wanted: int) -> None:
        if wanted > self.limit:
            raise UnusableInputError(
                f"the traces are larger than the upload limit of {self.limit / (1 << 30):.3g} GiB",
                hint="use `tracekit import PATH`, or start `tracekit dashboard` with a larger --upload-limit",
            )

    def _file(self, name: str) -> Path:
        if name not in self._files:
            for entry in self.store.folder(FOLDER).iterdir():
                if locks.is_dead(entry.name):  # of a server that no longer runs
                    shutil.rmtree(entry, ignore_errors=True)
            place = self.folder / str(len(self._files))  # two files may have the same name
            place.mkdir(parents=True)
            self._files[name] = place / safe_file_name(name)
        return self._files[name]


class Phase(StrEnum):
    """Phase of an import."""

    RECEIVING = "receiving"
    WAITING = "waiting"
    IMPORTING = "importing"
    DONE = "done"
    FAILED = "failed"
    CANCELLED = "cancelled"


MAX_PENDING = 16
"""Maximum imports that are being received, wait or run."""
MIN_FREE_BYTES = 256 << 20
"""Bytes that an upload leaves free on the disk."""
MAX_END_S = 10.0
"""Seconds that a worker process has to end when the server stops."""
FINISHED = {Phase.DONE, Phase.FAILED, Phase.CANCELLED}


@dataclass(frozen=True)
class State:
    """State of an import."""

    id: str  # id of the import
    name: str  # name for display
    phase: Phase = Phase.RECEIVING  # current phase
    received: int = 0  # bytes received
    read: int = 0  # bytes decoded of the current file
    size: int = 0  # size of the current file; 0 if unknown
    runs: tuple[str, ...] = ()  # names of the created runs
    warnings: int = 0  # number of warnings in those runs
    errors: tuple[tuple[str, str], ...] = ()  # message and hint of each error


def _apply_message(state: State, message: dict[str, Any], upload: Upload) -> State:
    """Return the state after a line of the worker, in which the folder of the upload is left out."""
    if "progress" in message:
        _, done, size = message["progress"]
        return replace(state, read=done, size=size)
    if "run" in message:
        warnings = state.warnings + message["warnings"]
        return replace(state, runs=(*state.runs, message["run"]), warnings=warnings)
    text = re.sub(re.escape(f"{upload.folder}{os.sep}") + r"\d+/", "", message["error"])
    return replace(state, errors=(*state.errors, (text, message["hint"])))


MAX_SILENCE_S = 1_800
"""Seconds without a slice after which an upload counts as abandoned."""
MAX_REMEMBERED = 20
"""Maximum imports remembered; the oldest finished one is dropped first."""


@dataclass
class _Import:
    state: State
    upload: Upload
    touched_s: float = field(default_factory=time.monotonic)
    finished: threading.Event = field(default_factory=threading.Event)
    process: subprocess.Popen[str] | None = None


@dataclass
class Imports:
    """All imports of a server into a store."""

    store: Store
    limit: int  # maximum of bytes that are not imported yet
    # called with the name of the run of an import that made only one
    on_run: Callable[[str], None] = lambda _: None
    _closed: bool = False
    _known: dict[str, _Import] = field(default_factory=dict)
    _lock: threading.RLock = field(default_factory=threading.RLock)
    _serial: threading.Lock = field(default_factory=threading.Lock)

    def states(self) -> list[State]:
        """Every remembered import, oldest first."""
        with self._lock:
            return [job.state for job in self._known.values()]

    def receive(self, key: str, *, name: str, offset: int, size: int, body: BinaryIO) -> State:
        """Receive a slice of a file; see `Upload.append`.

        Args:
            key: Id of the import; empty starts a new one.
            name: Name of the file.
            offset: Offset of the slice in the file.
            size: Size of the complete file.
            body: The slice.

        Raises:
            UnusableInputError: It is too large, out of order, or cannot be written.
        """
        job = self._find_receiving(key) if key else self._new(name)
        try:
            self._reserve(job, name, size)
            job.upload.append(name, offset=offset, body=body)
        except TracekitError as error:
            self._fail(job, error)
            job.upload.discard()
            raise
        with self._lock:
            job.state = replace(job.state, received=job.upload.received)
            job.touched_s = time.monotonic()
            return job.state

    def start(self, key: str) -> State:
        """Import the received files.

        Raises:
            UnusableInputError: There is no such import, or it has already started.
        """
        job = self._find_receiving(key)
        return self._start(job, job.upload.files)

    def begin(self, name: str, traces: Sequence[Path]) -> State:
        """Import local files."""
        return self._start(self._new(name), traces)

    def cancel(self, key: str) -> State:
        """Cancel an import; forget one that has finished.

        Raises:
            UnusableInputError: There is no such import.
        """
        job = self._find(key)
        with self._lock:
            if job.state.phase in FINISHED:
                self._known.pop(key, None)
            else:
                job.state = replace(job.state, phase=Phase.CANCELLED)
                if job.process:
                    job.process.terminate()
                else:
                    job.upload.discard()
            return job.state

    def close(self) -> None:
        """Cancel all imports, and wait until their files are deleted; for the end of the server."""
        with self._lock:
            self._closed = True
            jobs = list(self._known.items())
        for key, job in jobs:
            if job.state.phase not in FINISHED:
                self.cancel(key)
        for _, job in jobs:
            if job.process:
                job.finished.wait(MAX_END_S)
            job.upload.discard()

    def wait(self, key: str, *, seconds: float) -> State:
        """Wait until an import has finished, or for at most this many seconds; return its state.

        Raises:
            UnusableInputError: There is no such import.
        """
        job = self._find(key)
        job.finished.wait(seconds)
        return job.state

    def _find(self, key: str) -> _Import:
        with self._lock:
            if key not in self._known:
                raise UnusableInputError("unknown import", hint="drop the file again")
            return self._known[key]

    def _find_receiving(self, key: str) -> _Import:
        job = self._find(key)
        if job.state.phase is not Phase.RECEIVING:
            raise UnusableInputError(f"this import is already {job.state.phase}", hint="drop the file again")
        return job

    def _list_pending(self) -> list[_Import]:
        return [job for job in self._known.values() if job.state.phase not in FINISHED]

    def _reserve(self, job: _Import, name: str, size: int) -> None:
        """Note the size of a file, and refuse it if it exceeds the limit of all uploads or the disk."""
        with self._lock:
            others = [other.upload for other in self._list_pending() if other is not job]
            # before any byte is written: a full disk would break other writers of the store
            job.upload.declare(name, size)
            if job.upload.size + sum(other.size for other in others) > self.limit:
                raise UnusableInputError(
                    f"uploads that are not imported yet reach the limit of {self.limit / (1 << 30):.3g} GiB",
                    hint="wait until they are imported and drop the file again",
                )
            left = sum(upload.size - upload.received for upload in (job.upload, *others))
        folder = self.store.local_folder.absolute()
        free = shutil.disk_usage(next(path for path in (folder, *folder.parents) if path.exists())).free
        if left + MIN_FREE_BYTES > free:
            raise UnusableInputError(
                f"not enough free space: {left:,} bytes to receive, {free:,} free",
                hint="free space on the disk of the store, or use `tracekit import PATH`",
            )

    def _new(self, name: str) -> _Import:
        key = locks.new_mark()
        new = _Import(State(key, name[:200]), Upload(self.store, key, self.limit))
        with self._lock:
            jobs = list(self._known.items())
        for other, job in jobs:  # cancel abandoned uploads
            if job.state.phase is Phase.RECEIVING and time.monotonic() - job.touched_s > MAX_SILENCE_S:
                self.cancel(other)
        with self._lock:
            if self._closed:
                raise UnusableInputError("the dashboard is stopping", hint="start it again")
            if len(self._list_pending()) >= MAX_PENDING:
                raise UnusableInputError(
                    f"{MAX_PENDING} imports are pending already", hint="wait until one of them has finished"
                )
            self._known[key] = new
            finished = [key for key, job in self._known.items() if job.state.phase in FINISHED]
            for old in finished[: max(0, len(self._known) - MAX_REMEMBERED)]:
                del self._known[old]
        return new

    def _start(self, job: _Import, traces: Sequence[Path]) -> State:
        with self._lock:
            job.state = replace(job.state, phase=Phase.WAITING)
        threading.Thread(target=self._run, args=(job, traces), daemon=True).start()
        return job.state

    def _run(self, job: _Import, traces: Sequence[Path]) -> None:
        try:
            with self._serial:
                process = self._spawn(job, traces)
                if process:
                    self._follow(job, process)
        except (OSError, ValueError) as error:
            self._fail(job, TracekitError(f"the import failed: {error}", hint="drop the file again"))
        finally:
            job.upload.discard()
            job.finished.set()

    def _spawn(self, job: _Import, traces: Sequence[Path]) -> subprocess.Popen[str] | None:
        with self._lock:
            if job.state.phase is Phase.CANCELLED or self._closed:
                return None
            job.process = worker.start_worker(self.store.path, traces)
            job.state = replace(job.state, phase=Phase.IMPORTING)
            return job.process

    def _follow(self, job: _Import, process: subprocess.Popen[str]) -> None:
        with process:
            for line in process.stdout or ():
                with self._lock:
                    job.state = _apply_message(job.state, json.loads(line), job.upload)
        with self._lock:
            if job.state.phase is not Phase.IMPORTING:
                return
            runs = job.state.runs
            if runs:
                job.state = replace(job.state, phase=Phase.DONE)
        if runs:
            if len(runs) == 1:
                self.on_run(runs[0])
            return
        reason = f"the import exited with code {process.returncode}"
        error = TracekitError(reason, hint="free memory and drop the file again")
        self._fail(job, None if job.state.errors else error)

    def _fail(self, job: _Import, error: TracekitError | None) -> None:
        with self._lock:
            more = ((error.message, error.hint),) if error else ()
            job.state = replace(job.state, phase=Phase.FAILED, errors=(*job.state.errors, *more))
