"""Resolve references to runs, which may be paths of raw traces."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING

from tracekit import storage
from tracekit.errors import UnusableInputError
from tracekit.runs.meta import FILE_NAME
from tracekit.storage import STDIN, Kind, Place, kind

if TYPE_CHECKING:
    from tracekit.ingest.jobs.sources import Job
    from tracekit.runs.run import Run
    from tracekit.runs.store import Store


MAX_BYTES_BESIDE = 1 << 30
"""Bytes of text of raw traces up to which a fork imports them: one that fails is repeated in seconds."""


def resolve(
    store: Store,
    reference: str,
    *,
    captures: Sequence[Place] = (),
    meanwhile: Callable[[], object] | None = None,
) -> Run:
    """Return the run that a reference names; a raw trace is imported, unless it was before.

    A path with a separator takes precedence over the runs of the store, one without does not.

    Args:
        store: Store of the runs.
        reference: The reference.
        captures: Traces of the captures of a raw trace's graphs; those beside it by default.
        meanwhile: What this process may do while a fork imports a raw trace, such as to load libraries.

    Raises:
        RunNotFoundError: Nothing, or more than one run, matches.
        UnusableInputError: The path is not a trace.
    """
    if captures and not _is_raw(reference):
        message = f"{reference} is not a raw trace, so no captures can be joined to it"
        hint = "import its trace again with `tracekit import --capture-trace`"
        raise UnusableInputError(message, hint=hint)
    if not _is_raw(reference):
        return store.resolve(reference)
    held = None if os.sep in reference else store.find(reference)
    return held or _imported(store, storage.parse(reference), captures, meanwhile)


def _is_raw(reference: str) -> bool:
    """Return whether a reference is a path that exists and is not a run."""
    path = storage.parse(reference)
    if not reference or path == STDIN:
        return False
    return kind(path) is not Kind.NOTHING and kind(path / FILE_NAME) is not Kind.FILE


def _imported(
    store: Store, path: Place, captures: Sequence[Place], meanwhile: Callable[[], object] | None
) -> Run:
    from tracekit.ingest.jobs.sources import with_captures
    from tracekit.ingest.jobs.survey import plan

    jobs = plan([path])
    if len(jobs) > 1:
        message = f"{path} has traces of {len(jobs)} jobs"
        raise UnusableInputError(message, hint=f"import them with `tracekit import {path}`")
    job = with_captures(jobs[0], captures)
    if earlier := _earlier(store, job):
        return earlier
    import_job = partial(_import, store, job)
    places = [place for source in job.sources for place in (source.path, *source.captures)]
    is_local = all(isinstance(place, Path) for place in (store.path, *places))  # forks share no connections
    if meanwhile and is_local and 0 < sum(source.text_bytes for source in job.sources) <= MAX_BYTES_BESIDE:
        from tracekit.executors.local import call_in_fork

        for library in ("pandas", "pyarrow.dataset"):
            import_module(library)  # once for both processes
        # If it fails, the import is repeated here, for an error as in a single process.
        return call_in_fork(import_job, meanwhile) or import_job()
    return import_job()


def _import(store: Store, job: Job) -> Run:
    from tracekit.ingest.importer import import_job

    return import_job(store, job)


def _earlier(store: Store, job: Job) -> Run | None:
    """Return the newest run that was imported from the same files."""
    from tracekit.ingest.jobs.sources import capture_identities, have_digests, identities
    from tracekit.runs import redaction

    traces, captures = identities(job.sources), capture_identities(job.sources)
    if not have_digests(traces + captures):
        return None
    wanted = {"sources": redaction.redact_options(traces), "captures": redaction.redact_options(captures)}
    for run in reversed(store.readable()):
        options = run.meta.collector.options  # redacted, as what is wanted
        if wanted == {name: options.get(name, []) for name in wanted}:
            return run
    return None
