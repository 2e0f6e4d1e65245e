"""Import: raw traces become runs in the store."""

from __future__ import annotations

import errno
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from itertools import accumulate
from typing import TYPE_CHECKING

from tracekit import __version__, places
from tracekit.errors import TracekitError
from tracekit.ingest import files, notes, nsys, ranks
from tracekit.ingest.closing import Size, close
from tracekit.ingest.jobs import Job, Source, survey
from tracekit.ingest.kineto import reader as kineto
from tracekit.ingest.kineto.scan.ready import Scanners, scanners
from tracekit.ingest.origin import completed
from tracekit.ingest.pool import Pool, cores, open_pool
from tracekit.ingest.process import Place, write
from tracekit.ingest.samples import Sample, write_samples
from tracekit.ingest.sources import identities
from tracekit.meta import Collector, RunMeta
from tracekit.store import new_run_id, timestamp

if TYPE_CHECKING:
    from pathlib import Path

    from tracekit.ingest.trace import Trace
    from tracekit.run import Run
    from tracekit.store import Draft, Store

_WRITING = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EROFS)
"""What the file system says only to one who writes."""

THREAD_BYTES = 1 << 20
"""From this many bytes of text on, more than one thread decodes."""
POOL_BYTES = 24 << 20
"""From this many bytes of text on, starting worker processes costs less than it saves."""
UNKNOWN_BYTES = POOL_BYTES
"""What a stream counts as."""

Decoders = tuple[Pool, Scanners]
"""Where chunks are decoded, and what decodes them once it is ready."""
Progress = Callable[[str, int, int], None]
"""Told the trace's name, the bytes of it that are decoded, and its size (0 when unknown)."""


def _silent(_name: str, _done: int, _size: int) -> None:
    pass


def import_traces(
    store: Store, paths: Sequence[places.Place], *, label: str | None = None, progress: Progress = _silent
) -> list[Run]:
    """Import traces; ranks of one job become one run.

    Args:
        store: Where the runs go.
        paths: Files, folders, or `-` for standard input.
        label: Label of the new runs.
        progress: Told how far decoding is.

    Raises:
        UnusableInputError: A path cannot be used; the runs of the others stay.
    """
    outcomes = list(import_each(store, paths, label=label, progress=progress))
    for outcome in outcomes:
        if isinstance(outcome, TracekitError):
            raise outcome
    return [outcome for outcome in outcomes if not isinstance(outcome, TracekitError)]


def import_each(
    store: Store, paths: Sequence[places.Place], *, label: str | None = None, progress: Progress = _silent
) -> Iterator[Run | TracekitError]:
    """Import traces as `import_traces` does; what cannot be used is told, and keeps nothing else back."""
    plan = survey(paths)
    for job in plan.jobs:
        try:
            yield import_job(store, job, label=label, progress=progress)
        except TracekitError as error:
            plan.errors.append(error)
    yield from plan.errors


def import_job(store: Store, job: Job, *, label: str | None = None, progress: Progress = _silent) -> Run:
    """Import one job's traces as one run."""
    now = datetime.now(UTC)
    meta = RunMeta(
        run_id=new_run_id(job.name, now=now),
        created_at=timestamp(now),
        t0_unix_ns=0,
        label=label,
        collector=Collector("import", __version__, {"sources": identities(job.sources)}),
        diagnostics=[*job.notes],
    )
    return _normalize(store, job.sources, meta, samples=(), progress=progress)


def import_recording(
    store: Store,
    traces: Sequence[Path],
    meta: RunMeta,
    *,
    samples: Sequence[Sample] = (),
    progress: Progress = _silent,
) -> Run:
    """Normalize what a collector recorded.

    Args:
        store: Where the run goes.
        traces: One trace per rank, in rank order.
        meta: What is known about the run; its zero, tables and diagnostics are completed here.
        samples: Rows of `counters` taken beside the trace.
        progress: Told how far decoding is.

    Raises:
        UnusableInputError: A trace cannot be used.
    """
    alone = len(traces) == 1
    sources = tuple(Source(path, None if alone else rank) for rank, path in enumerate(traces))
    return _normalize(store, sources, meta, samples=samples, progress=progress)


def _normalize(
    store: Store, sources: tuple[Source, ...], meta: RunMeta, *, samples: Sequence[Sample], progress: Progress
) -> Run:
    with store.draft() as draft, store.draft() as spool:  # the spool is a draft that is never committed
        found = _decode(store, sources, spool.path, progress)
        with store.writing():
            return _write(draft, ranks.ordered(found), meta, samples)


def _write(
    draft: Draft, ranked: Sequence[tuple[Source, Trace]], meta: RunMeta, samples: Sequence[Sample]
) -> Run:
    sources, traces = [source for source, _ in ranked], [trace for _, trace in ranked]
    sizes = [_size(trace) for trace in traces]
    zero = min(size.first_ns for size in sizes)
    places = _places(draft, sources, sizes, zero)
    links = [write(trace, place) for trace, place in zip(traces, places, strict=True)]
    found = [*meta.diagnostics]
    for trace, linked in zip(traces, links, strict=True):
        found += trace.notes()
        found += notes.of_links(trace, linked)
    found += notes.of_ranks(sources, [trace.top for trace in traces], sizes)
    write_samples(draft.path, samples, zero)
    known = completed(meta, [trace.top for trace in traces], has_device=any(link.device for link in links))
    return draft.commit(replace(known, t0_unix_ns=zero, diagnostics=found))


def _decode(
    store: Store, sources: tuple[Source, ...], spool: Path, progress: Progress
) -> list[tuple[Source, Trace]]:
    """Each source with its trace; one that holds several ranks stands once for each of them."""
    sizes = [source.text_bytes for source in sources if not nsys.is_nsys(source.path)]
    size = sum(sizes) if 0 not in sizes else UNKNOWN_BYTES  # a stream may be of any size
    workers = cores() if size >= THREAD_BYTES else 1
    with open_pool(workers, processes=size >= POOL_BYTES) as pool, scanners(size) as fast:
        return [
            (source, trace)
            for number, source in enumerate(sources)
            for trace in _decode_one(store, source, spool / f"{number:05d}", (pool, fast), progress)
        ]


def _decode_one(
    store: Store, source: Source, directory: Path, decoders: Decoders, progress: Progress
) -> list[Trace]:
    name, size = files.name(source.path), source.size
    with files.reading(source.path):
        try:
            directory.mkdir()
            return _read(source.path, directory, decoders, lambda done: progress(name, done, size))
        except OSError as error:
            if error.errno not in _WRITING:
                raise
            with store.writing():
                raise


def _read(
    path: places.Place, directory: Path, decoders: Decoders, progress: Callable[[int], None]
) -> list[Trace]:
    if nsys.is_nsys(path):
        from tracekit.ingest.nsys import reader  # what a trace of torch.profiler never needs

        return reader.read(path, directory, progress)
    pool, fast = decoders
    return [kineto.read(path, directory, pool, progress, scanners=fast)]


def _size(trace: Trace) -> Size:
    size = close(trace)
    if size is None:
        raise trace.empty()
    return size


def _places(draft: Draft, sources: Sequence[Source], sizes: list[Size], zero: int) -> list[Place]:
    host = accumulate((size.host for size in sizes), initial=0)
    device = accumulate((size.device for size in sizes), initial=0)
    return [
        Place(
            directory=draft.path,
            part=number if len(sources) > 1 else None,
            rank=source.rank or 0,
            host_row=host_row,
            device_row=device_row,
            zero_ns=zero,
        )
        for number, (source, host_row, device_row) in enumerate(zip(sources, host, device, strict=False))
    ]
