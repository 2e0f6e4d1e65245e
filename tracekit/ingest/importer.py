"""Import traces: group files, folders and standard input into jobs, and import each job as one run."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec
from msgspec import structs

from tracekit import storage
from tracekit.errors import TracekitError, UnusableInputError
from tracekit.ingest import nsys, sources
from tracekit.ingest.artifacts import Kernel
from tracekit.ingest.assembly import LEFT_OUT, assemble
from tracekit.ingest.capture_files import captures_of
from tracekit.ingest.decoding import closed, read, reading, write
from tracekit.ingest.executor import Decoded, Destination, Failed, Written
from tracekit.ingest.kineto.scan.loader import scanners
from tracekit.ingest.link import serving
from tracekit.ingest.nsys import is_nsys
from tracekit.ingest.pool import cores, open_pool
from tracekit.ingest.ranks import Peeked, peek_each
from tracekit.ingest.sources import Job, Source, alone, cycles
from tracekit.ingest.write import Sample
from tracekit.registry import VERSION
from tracekit.runs.meta import Collector, RunMeta
from tracekit.runs.run import Run
from tracekit.runs.store import Store, new_run_id, timestamp
from tracekit.schema import C, HostKind
from tracekit.storage import STDIN, Kind, Place, kind

if TYPE_CHECKING:
    from tracekit.executors import Workers
    from tracekit.ingest.decoding import Decoders

__all__ = ["Job", "Plan", "Source", "plan", "survey"]


class Plan(msgspec.Struct, frozen=True):
    """Jobs that can be imported, and errors of paths that cannot."""

    jobs: list[Job] = msgspec.field(default_factory=list)
    errors: list[TracekitError] = msgspec.field(default_factory=list)


def plan(paths: Sequence[Place]) -> list[Job]:
    """Group traces into jobs.

    Files with different ranks of one `distributedInfo` group are one job, and so is a folder; a rank that
    comes again starts another job (another profiled cycle of the same program).

    Raises:
        UnusableInputError: A path does not exist, or a folder holds no trace.
    """
    found = survey(paths)
    if found.errors:
        raise found.errors[0]
    return found.jobs


def survey(paths: Sequence[Place]) -> Plan:
    """Group traces into jobs as `plan` does; collect the errors of unusable paths instead of raising."""
    found, single = Plan(), list[Place]()
    for path in paths:
        try:
            match kind(path):
                case Kind.STREAM:
                    found.jobs.append(_stream(path))
                case Kind.FOLDER if is_nsys(path):
                    single.append(path)
                case Kind.FOLDER:
                    found.jobs.extend(_inside(path))
                case _:
                    single.append(path)
        except TracekitError as error:
            found.errors.append(error)
    seen = peek_each(single)
    found.errors.extend(one for one in seen if isinstance(one, TracekitError))
    found.jobs.extend(_grouped([one for one in seen if isinstance(one, Peeked)]))
    return found


def _inside(folder: Place) -> list[Job]:
    from tracekit.ingest.folders import jobs_in  # not needed for named files

    return jobs_in(folder)


def _stream(path: Place) -> Job:
    """Return the job of a stream, which is not examined as it can be read only once."""
    if path == STDIN:
        return Job("stdin", (Source(path),))
    return (
        Job("pipe", (Source(path),)) if path.name.isdigit() else alone(path)
    )  # a name such as /dev/fd/63 is meaningless


def _grouped(files: list[Peeked]) -> list[Job]:
    jobs: list[Job] = []
    groups: dict[object, list[Source]] = defaultdict(list)
    for trace in files:
        if trace.group is None:
            jobs += cycles(None, [Source(trace.path, trace.rank)])
        else:
            groups[trace.group].append(Source(trace.path, trace.rank))
    return jobs + [job for sources in groups.values() for job in cycles(None, sources)]


THREAD_BYTES = 1 << 20
"""Bytes of text from which more than one thread decodes."""
POOL_BYTES = 24 << 20
"""Bytes of text from which worker processes save more time than their start takes."""
UNKNOWN_BYTES = POOL_BYTES
"""Assumed size of a stream."""

Progress = Callable[[str, int, int], None]
"""Callback with a trace's name, its bytes decoded so far, and its size (0 if unknown)."""


