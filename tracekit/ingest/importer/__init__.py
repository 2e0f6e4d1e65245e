"""Import traces: each job of them as one run."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from msgspec import structs

from tracekit import storage
from tracekit.errors import TracekitError, UnusableInputError
from tracekit.ingest.artifacts import Kernel
from tracekit.ingest.host_samples import HostSamples
from tracekit.ingest.importer import local
from tracekit.ingest.importer.assembly import LEFT_OUT, HostProcessError, assemble
from tracekit.ingest.importer.execution import Progress, ignore_progress
from tracekit.ingest.jobs.ranks import from_name
from tracekit.ingest.jobs.sources import Job, Source, with_captures, without_hosts
from tracekit.ingest.jobs.survey import survey
from tracekit.ingest.link import serving
from tracekit.ingest.write import Sample
from tracekit.registry import VERSION
from tracekit.runs.meta import Collector, RunMeta
from tracekit.runs.run import Run
from tracekit.runs.store import Store, new_run_id, timestamp
from tracekit.schema import C, HostKind
from tracekit.storage import Place

if TYPE_CHECKING:
    from tracekit.executors import Workers


def import_traces(
    store: Store,
    paths: Sequence[storage.Place],
    *,
    label: str | None = None,
    steps: str = "",
) -> list[Run]:
    """Import traces; ranks of one job become one run.

    Args:
        store: Store of the new runs.
        paths: Files, folders, or `-` for standard input.
        label: Label of the new runs.
        steps: Name of the ranges that are the steps; the usual markers by default.

    Raises:
        UnusableInputError: A path cannot be used; what could be imported of the others remains.
    """
    outcomes = list(import_each(store, paths, label=label, steps=steps))
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
    progress: Progress = ignore_progress,
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
    for job in plan.jobs:  # more are added while they are imported
        try:
            job = with_captures(job, captures)
            run = import_job(
                store, job, label=label, steps=steps, kernels=kernels, progress=progress, workers=workers
            )
        except HostProcessError as error:
            plan.jobs.extend(without_hosts(job, error.hosts))
            continue
        except TracekitError as error:
            plan.errors.append(error)
            continue
        plan.errors.extend(_find_missing(run, job, steps))
        yield run
    yield from plan.errors


def _find_missing(run: Run, job: Job, steps: str) -> Iterator[TracekitError]:
    """Yield the errors of a run that lacks traces of its job, or ranges of the name that was asked for."""
    if lost := [note for note in run.meta.diagnostics if note.code == LEFT_OUT]:
        what = f"{len(lost)} of {job.name}'s {len(job.sources)} traces could not be imported"
        hint = f"see `tracekit show {run.id}` for the reasons; the other traces are imported"
        yield UnusableInputError(what, hint=hint)
    if steps and not run.rows("steps"):
        import pyarrow.compute as pc

        where = pc.field(C.KIND) == str(HostKind.ANNOTATION)
        names = run.table("host_intervals", columns=[C.NAME], where=where)[C.NAME].astype(str)
        most = ", ".join(repr(str(name)) for name in names.value_counts().index[:3])
        what = f"run {run.id} has no range named {steps!r}, so no steps are marked"
        hint = f"its most frequent ranges are {most}" if most else "no ranges were recorded"
        yield UnusableInputError(what, hint=hint)


def import_job(
    store: Store,
    job: Job,
    *,
    label: str | None = None,
    steps: str = "",
    kernels: Sequence[Kernel] = (),
    progress: Progress = ignore_progress,
    workers: Workers | None = None,
) -> Run:
    """Import a job as one run, with a diagnostic for each unusable trace.

    Args:
        store: Store of the new run.
        job: The job.
        label: Label of the new run.
        steps: Name of the ranges that are the steps; the usual markers by default.
        kernels: Kernels of the program, as `tracekit.ingest.artifacts` reads them.
        progress: Called with the progress, as in `import_each`.
        workers: Workers that decode and write the traces; this process by default.

    Raises:
        HostProcessError: Some of the traces are of other processes than the job's ranks.
        UnusableInputError: No trace of the job can be used.
    """
    added = serving.read_patterns(Path.cwd())
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
    complete = partial(assemble, meta=meta, kernels=kernels, with_sources=True)
    return _normalize(store, named, complete, run_id=meta.run_id, progress=progress, workers=workers)


def number_traces(traces: Sequence[Path]) -> list[int]:
    """Return the ranks of recorded traces: those in their names, as a rank may be missing, else their order.

    Example:
        >>> number_traces([Path("rank-0.json"), Path("rank-2.json")]), number_traces([Path("trace.json")])
        ([0, 2], [0])
    """
    ranks = [rank for path in traces if (rank := from_name(path.name)) is not None]
    return ranks if len({*ranks}) == len(traces) else [*range(len(traces))]


def import_recording(
    store: Store,
    traces: Sequence[Path],
    meta: RunMeta,
    *,
    samples: Sequence[Sample] = (),
    kernels: Sequence[Kernel] = (),
    stacks: Sequence[HostSamples] = (),
) -> Run:
    """Normalize what a collector recorded.

    Args:
        store: Store of the new run.
        traces: One trace per rank, in rank order.
        meta: Metadata of the run; zero, tables and diagnostics are filled in.
        samples: Rows of `counters` sampled by the collector.
        kernels: Kernels of the program, as `tracekit.ingest.artifacts` reads them.
        stacks: Rows of `host_samples` of each rank.

    Raises:
        UnusableInputError: A trace cannot be used.
    """
    alone = len(traces) == 1
    added = serving.read_patterns(Path.cwd())
    ranks = zip(traces, number_traces(traces), strict=True)
    sources = tuple(Source(path, None if alone else rank, serving=added) for path, rank in ranks)
    complete = partial(assemble, meta=meta, samples=samples, kernels=kernels, stacks=stacks)
    return _normalize(store, sources, complete)


def _normalize(
    store: Store,
    sources: tuple[Source, ...],
    complete: Callable[..., Run],
    *,
    run_id: str | None = None,
    progress: Progress = ignore_progress,
    workers: Workers | None = None,
) -> Run:
    """Decode traces and write them as one run, by `assemble` with all that it needs beside them."""
    if workers and not any(storage.kind(source.path) is storage.Kind.STREAM for source in sources):
        from tracekit.ingest.importer.cluster import on_workers  # loads what only clusters need

        with store.draft(run_id) as draft, on_workers(workers, draft, progress) as executor:
            return complete(draft, executor.write, executor.decode(sources))
    with store.draft() as draft, store.draft() as spool:  # the spool is a draft that is never committed
        outcomes = local.decode(store, spool.path, progress, sources)
        with store.convert_write_errors():
            return complete(draft, local.write_tables, outcomes)
