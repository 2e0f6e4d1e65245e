"""`tracekit import`: import raw traces as runs."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from tracekit.cli import completion
from tracekit.cli import lazy_click as click
from tracekit.cli.options import capture_option, capture_traces, open_store, scheduler_option, store_option
from tracekit.cli.progress import note, print_error
from tracekit.errors import TracekitError, printable

if TYPE_CHECKING:
    from tracekit.runs.run import Run
    from tracekit.storage import Place

_LIBRARIES = {
    "OPENBLAS_NUM_THREADS": "1",  # imports use no BLAS, whose idle threads would spin
    "ARROW_DEFAULT_MEMORY_POOL": "system",  # returns memory after reading, and zeroes less
}

_MIN_LARGE_ROWS = 150_000
"""Rows of a run, about those of 64 MB of JSON, from which the decoder would have been compiled."""
_FAST = "the extra `fast`: pip install 'tracekit-torch[fast]'"


@click.command("import")
@click.argument("paths", metavar="PATH...", nargs=-1, required=True, type=str, shell_complete=completion.file)
@click.option(
    "--label",
    shell_complete=completion.label,
    help="Label of the new runs; commands accept it as a run reference.",
)
@click.option(
    "--step-name",
    "steps",
    aliases=("--steps",),
    metavar="NAME",
    default="",
    help="Name of the ranges (record_function, NVTX) that are the steps; default: the steps of an inference "
    "server, else the profiler's steps, else ranges named like 'step 3'.",
)
@capture_option
@click.option(
    "--compile-artifacts",
    metavar="DIR",
    shell_complete=completion.folder,
    help="Folder of TORCH_TRACE or TORCH_COMPILE_DEBUG, to join compiled kernels to source lines and ops.",
)
@scheduler_option("Decode and write traces on the workers of this Dask cluster,")
@store_option
def command(
    paths: tuple[str, ...],
    *,
    label: str | None,
    steps: str,
    captures: tuple[str, ...],
    compile_artifacts: str | None,
    scheduler: str | None,
    store: str | None,
) -> None:
    """Import traces of torch.profiler and exports of Nsight Systems into the store.

    A PATH is a trace (JSON, plain or gzipped), a SQLite export, a folder of Parquet tables, a report
    (.nsys-rep; nsys exports it once, next to it), a folder of these, or - for JSON on standard input. The
    format is detected from the content. A PATH can be a URL: s3://bucket/key, gs:// or file:///; remote
    traces are streamed, not downloaded first. *, ** and [0-9] are wildcards, of quoted paths too.

    The traces of one job's ranks become one run. Prints only run ids on stdout, one per line. If a PATH or a
    rank of a job cannot be imported, the others still are, and the exit code is 2.

    With --step-name, all analyses treat the ranges of that name as steps: one range, such as the measured
    part of a program, or a range per iteration.

    With --capture-trace, the kernels of graph launches are attributed to the ops and modules that launched
    them when the graph was captured, if FILE has the same kernels in the same order; else the first
    difference is named. Captures listed in an execution_details.json beside the trace, or in capture_traces/,
    are used without the option.

    With --compile-artifacts, the run also keeps what torch.compile wrote about its kernels: `analyze compile`
    then names the lines of the program that became each kernel, and `diff` matches kernels by source.

    With --scheduler, each trace is a task of a Dask cluster, retried on another worker if its worker dies.
    Workers need the same version of tracekit (pip install 'tracekit-torch[scale]') and access to the traces
    and the store under the same paths.

    \b
    tracekit import trace.json.gz
    tracekit import rank0.json rank1.json --label baseline
    tracekit import trace.json --step-name forward
    tracekit import decode.json.gz --capture-trace capture_bs32.json.gz
    tracekit import trace.json --compile-artifacts torch_trace
    tracekit import run.sqlite
    tracekit import "s3://bucket/job/*.json.gz" --store s3://bucket/runs
    zcat trace.json.gz | tracekit import -
    tracekit import /shared/job --store /shared/runs --scheduler tcp://head:8786
    """  # noqa: D301 (click reads the \b)
    with _set_environment(_LIBRARIES):
        from tracekit.cli.progress import analysis_progress, byte_progress
        from tracekit.ingest import artifacts
        from tracekit.ingest.importer import import_each

    named = printable(label) if label is not None else None
    kernels = artifacts.read(Path(compile_artifacts)) if compile_artifacts is not None else ()
    errors: dict[str, TracekitError] = {}
    with ExitStack() as stack:
        cluster = None
        if scheduler is not None:
            from tracekit.executors import workers  # slow to import, and needed only for a cluster

            cluster = stack.enter_context(workers(scheduler))
        progress = stack.enter_context(analysis_progress() if cluster else byte_progress("reading"))
        places = _expand(paths, errors)
        outcomes = import_each(
            open_store(store),
            places,
            label=named,
            steps=steps,
            captures=capture_traces(captures),
            kernels=kernels,
            progress=progress,
            workers=cluster,
        )
        for outcome in outcomes:
            if isinstance(outcome, TracekitError):
                errors[outcome.message] = outcome
                continue
            click.echo(outcome.id)
            _print_warnings(outcome)
    if errors:
        *printed, last = errors.values()  # which is raised and sets the exit code
        for error in printed:
            print_error(error)
        raise last


@contextmanager
def _set_environment(settings: Mapping[str, str]) -> Iterator[None]:
    """Set environment variables that are unset, while libraries that read them load."""
    added = {name: value for name, value in settings.items() if name not in os.environ}
    os.environ.update(added)
    try:
        yield
    finally:
        for name in added:
            del os.environ[name]


def _expand(paths: tuple[str, ...], errors: dict[str, TracekitError]) -> list[Place]:
    """Expand the paths to places; paths that cannot be expanded are added to the errors."""
    from tracekit import storage

    places: list[Place] = []
    for path in paths:
        try:
            places += storage.expand(path)
        except TracekitError as error:
            errors[error.message] = error
    return places


def _print_warnings(run: Run) -> None:
    """Print diagnostics, and the extra with which a large trace is decoded faster, if it is missing."""
    from importlib.util import find_spec

    from tracekit.runs.meta import combine_diagnostics

    for diagnostic in combine_diagnostics(run.meta.diagnostics):
        if diagnostic.level != "info":
            click.echo(f"tracekit: {run.id}: {diagnostic.message}", err=True)
    rows = sum(table.rows for table in run.meta.tables.values())
    names = [str(source.get("name")) for source in run.meta.collector.options.get("sources", [])]
    if rows >= _MIN_LARGE_ROWS and any(".json" in name for name in names) and find_spec("numba") is None:
        note(f"tracekit: imports such as {run.id} take half the CPU time with {_FAST}")