def _silent(_name: str, _done: int, _size: int) -> None:
    pass


def import_traces(
    store: Store, paths: Sequence[storage.Place], *, label: str | None = None, progress: Progress = _silent
) -> list[Run]:
    """Import traces; ranks of one job become one run.

    Args:
        store: Store of the new runs.
        paths: Files, folders, or `-` for standard input.
        label: Label of the new runs.
        progress: Called with the progress of decoding.

    Raises:
        UnusableInputError: A path cannot be used; the runs of earlier paths remain.
    """
    outcomes = list(import_each(store, paths, label=label, progress=progress))
    for outcome in outcomes:
        if isinstance(outcome, TracekitError):
            raise outcome
    return [outcome for outcome in outcomes if not isinstance(outcome, TracekitError)]


def import_each(
    store: Store,
    paths: Sequence[storage.Place],
    *,
    label: str | None = None,
    steps: str = "",
    captures: Sequence[Place] = (),
    kernels: Sequence[Kernel] = (),
    progress: Progress = _silent,
    workers: Workers | None = None,
) -> Iterator[Run | TracekitError]:
    """Import traces as `import_traces` does, but yield the errors of unusable traces and go on.

    Args:
        store: Store of the new runs.
        paths: Files, folders, or `-` for standard input.
        label: Label of the new runs.
        steps: Name of the ranges that are the steps, numbered in order; the usual markers by default.
        captures: Traces of the captures of the traces' graphs; those beside a trace by default.
        kernels: Kernels of the program, as `tracekit.ingest.artifacts` reads them.
        progress: Called with the progress: bytes of a trace, or traces of a job on workers.
        workers: Workers that decode and write the traces of jobs of several; this process by default. They
            must have the traces and the store under the same paths.
    """
    plan = survey(paths)
    for job in plan.jobs:
        try:
            job = with_captures(job, captures)
            run = import_job(
                store, job, label=label, steps=steps, kernels=kernels, progress=progress, workers=workers
            )
        except TracekitError as error:
            plan.errors.append(error)
            continue
        plan.errors.extend(_incomplete(run, job))
        if steps and not run.rows("steps"):
            plan.errors.append(_without_range(run, steps))
        yield run
    yield from plan.errors


def with_captures(job: Job, given: Sequence[Place] = ()) -> Job:
    """Return a job with the captures of its graphs: those given, else those beside each trace."""
    found = tuple(structs.replace(each, captures=captures_of(each, given)) for each in job.sources)
    return structs.replace(job, sources=found)


def _incomplete(run: Run, job: Job) -> list[TracekitError]:
    """Return the error of an incomplete run; its diagnostics contain the reasons."""
    lost = [note for note in run.meta.diagnostics if note.code == LEFT_OUT]
    if not lost:
        return []
    what = f"{len(lost)} of {job.name}'s {len(job.sources)} traces could not be imported"
    return [
        UnusableInputError(
            what, hint=f"see `tracekit show {run.id}` for the reasons; the other traces are imported"
        )
    ]


def _without_range(run: Run, name: str) -> TracekitError:
    """Return the error of a run without ranges of the name that was asked for."""
    import pyarrow.compute as pc

    where = pc.field(C.KIND) == str(HostKind.ANNOTATION)
    names = run.table("host_intervals", columns=[C.NAME], where=where)[C.NAME].astype(str)
    most = ", ".join(repr(str(each)) for each in names.value_counts().index[:3])
    return UnusableInputError(
        f"run {run.id} has no range named {name!r}, so no steps are marked",
        hint=f"its most frequent ranges are {most}" if most else "no ranges were recorded",
    )


