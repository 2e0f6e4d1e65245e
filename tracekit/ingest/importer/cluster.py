"""Import the traces of a job on workers: one task decodes and spools a trace, a second one writes its tables.

In between, the importing process computes what depends on the whole job: the run's zero and the row ids of
each trace. A trace whose spool is gone, because its worker's machine is, is decoded again.
"""

from __future__ import annotations

import secrets
import shutil
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import Any

import msgspec
from msgspec import structs

from tracekit import storage
from tracekit.errors import UnusableInputError
from tracekit.executors import Outcome, Workers, keep, scratch
from tracekit.ingest.importer.execution import Decoded, Destination, Failed, Progress, Written
from tracekit.ingest.importer.local import close_traces, convert_read_errors, read
from tracekit.ingest.importer.trace_writer import write
from tracekit.ingest.jobs.sources import Source
from tracekit.ingest.kineto.scan.loader import scanners
from tracekit.ingest.pool import open_pool
from tracekit.runs.store import Draft
from tracekit.runs.tables import move_to_draft
from tracekit.storage import Place as Address
from tracekit.storage import locks

PREFIX = "tracekit-spool-"
"""Prefix of the spool folders of imports on a worker's machine."""
ABANDONED_S = 24 * 3600
"""Age in seconds from which a spool is deleted, whatever it is."""


class Spool(msgspec.Struct, frozen=True, kw_only=True):
    """Spool folder of an import on each machine, and destination of its files."""

    name: str  # name of the folder in the machine's scratch folder
    address: Address  # address of the draft run

    def make(self) -> Path:
        """Create a new folder in the spool for one attempt."""
        root = scratch() / self.name
        while True:
            root.mkdir(parents=True, exist_ok=True)
            folder = root / locks.new_mark()
            with suppress(FileNotFoundError):  # another attempt has just deleted the spool, as it was empty
                folder.mkdir()
                return folder


def decode(source: Source, spool: Spool) -> list[Decoded | Failed]:
    """Decode a source, in the worker."""
    _check_access(source.path, spool.address)
    _delete_abandoned(spool.name)
    with open_pool(1) as pool, scanners(source.text_bytes) as fast, convert_read_errors(source.path):
        folder = spool.make()
        keep(folder)
        traces = read(source.path, folder, (pool, fast), lambda _done: None)
        return close_traces(source, traces, source.identity)


def _check_access(path: Address, address: Address) -> None:
    """Check that this machine sees the trace and the draft run, as the importing process does."""
    if storage.kind(path) is storage.Kind.NOTHING:
        message = f"{path} is missing on a worker"
        raise UnusableInputError(message, hint="use traces that all workers find under the same path")
    if isinstance(address, Path) and not address.is_dir():
        hint = "choose a --store that all workers find under the same path, or a URL such as s3://"
        raise UnusableInputError(f"the store {address.parent} is missing on a worker", hint=hint)


def _delete_abandoned(current: str) -> None:
    """Delete what killed workers have spooled on this machine for other imports, and all that is old."""
    for folder in scratch().glob(f"{PREFIX}*"):
        with suppress(OSError):
            if time.time() - folder.stat().st_mtime > ABANDONED_S:
                shutil.rmtree(folder, ignore_errors=True)
            elif folder.name != current:
                for attempt in folder.iterdir():
                    if locks.is_abandoned(attempt, attempt.name):
                        shutil.rmtree(attempt, ignore_errors=True)
                folder.rmdir()  # if it is empty


def write_parts(task: tuple[Decoded, Destination], spool: Spool) -> Written:
    """Write the tables of a decoded trace, in the worker."""
    decoded, place = task
    trace = _ensure_spooled(decoded, spool).trace
    folder = spool.make()
    try:
        linked = write(trace, structs.replace(place, directory=folder))
        if place.part is not None:
            for part in folder.glob("*/*.parquet"):  # another attempt must not overwrite it
                part.rename(part.with_stem(f"{part.stem}-{secrets.token_hex(8)}"))
        return Written(linked=linked, delivered=move_to_draft(folder, spool.address))
    finally:
        shutil.rmtree(folder, ignore_errors=True)
        with suppress(OSError):
            folder.parent.rmdir()  # if the client is gone, and the spools with it


