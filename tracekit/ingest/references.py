"""Resolve references to runs, which may be paths of raw traces."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import TYPE_CHECKING

from tracekit import storage
from tracekit.errors import UnusableInputError
from tracekit.runs import redaction
from tracekit.runs.meta import FILE_NAME
from tracekit.storage import STDIN, Kind, Place, kind

if TYPE_CHECKING:
    from tracekit.ingest.jobs.sources import Job
    from tracekit.runs.run import Run
    from tracekit.runs.store import Store


def resolve(store: Store, reference: str, *, captures: Sequence[Place] = ()) -> Run:
    """Return the run that a reference names; a raw trace is imported, unless it was before.

    A path with a separator takes precedence over the runs of the store, one without does not.

    Args:
        store: Store of the runs.
        reference: The reference.
        captures: Traces of the captures of a raw trace's graphs; those beside it by default.

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
    return held or _imported(store, storage.parse(reference), captures)


def _is_raw(reference: str) -> bool:
    """Return whether a reference is a path that exists and is not a run."""
    path = storage.parse(reference)
    if not reference or path == STDIN:
        return False
    return kind(path) is not Kind.NOTHING and kind(path / FILE_NAME) is not Kind.FILE


def _imported(store: Store, path: Place, captures: Sequence[Place]) -> Run:
    from tracekit.ingest.importer import import_job, with_captures
    from tracekit.ingest.jobs.survey import plan

    jobs = plan([path])
    if len(jobs) > 1:
        message = f"{path} has traces of {len(jobs)} jobs"
        raise UnusableInputError(message, hint=f"import them with `tracekit import {path}`")
    job = with_captures(jobs[0], captures)
    return _earlier(store, job) or import_job(store, job)


def _earlier(store: Store, job: Job) -> Run | None:
    """Return the newest run that was imported from the same files."""
    from tracekit.ingest.jobs.sources import capture_identities, have_digests, identities

    traces, captures = identities(job.sources), capture_identities(job.sources)
    if not have_digests(traces + captures):
        return None
    wanted = {"sources": redaction.redact_options(traces), "captures": redaction.redact_options(captures)}
    for run in reversed(store.readable()):
        options = run.meta.collector.options  # redacted, as what is wanted
        if wanted == {name: options.get(name, []) for name in wanted}:
            return run
    return None