def import_job(
    store: Store,
    job: Job,
    *,
    label: str | None = None,
    steps: str = "",
    kernels: Sequence[Kernel] = (),
    progress: Progress = _silent,
    workers: Workers | None = None,
) -> Run:
    """Import a job as one run, with a diagnostic for each unusable trace.

    Raises:
        UnusableInputError: No trace of the job can be used.
    """
    added = serving.configured(Path.cwd())
    named = tuple(structs.replace(source, steps=steps, serving=added) for source in job.sources)
    now = datetime.now(UTC)
    meta = RunMeta(
        run_id=new_run_id(job.name, now=now),
        created_at=timestamp(now),
        t0_unix_ns=0,
        label=label,
        collector=Collector("import", VERSION),
        diagnostics=[*job.notes],
    )
    if workers and not any(storage.kind(source.path) is storage.Kind.STREAM for source in named):
        from tracekit.ingest.cluster import on_workers  # loads what only clusters need

        with store.draft(meta.run_id) as draft, on_workers(workers, draft, progress) as executor:
            found = executor.decode(named)
            return assemble(draft, executor, found, meta, kernels=kernels, with_sources=True)
    return _normalize(store, named, meta, progress=progress, kernels=kernels, with_sources=True)


def import_recording(
    store: Store,
    traces: Sequence[Path],
    meta: RunMeta,
    *,
    samples: Sequence[Sample] = (),
    kernels: Sequence[Kernel] = (),
    progress: Progress = _silent,
) -> Run:
    """Normalize what a collector recorded.

    Args:
        store: Store of the new run.
        traces: One trace per rank, in rank order.
        meta: Metadata of the run; zero, tables and diagnostics are filled in.
        samples: Rows of `counters` sampled by the collector.
        kernels: Kernels of the program, as `tracekit.ingest.artifacts` reads them.
        progress: Called with the progress of decoding.

    Raises:
        UnusableInputError: A trace cannot be used.
    """
    alone = len(traces) == 1
    added = serving.configured(Path.cwd())
    sources = tuple(Source(path, None if alone else rank, serving=added) for rank, path in enumerate(traces))
    return _normalize(store, sources, meta, samples=samples, kernels=kernels, progress=progress)


def _normalize(
    store: Store,
    sources: tuple[Source, ...],
    meta: RunMeta,
    *,
    progress: Progress,
    samples: Sequence[Sample] = (),
    kernels: Sequence[Kernel] = (),
    with_sources: bool = False,
) -> Run:
    with store.draft() as draft, store.draft() as spool:  # the spool is a draft that is never committed
        executor = LocalExecutor(store, spool.path, progress)
        found = executor.decode(sources)
        with store.writing():
            return assemble(
                draft, executor, found, meta, samples=samples, kernels=kernels, with_sources=with_sources
            )


class LocalExecutor(msgspec.Struct, frozen=True):
    """Executor that uses this process: one trace after the other, each on all cores."""

    store: Store
    spool: Path
    progress: Progress

    def decode(self, sources: Sequence[Source]) -> list[Decoded | Failed]:
        """See `Executor.decode`."""
        sizes = [source.text_bytes for source in sources if not nsys.is_nsys(source.path)]
        size = sum(sizes) if 0 not in sizes else UNKNOWN_BYTES  # a stream may be of any size
        workers = cores() if size >= THREAD_BYTES else 1
        with open_pool(workers, processes=size >= POOL_BYTES) as pool, scanners(size) as fast:
            return [
                outcome
                for number, source in enumerate(sources)
                for outcome in self._decode_one(source, self.spool / f"{number:05d}", (pool, fast))
            ]

    def _decode_one(self, source: Source, directory: Path, decoders: Decoders) -> list[Decoded | Failed]:
        name, size = sources.name(source.path), source.size
        with self.store.writing():  # `reading` leaves errors of the spool alone
            try:
                with reading(source.path):
                    directory.mkdir()
                    traces = read(
                        source.path, directory, decoders, lambda done: self.progress(name, done, size)
                    )
                    identity = source.identity
            except TracekitError as error:
                return [Failed(source=source, error=error)]
            return closed(source, traces, identity)

    def write(self, tasks: Sequence[tuple[Decoded, Destination]]) -> list[Written | Failed]:
        """See `Executor.write`; an error of the disk is raised, as it concerns all traces."""
        return [Written(linked=write(one.trace, place)) for one, place in tasks]
