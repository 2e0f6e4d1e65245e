"""References that may also name a raw trace."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from tracekit.errors import UnusableInputError
from tracekit.ingest.importer import import_job
from tracekit.ingest.jobs import plan
from tracekit.meta import FILE_NAME

if TYPE_CHECKING:
    from tracekit.run import Run
    from tracekit.store import Store


def resolve(store: Store, reference: str) -> Run:
    """The run a person means; a path to a raw trace is imported, once.

    Raises:
        RunNotFoundError: Nothing, or more than one run, matches.
        UnusableInputError: The path is not a trace.
    """
    path = Path(reference)
    if not path.exists() or (path / FILE_NAME).exists() or _is_run_id(store, reference):
        return store.resolve(reference)
    jobs = plan([path])
    if len(jobs) > 1:
        raise UnusableInputError(
            f"{path} holds {len(jobs)} jobs, not one", hint=f"import them with `tracekit import {path}`"
        )
    wanted = [source.identity for source in jobs[0].sources]
    for run in reversed(store.runs()):
        if run.meta.collector.options.get("sources") == wanted:
            return run
    return import_job(store, jobs[0])


def _is_run_id(store: Store, reference: str) -> bool:
    return any(run.path.name == reference for run in store.runs())
