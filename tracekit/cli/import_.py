"""`tracekit import`: raw traces become runs."""

from __future__ import annotations

import gc
import os
from contextlib import ExitStack, contextmanager
from typing import TYPE_CHECKING

from tracekit.cli import lazy_click as click
from tracekit.cli.options import open_store, scheduler_option, store_option

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from contextlib import AbstractContextManager

    from tracekit.errors import TracekitError
    from tracekit.fleet import Workers
    from tracekit.places import Place
    from tracekit.run import Run

_LIBRARIES = {
    "OPENBLAS_NUM_THREADS": "1",  # those for linear algebra wait busily for what imports never do
    "ARROW_DEFAULT_MEMORY_POOL": "system",  # gives back what it had for reading, and clears less for writing
}


@click.command("import")
@click.argument("paths", metavar="PATH...", nargs=-1, required=True, type=str)
@click.option("--label", help="Name the new runs; a label can be used wherever a run is asked for.")
@scheduler_option("Have the traces of a job decoded and written by the workers of a Dask cluster.")
@store_option
def command(paths: tuple[str, ...], *, label: str | None, scheduler: str | None, store: str | None) -> None:
    """Import traces of torch.profiler and exports of Nsight Systems into the store.

    A PATH is a trace (JSON, plain or gzipped), a SQLite export, a folder of Parquet tables, a report
    (.nsys-rep; nsys exports it once, beside it), a folder of these, or - for standard input, which is JSON.
    What a file is, is told by its content. It may be an address, s3://bucket/key, gs:// or file:///, with
    *, ** and [0-9] in it; traces there are read as they come, and not copied first.
    The traces of one job's ranks become one run. Prints one run id a line on stdout, and nothing else;
    a PATH, or a rank of a job, that cannot be used does not keep the others back, and the exit code is 2.

    With --scheduler each trace is a task of a Dask cluster, and goes to another worker when its own dies. The
    workers must find traces and store under the same paths as this program, and have its version
    (pip install 'tracekit-torch[scale]').

    \b
    tracekit import trace.json.gz
    tracekit import rank0.json rank1.json --label baseline
    tracekit import run.sqlite
    tracekit import "s3://bucket/job/*.json.gz" --store s3://bucket/runs
    zcat trace.json.gz | tracekit import -
    tracekit import /shared/job --store /shared/runs --scheduler tcp://head:8786
    """  # noqa: D301 (click reads the \b)
    with _nothing_collected(), _told(_LIBRARIES):
        from tracekit.cli.progress import analysis_progress, byte_progress
        from tracekit.errors import TracekitError
        from tracekit.ingest.importer import import_each
        from tracekit.spelling import printable

    named = printable(label) if label is not None else None
    errors: dict[str, TracekitError] = {}
    with ExitStack() as stack:
        fleet = stack.enter_context(_cluster(scheduler)) if scheduler is not None else None
        progress = stack.enter_context(analysis_progress() if fleet else byte_progress("reading"))
        found = _expanded(paths, errors)
        for outcome in import_each(open_store(store), found, label=named, progress=progress, workers=fleet):
            if isinstance(outcome, TracekitError):
                errors[outcome.message] = outcome
                continue
            click.echo(outcome.id)
            _warn(outcome)
    gc.freeze()  # Python looks for garbage once more when it ends
    _fail(list(errors.values()))


@contextmanager
def _nothing_collected() -> Iterator[None]:
    """Load modules, which stay: looking for garbage among what they are made of, now or later, takes time."""
    gc.disable()
    try:
        yield
    finally:
        gc.freeze()
        gc.enable()


@contextmanager
def _told(settings: Mapping[str, str]) -> Iterator[None]:
    """Load libraries that look into the environment, with settings that are not there yet."""
    added = {name: value for name, value in settings.items() if name not in os.environ}
    os.environ.update(added)
    try:
        yield
    finally:
        for name in added:
            del os.environ[name]


def _cluster(scheduler: str) -> AbstractContextManager[Workers]:
    from tracekit.fleet import workers  # what imports of this process alone do not need

    return workers(scheduler)


def _expanded(paths: tuple[str, ...], errors: dict[str, TracekitError]) -> list[Place]:
    """The places that the paths name; what names none is added to the errors."""
    from tracekit import places
    from tracekit.errors import TracekitError

    found: list[Place] = []
    for path in paths:
        try:
            found += places.expand(path)
        except TracekitError as error:
            errors[error.message] = error
    return found


def _fail(errors: list[TracekitError]) -> None:
    """One line for each error; the last is raised, which prints its line and sets the exit code."""
    from tracekit.cli.main import one_line

    for error in errors[:-1]:
        click.echo(one_line(error), err=True)
    if errors:
        raise errors[-1]


def _warn(run: Run) -> None:
    from tracekit.alike import together

    for noticed in together(run.meta.diagnostics):
        if noticed.level != "info":
            click.echo(f"tracekit: {run.id}: {noticed.message}", err=True)
