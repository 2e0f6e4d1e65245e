"""Resolve references to runs, which may be paths of raw traces."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from tracekit import storage
from tracekit.errors import UnusableInputError
from tracekit.runs import scrubbing
from tracekit.runs.meta import FILE_NAME
from tracekit.storage import STDIN, Kind, kind

if TYPE_CHECKING:
    from tracekit.ingest.sources import Job
    from tracekit.runs.run import Run
    from tracekit.runs.store import Store
    from tracekit.storage import Place


def resolve(store: Store, reference: str) -> Run:
    """Return the run that a reference names; a raw trace is imported, unless it was before.

    A path with a separator takes precedence over the runs of the store, one without does not.

    Raises:
        RunNotFoundError: Nothing, or more than one run, matches.
        UnusableInputError: The path is not a trace.
    """
    if not _is_raw(reference):
        return store.resolve(reference)
    held = None if os.sep in reference else store.find(reference)
    return held or _imported(store, storage.parse(reference))


def _is_raw(reference: str) -> bool:
    """Return whether a reference is a path that exists and is not a run."""
    path = storage.parse(reference)
    if not reference or path == STDIN:
        return False
    return kind(path) is not Kind.NOTHING and kind(path / FILE_NAME) is not Kind.FILE


def _imported(store: Store, path: Place) -> Run:
    from tracekit.ingest.importer import import_job, plan

    jobs = plan([path])
    if len(jobs) > 1:
        raise UnusableInputError(
            f"{path} has traces of {len(jobs)} jobs", hint=f"import them with `tracekit import {path}`"
        )
    return _earlier(store, jobs[0]) or import_job(store, jobs[0])


def _earlier(store: Store, job: Job) -> Run | None:
    """Return the newest run that was imported from the same files."""
    from tracekit.ingest.sources import identities, is_told_apart

    given = identities(job.sources)
    if not is_told_apart(given):
        return None
    wanted = scrubbing.options(given)  # in the form of `run.json`
    same = (run for run in reversed(store.readable()) if run.meta.collector.options.get("sources") == wanted)
    return next(same, None)
