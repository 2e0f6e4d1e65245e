"""The profiler's own file, kept beside the tables of a run."""

from __future__ import annotations

import gzip
import re
import shutil
from collections.abc import Callable
from dataclasses import dataclass, field, fields, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from tracekit import registry, storage
from tracekit.errors import UnusableInputError
from tracekit.ingest.importer import import_recording
from tracekit.ingest.write import import_unprofiled
from tracekit.runs import compilation, revisions, scrubbing
from tracekit.runs.meta import Collector as CollectorMeta
from tracekit.runs.meta import Diagnostic, Level, RunMeta, fingerprint
from tracekit.runs.store import new_run_id, timestamp
from tracekit.workloads.base import COMPILE, INDUCTOR, LIBTORCH, Options
from tracekit.workloads.options import (
    ProgramOptions,
    RecordingOptions,
    Scope,
    WorkloadOptions,
    check,
    flag,
    values,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tracekit.ingest.write import Sample
    from tracekit.runs.meta import Timings
    from tracekit.runs.run import Run
    from tracekit.runs.store import Draft, Store
    from tracekit.workloads.base import Workload


KEPT_TRACE = "trace.json.gz"
KEPT_REPORT = "trace"
REPORTS = (".nsys-rep", ".qdrep")
"""Suffixes of what a profiler wrote itself, beside the trace that was made of it."""
_HOST_NAME = re.compile(rb'^\s*"host_name":')
_BLOCK = 1 << 20
_TRACE_NAME = re.compile(rb'"traceName":\s*"[^"]*"')


def keep(trace: Path, draft: Draft) -> Path:
    """Keep what the profiler wrote: its report as it is, or else its trace, compressed.

    A trace is kept without the host's name, which has a line of its own, the file's path, and what
    `tracekit.runs.scrubbing` takes out of every text.

    Args:
        trace: What was recorded.
        draft: Where it is kept, until there is a run to move it into.

    Raises:
        UnusableInputError: The store cannot be written.
    """
    folder = draft.path / "kept"  # apart from what the profiler wrote there
    with draft.store.writing():
        folder.mkdir()
        for suffix in REPORTS:
            report = trace.with_suffix(suffix)
            if report.is_file():
                return Path(shutil.copyfile(report, folder / f"{KEPT_REPORT}{suffix}"))
        kept = folder / KEPT_TRACE
        with trace.open("rb") as source, gzip.open(kept, "wb", compresslevel=4) as packed:
            while lines := source.readlines(_BLOCK):
                packed.write(_scrubbed(lines))
    return kept


def _scrubbed(lines: Sequence[bytes]) -> bytes:
    named = [
        _TRACE_NAME.sub(b'"traceName": "trace.json"', line) for line in lines if not _HOST_NAME.match(line)
    ]
    told = scrubbing.texts([line.decode("utf-8", "surrogateescape") for line in named])
    return "".join(told).encode("utf-8", "surrogateescape")


@dataclass(frozen=True, kw_only=True)
class Request(RecordingOptions, WorkloadOptions):
    """A built-in workload and its options."""

    def options(self, *, device: str) -> Options:
        """What to build on the device that was found; needs sizes, which `decide` fills in."""
        if self.batch_size is None or self.resolution is None:
            raise UnusableInputError("the batch size and the resolution are open", hint="call `decide` first")
        given = {one.name: getattr(self, one.name) for one in fields(Options)}
        given["pin_memory"] = self.pin_memory and device != "cpu"  # host memory is not copied to itself
        return Options(**{**given, "device": device, "backend": self.backend or INDUCTOR})


@dataclass(frozen=True, kw_only=True)
class Program(RecordingOptions, ProgramOptions):
    """The user's own program, and which of its steps to record.

    Attributes:
        command: The program and its arguments, as typed after `--`.

    Example:
        >>> Program(command=("python", "train.py"), start_step=10).steps
        5
    """

    command: tuple[str, ...]


Progress = Callable[[str, int, int], None]
"""Told the part that runs, how many of its steps are done, and how many there are."""


@dataclass(frozen=True, kw_only=True)
class Recording:
    """What a collector recorded.

    Attributes:
        traces: One trace per rank, inside the directory the collector was given.
        device: The device it ran on.
        threads: Threads an operation could use.
        version: Version of the profiler.
        options: Options the profiler ran with.
        compilation: What was compiled, as `tracekit.runs.compilation` reads it; None where nothing is.
        exit_code: The program's own; of one that a signal ended, 128 and the signal's number.
    """

    traces: tuple[Path, ...]
    device: str
    threads: int
    version: str
    timings: Timings | None
    samples: tuple[Sample, ...] = ()
    environment: dict[str, Any] = field(default_factory=dict)
    options: dict[str, Any] = field(default_factory=dict)
    diagnostics: tuple[Diagnostic, ...] = ()
    exit_code: int = 0
    compilation: dict[str, Any] | None = None


class Collector(Protocol):
    """A plug-in that can record a built-in workload, or the user's own program."""

    name: str

    def record(self, request: Request, directory: Path, *, progress: Progress) -> Recording:
        """Run the workload in a fresh process and record it into `directory`.

        Raises:
            CollectionError: The program or the profiler failed.
            UnusableInputError: The request cannot be met here.
        """
        ...

    def record_program(self, program: Program, directory: Path, *, progress: Progress) -> Recording:
        """Run the user's program with this process's standard streams and record it into `directory`.

        Whatever the program's exit code, what was recorded is handed over.

        Raises:
            ProgramFailedError: The program failed, and nothing was recorded.
            CollectionError: Nothing was recorded, or the profiler failed.
            UnusableInputError: The program cannot be started, or not recorded here.
        """
        ...


def silent(_part: str, _done: int, _total: int) -> None:
    """Progress that nobody watches."""


DEFAULT_COLLECTOR = "torch"


def decide(request: Request) -> Request:
    """Fill in the workload's defaults and refuse what cannot be, before any process starts.

    Raises:
        PluginError: The workload is unknown.
        UnusableInputError: An option is impossible.
    """
    workload: Workload = registry.load(registry.WORKLOADS, request.workload)
    defaults = workload.defaults_for(size=request.size, dataset_shape=request.dataset_shape)
    decided = replace(
        request,
        batch_size=_or(request.batch_size, defaults["batch_size"]),
        resolution=_or(request.resolution, defaults["resolution"]),
        backend=_backend(request),
    )
    check(decided)
    if decided.no_profile:
        _refuse_profiling(decided)
    workload.validate(decided.options(device=decided.device))
    return decided


def collect(store: Store, request: Request, *, progress: Progress = silent) -> Run:
    """Record one run of a built-in workload into the store.

    Args:
        store: Where the run goes; nothing is left there unless the run is whole.
        request: What to run; one run of it, whatever its `repeat`.
        progress: Told how far it is.

    Raises:
        CollectionError: The program or the profiler failed.
        UnusableInputError: The request cannot be met.
    """
    decided = decide(request)
    name = collector_name(decided)
    plugin: Collector = registry.load(registry.COLLECTORS, name)()
    git, now = revisions.state(), datetime.now(UTC)
    # a draft lies beside the runs, so a large trace fits where runs fit, and it vanishes whatever happens
    with store.draft() as draft:
        recording = plugin.record(decided, draft.path, progress=progress)
        progress("import", 0, 1)
        kept = keep(recording.traces[0], draft) if decided.keep_trace else None
        meta = replace(_meta(decided, recording, collector=name, now=now), git=git, label=decided.label)
        if decided.no_profile:
            run = import_unprofiled(store, meta, recording.samples)
        else:
            run = import_recording(store, recording.traces, meta, samples=recording.samples)
        if kept:
            storage.move(kept, run.path / kept.name)
        progress("import", 1, 1)
    return run


def collector_name(options: RecordingOptions) -> str:
    """Return the registered name of the collector; `auto` takes torch's profiler."""
    return DEFAULT_COLLECTOR if options.collector == "auto" else options.collector


def _refuse_profiling(request: Request) -> None:
    """Refuse options that need a profile."""
    collector = collector_name(request)
    refused = {
        "--stacks": request.stacks,
        "--keep-trace": request.keep_trace,
        f"--level {LIBTORCH}": request.level == LIBTORCH,
        f"--collector {collector}": collector != DEFAULT_COLLECTOR,
    }
    for words, given in refused.items():
        if given:
            message = f"{words} cannot be combined with --no-profile"
            raise UnusableInputError(message, hint="remove one of them")


def _meta(request: Request, recording: Recording, *, collector: str, now: datetime) -> RunMeta:
    outcome = _outcome(request, recording)
    work = values(outcome, Scope.WORK)
    workload = {"name": work.pop("workload"), **work}
    if recording.compilation is not None:
        workload[compilation.KEY] = recording.compilation
    return RunMeta(
        run_id=new_run_id(f"{request.workload}-{request.mode}", now=now),
        created_at=timestamp(now),
        t0_unix_ns=0,
        collector=CollectorMeta(collector, recording.version, recording.options),
        workload=workload,
        command=command(outcome),
        environment=recording.environment,
        fingerprint=fingerprint(workload, recording.environment, recording.options, collector=collector),
        timings=recording.timings,
        diagnostics=[
            *recording.diagnostics,
            *_ignored(request, recording.device),
            *compilation.diagnostics(compilation.parse(recording.compilation)),
        ],
    )


def _outcome(request: Request, recording: Recording) -> Request:
    """The request with what was found in place of what was asked for."""
    pinned = request.pin_memory and recording.device != "cpu"
    return replace(request, device=recording.device, threads=recording.threads, pin_memory=pinned)


def _ignored(request: Request, device: str) -> list[Diagnostic]:
    if not request.pin_memory or device != "cpu":
        return []
    message = "--pin-memory was left out: without a GPU there is nothing to copy to"
    return [Diagnostic(Level.INFO, "pin_memory_ignored", message)]


def command(request: Request) -> list[str]:
    """The command that collects the same again: every option decided, no path in it.

    Example:
        >>> command(Request(workload="resnet50", batch_size=8))[:4]
        ['tracekit', 'collect', '--workload', 'resnet50']
    """
    words = ["tracekit", "collect"]
    for name, value in values(request).items():
        if value is True:
            words.append(flag(name))
        elif value is not None and value is not False:
            words += [flag(name), str(value)]
    return words


def _backend(request: Request) -> str | None:
    if request.level == COMPILE:
        return request.backend or INDUCTOR
    if request.backend is not None:
        raise UnusableInputError(
            f"--backend does not apply to level {request.level}",
            hint="use --level compile, or remove --backend",
        )
    return None


def _or(value: int | None, default: int) -> int:
    return default if value is None else value
