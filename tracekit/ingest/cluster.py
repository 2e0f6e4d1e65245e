"""Workers as the crew: each trace is a task, decoded and parked on a worker, then written from there.

Between the two stands what only the whole job tells: the run's zero, and the numbers of each trace's rows.
A trace that is not found parked when it is to be written, because its worker's machine is gone, is decoded
again.
"""

from __future__ import annotations

import secrets
import shutil
import time
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec
from msgspec import structs

from tracekit import storage
from tracekit.errors import UnusableInputError
from tracekit.executors import scratch
from tracekit.ingest.decoding import closed, read, reading, write
from tracekit.ingest.executor import Decoded, Failed, Written
from tracekit.ingest.kineto.scan.loader import scanners
from tracekit.ingest.pool import open_pool
from tracekit.runs.tables import deliver

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from tracekit.executors import Outcome, Workers
    from tracekit.ingest.executor import TaskPlace
    from tracekit.ingest.sources import Source
    from tracekit.runs.store import Draft
    from tracekit.storage import Place as Address

    Progress = Callable[[str, int, int], None]

PREFIX = "tracekit-spool-"
"""Begins the name of the folder in which the traces of one import are parked on a worker's machine."""
FORGOTTEN_S = 24 * 3600
"""Seconds after which what is parked is of an import that was killed; else it will be decoded again."""


class Spool(msgspec.Struct, frozen=True, kw_only=True):
    """Where the traces of one import are parked on every machine, and where its files go.

    Attributes:
        name: The folder in the machine's scratch folder.
        address: The draft.
    """

    name: str
    address: Address

    def make(self) -> Path:
        """A new folder in it: an attempt never meets what another one left."""
        folder = scratch() / self.name / secrets.token_hex(8)
        folder.mkdir(parents=True)
        return folder


class Reading(msgspec.Struct, frozen=True, kw_only=True):
    """The task of decoding one source."""

    source: Source
    spool: Spool


class Writing(msgspec.Struct, frozen=True, kw_only=True):
    """The task of writing one decoded trace."""

    decoded: Decoded
    place: TaskPlace
    spool: Spool


def decode(task: Reading) -> list[Decoded | Failed]:
    """Decode a source, where it runs."""
    _check(task)
    _forget()
    path, size = task.source.path, task.source.text_bytes
    with open_pool(1) as pool, scanners(size) as fast, reading(path):
        traces = read(path, task.spool.make(), (pool, fast), lambda _done: None)
        return closed(task.source, traces, task.source.identity)


def _check(task: Reading) -> None:
    """Raise where the machine does not see what the others see."""
    path, address = task.source.path, task.spool.address
    if storage.kind(path) is storage.Kind.NOTHING:
        raise UnusableInputError(
            f"{path} is missing on a worker", hint="use traces that all workers find under the same path"
        )
    if isinstance(address, Path) and not address.is_dir():
        raise UnusableInputError(
            f"the store {address.parent} is missing on a worker",
            hint="choose a --store that all workers find under the same path, or a URL such as s3://",
        )


def _forget() -> None:
    """Delete what imports that were killed left on this machine."""
    for folder in scratch().glob(f"{PREFIX}*"):
        with suppress(OSError):
            if time.time() - folder.stat().st_mtime > FORGOTTEN_S:
                shutil.rmtree(folder, ignore_errors=True)


def write_parts(task: Writing) -> Written:
    """Write a decoded trace, where it runs."""
    trace = _parked(task).trace
    folder = task.spool.make()
    linked = write(trace, structs.replace(task.place, directory=folder))
    if task.place.part is not None:
        for part in folder.glob("*/*.parquet"):  # what another attempt delivers must not take its place
            part.rename(part.with_stem(f"{part.stem}-{folder.name}"))
    return Written(linked=linked, delivered=deliver(folder, task.spool.address))


def _parked(task: Writing) -> Decoded:
    """The decoded trace, decoded again where it is not parked on this machine.

    Raises:
        TracekitError: The file is not what it was any more.
    """
    if task.decoded.trace.directory.is_dir():
        return task.decoded
    again = decode(Reading(source=task.decoded.source, spool=task.spool))[task.decoded.number]
    if isinstance(again, Failed):
        raise again.error
    if again.size != task.decoded.size:
        raise UnusableInputError(
            f"{task.decoded.source.path} changed during the import", hint="import it again"
        )
    return again


def clear(name: str) -> None:
    """Delete what an import has parked on this machine."""
    shutil.rmtree(scratch() / name, ignore_errors=True)


@contextmanager
def afar(workers: Workers, draft: Draft, progress: Progress) -> Iterator[Afar]:
    """Workers as the crew of one job; what they parked is deleted in the end.

    Args:
        workers: Who does the work.
        draft: The run; its address must be one that all of them reach.
        progress: Told what is done, how many traces are through it, and of how many.
    """
    spool = Spool(name=f"{PREFIX}{secrets.token_hex(8)}", address=draft.address)
    try:
        yield Afar(workers, spool, progress)
    finally:
        workers.everywhere(clear, spool.name)


class Afar:
    """Workers as the crew of one job."""

    def __init__(self, workers: Workers, spool: Spool, progress: Progress) -> None:
        self._workers, self._spool, self._progress = workers, spool, progress

    def decode(self, sources: Sequence[Source]) -> list[Decoded | Failed]:
        """See `Crew.decode`."""
        tasks = [Reading(source=_afar(source), spool=self._spool) for source in sources]
        found = self._done("reading", decode, tasks, [])
        return [
            answer
            for source, outcome in zip(sources, found, strict=True)
            for answer in _answers(source, outcome)
        ]

    def write(self, tasks: Sequence[tuple[Decoded, TaskPlace]]) -> list[Written | Failed]:
        """See `Crew.write`."""
        sent = [
            Writing(decoded=structs.replace(one, source=_afar(one.source)), place=place, spool=self._spool)
            for one, place in tasks
        ]
        found = self._done("writing", write_parts, sent, [decoded.host for decoded, _ in tasks])
        return [
            Failed(source=decoded.source, error=outcome.error) if outcome.error else outcome.get()
            for (decoded, _), outcome in zip(tasks, found, strict=True)
        ]

    def _done(
        self, what: str, function: Callable[[Any], Any], tasks: Sequence[Any], near: Sequence[str]
    ) -> list[Outcome[Any]]:
        """What became of each task."""
        found: dict[int, Outcome[Any]] = {}
        self._told(what, 0, len(tasks))
        for outcome in self._workers.map(function, tasks, near=near):
            found[outcome.index] = outcome
            self._told(what, len(found), len(tasks))
        return [found[index] for index in range(len(tasks))]

    def _told(self, what: str, done: int, total: int) -> None:
        count = self._workers.count
        self._progress(f"{what} on {count} worker{'s' * (count != 1)}", done, total)


def _afar(source: Source) -> Source:
    """A source as the workers must name it: they do not stand where this process does."""
    path = source.path
    return structs.replace(source, path=path.absolute()) if isinstance(path, Path) else source


def _answers(source: Source, outcome: Outcome[list[Decoded | Failed]]) -> list[Decoded | Failed]:
    if outcome.error is not None:
        return [Failed(source=source, error=outcome.error)]
    return [
        structs.replace(answer, source=source, host=outcome.host)
        if isinstance(answer, Decoded)
        else structs.replace(answer, source=source)
        for answer in outcome.get()
    ]
