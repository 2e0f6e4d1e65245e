"""References that may also name a raw trace."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from tracekit import storage
from tracekit.errors import UnusableInputError
from tracekit.runs import scrubbing
from tracekit.runs.meta import FILE_NAME
from tracekit.storage import STDIN, Kind, kind

if TYPE_CHECKING:
    from tracekit.ingest.importer import Job
    from tracekit.runs.run import Run
    from tracekit.runs.store import Store
    from tracekit.storage import Place


def resolve(store: Store, reference: str) -> Run:
    """The run a person means; a path to a raw trace is imported, once.

    A path with a separator wins; one without gives way to what the store holds.

    Raises:
        RunNotFoundError: Nothing, or more than one run, matches.
        UnusableInputError: The path is not a trace.
    """
    if not _is_raw(reference):
        return store.resolve(reference)
    held = None if os.sep in reference else store.find(reference)
    return held or _imported(store, storage.parse(reference))


def _is_raw(reference: str) -> bool:
    """Whether a path is there that is not a run."""
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
    """The newest run imported from these very files."""
    from tracekit.ingest.sources import identities, is_told_apart

    given = identities(job.sources)
    if not is_told_apart(given):
        return None
    wanted = scrubbing.options(given)  # as they were stored
    same = (run for run in reversed(store.readable()) if run.meta.collector.options.get("sources") == wanted)
    return next(same, None)
