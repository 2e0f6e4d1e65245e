"""Collect a built-in workload: what was asked, what was run, and how to run it again."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from tracekit import compilation, gitinfo, places, registry
from tracekit.collecting.keeping import keep
from tracekit.collecting.recording import silent
from tracekit.errors import UnusableInputError
from tracekit.fingerprint import fingerprint
from tracekit.ingest import import_recording, import_unprofiled
from tracekit.meta import Collector as CollectorMeta
from tracekit.meta import Diagnostic, Level, RunMeta
from tracekit.store import new_run_id, timestamp
from tracekit.workloads.base import COMPILE, INDUCTOR, LIBTORCH
from tracekit.workloads.options import Scope, check, flag, values

if TYPE_CHECKING:
    from tracekit.collecting.recording import Collector, Progress, Recording
    from tracekit.collecting.request import Request
    from tracekit.run import Run
    from tracekit.store import Store
    from tracekit.workloads.base import Workload
    from tracekit.workloads.options import RecordingOptions

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
    git, now = gitinfo.state(), datetime.now(UTC)
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
            places.move(kept, run.path / kept.name)
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
        >>> from tracekit.collecting import Request
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