def _ensure_spooled(decoded: Decoded, spool: Spool) -> Decoded:
    """Return the decoded trace; decode it again if its spool is not on this machine."""
    if decoded.trace.directory.is_dir():
        return decoded
    again = decode(decoded.source, spool)[decoded.number]
    if isinstance(again, Failed):
        raise again.error
    if again.size != decoded.size:
        message = f"{decoded.source.path} changed during the import"
        raise UnusableInputError(message, hint="import it again")
    return again


def clear(name: str) -> None:
    """Delete the spool of an import on this machine."""
    shutil.rmtree(scratch() / name, ignore_errors=True)


@contextmanager
def on_workers(workers: Workers, draft: Draft, progress: Progress) -> Iterator[WorkerExecutor]:
    """Return an executor that uses workers; their spools are deleted at exit.

    Args:
        workers: Workers that run the tasks.
        draft: The draft run, at an address that all workers reach.
        progress: Called with the stage, the number of finished traces and their total.
    """
    spool = Spool(name=f"{PREFIX}{secrets.token_hex(8)}", address=draft.address)
    try:
        yield WorkerExecutor(workers, spool, progress)
    finally:
        workers.everywhere(clear, spool.name)


class WorkerExecutor:
    """Executor that decodes and writes traces on workers."""

    def __init__(self, workers: Workers, spool: Spool, progress: Progress) -> None:
        self._workers, self._spool, self._progress = workers, spool, progress

    def decode(self, sources: Sequence[Source]) -> list[Decoded | Failed]:
        """Decode traces; return those of each source, in the order of the sources."""
        tasks = [_with_absolute_paths(source) for source in sources]
        decoded: list[Decoded | Failed] = []
        outcomes = self._run_tasks("reading", decode, tasks, [])
        for source, outcome in zip(sources, outcomes, strict=True):
            results = [Failed(source=source, error=outcome.error)] if outcome.error else outcome.get()
            for result in results:
                host = {"host": outcome.host} if isinstance(result, Decoded) else {}
                decoded.append(structs.replace(result, source=source, **host))
        return decoded

    def write(self, tasks: Sequence[tuple[Decoded, Destination]]) -> list[Written | Failed]:
        """Link traces and write their tables; return the result for each, in their order."""
        sent = []
        for decoded, place in tasks:
            source = _with_absolute_paths(decoded.source)
            sent.append((structs.replace(decoded, source=source), structs.replace(place, source=source)))
        outcomes = self._run_tasks("writing", write_parts, sent, [decoded.host for decoded, _ in tasks])
        return [
            Failed(source=decoded.source, error=outcome.error) if outcome.error else outcome.get()
            for (decoded, _), outcome in zip(tasks, outcomes, strict=True)
        ]

    def _run_tasks(
        self, what: str, function: Callable[..., Any], tasks: Sequence[Any], near: Sequence[str]
    ) -> list[Outcome[Any]]:
        outcomes: dict[int, Outcome[Any]] = {}
        self._report_progress(what, 0, len(tasks))
        for outcome in self._workers.map(partial(function, spool=self._spool), tasks, near=near):
            outcomes[outcome.index] = outcome
            self._report_progress(what, len(outcomes), len(tasks))
        return [outcomes[index] for index in range(len(tasks))]

    def _report_progress(self, what: str, done: int, total: int) -> None:
        count = self._workers.count
        self._progress(f"{what} on {count} worker{'s' * (count != 1)}", done, total)


def _with_absolute_paths(source: Source) -> Source:
    """Return a source with an absolute path, as workers have other working directories."""
    path, *captures = (
        path.absolute() if isinstance(path, Path) else path for path in (source.path, *source.captures)
    )
    return structs.replace(source, path=path, captures=tuple(captures))
