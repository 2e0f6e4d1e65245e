"""Record one run of a built-in workload, or of the user's own program without changes to it, into a store."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime
from itertools import pairwise
from pathlib import Path, PurePath

from tracekit import registry
from tracekit.errors import UnusableInputError
from tracekit.recording.agent.settings import SCRIPT
from tracekit.recording.collector import (
    DEFAULT_COLLECTOR,
    Program,
    Progress,
    Recording,
    Request,
    collector_name,
    load_collector,
    silent,
)
from tracekit.recording.logs import keep_failed_log
from tracekit.recording.store_run import program_meta, run_meta, store_run
from tracekit.runs import compilation, revisions
from tracekit.runs.environment import GPU_PROBLEM, PROGRAM
from tracekit.runs.meta import PROCESS, Diagnostic, Level, RunMeta
from tracekit.runs.redaction import VERBATIM
from tracekit.runs.run import Run
from tracekit.runs.store import Store
from tracekit.workloads.base import COMPILE, GPU, INDUCTOR, LIBTORCH, Workload
from tracekit.workloads.options import Scope, check, flag, values

_LAUNCHERS = ("python", "torchrun", "accelerate", "deepspeed", "bash", "sh")
"""Programs whose runs are named after the script or module that they run."""


def collect(store: Store, request: Request, *, progress: Progress = silent) -> Run:
    """Record one run of a built-in workload.

    Args:
        store: Store of the run; only the log of the workload's process is left there if the recording fails.
        request: Workload and options; its `repeat` is ignored.
        progress: Called with the progress.

    Raises:
        CollectionError: The program or the profiler failed.
        UnusableInputError: The request cannot be met.
    """
    decided = decide(request)
    name, collector = load_collector(decided)
    (run,) = _record(
        store,
        decided,
        request.workload,
        record=lambda folder: collector.record(decided, folder, progress=progress),
        describe=lambda recording, now: _describe_workload(decided, recording, collector=name, now=now),
        progress=progress,
        profiled=not decided.no_profile,
    )
    return run


def collect_program(store: Store, program: Program, *, progress: Progress = silent) -> tuple[Run, ...]:
    """Record the user's program once: a run, or one for each recorded process if they are no ranks.

    The program uses the standard streams of this process. Its exit code is `workload["exit_code"]` of the
    run's metadata.

    Args:
        store: Store of the run; only the log of the profiler, if any, is left there if the recording fails.
        program: Program and options; its `repeat` is ignored.
        progress: Called with the progress once the program has ended.

    Raises:
        ProgramFailedError: The program failed, and nothing was recorded.
        CollectionError: The program succeeded, and nothing was recorded.
        UnusableInputError: The program cannot be started.
    """
    if not program.command:
        raise UnusableInputError("no program to record", hint="give a command after --")
    check(program)
    name, collector = load_collector(program)
    title = program_title(program.command)

    def describe(recording: Recording, now: datetime) -> RunMeta:
        window = {**values(program, Scope.WORK), "exit_code": recording.exit_code}
        numbers = {PROCESS: recording.process, "window": recording.window}
        window |= {name: number for name, number in numbers.items() if number is not None}
        command = () if program.no_command else program.command
        script = recording.environment.get(PROGRAM, {}).get(SCRIPT)
        meta = program_meta(script or title, recording, window, collector=name, command=command, now=now)
        kept = {VERBATIM: True} if program.keep_command else {}
        return replace(meta, collector=replace(meta.collector, options={**meta.collector.options, **kept}))

    return _record(
        store,
        program,
        title,
        record=lambda folder: collector.record_program(program, folder, progress=progress),
        describe=describe,
        progress=progress,
    )


def _record(
    store: Store,
    options: Request | Program,
    title: str,
    *,
    record: Callable[[Path], Recording],
    describe: Callable[[Recording, datetime], RunMeta],
    progress: Progress,
    profiled: bool = True,
) -> tuple[Run, ...]:
    git, now = revisions.state(), datetime.now(UTC)
    # a draft is on the disk of the store, which has space for large traces, and is deleted in any case
    with store.draft() as draft, keep_failed_log(draft, title):
        recording = record(draft.path)
        recordings, runs = (recording, *recording.others), []
        progress("import", 0, len(recordings))
        for number, recorded in enumerate(recordings, 1):
            meta = describe(recorded, now)
            meta = replace(meta, git=git, label=options.label)
            has_trace = profiled and bool(recorded.traces)
            runs.append(store_run(draft, recorded, meta, keep_trace=options.keep_trace, profiled=has_trace))
            progress("import", number, len(recordings))
    return tuple(runs)


def decide(request: Request) -> Request:
    """Fill in the workload's defaults and refuse impossible options.

    Raises:
        PluginError: The workload is unknown.
        UnusableInputError: An option is impossible.
    """
    workload: Workload = registry.load(registry.WORKLOADS, request.workload)
    defaults = workload.defaults_for(size=request.size, dataset_shape=request.dataset_shape)
    batch_size, resolution = request.batch_size, request.resolution
    decided = replace(
        request,
        batch_size=defaults["batch_size"] if batch_size is None else batch_size,
        resolution=defaults["resolution"] if resolution is None else resolution,
        backend=_choose_backend(request),
        fit_batch=batch_size is None and request.size == GPU,
    )
    check(decided)
    if decided.compile_artifacts and decided.level != COMPILE:
        message = f"--compile-artifacts does not apply to level {decided.level}"
        raise UnusableInputError(message, hint=f"use --level {COMPILE}, or remove --compile-artifacts")
    if decided.change and decided.level == LIBTORCH:
        message = f"--change does not apply to level {LIBTORCH}, which runs no Python"
        raise UnusableInputError(message, hint="use another --level, or remove --change")
    if decided.no_profile:
        _refuse_profiler_options(decided)
    workload.validate(decided.options(device=decided.device))
    return decided


def _choose_backend(request: Request) -> str | None:
    if request.level == COMPILE:
        return request.backend or INDUCTOR
    if request.backend is not None:
        message = f"--backend does not apply to level {request.level}"
        raise UnusableInputError(message, hint="use --level compile, or remove --backend")
    return None


def _refuse_profiler_options(request: Request) -> None:
    collector = collector_name(request)
    refused = {
        "--stacks": request.stacks,
        "--keep-trace": request.keep_trace,
        "--compile-artifacts": request.compile_artifacts,
        f"--level {LIBTORCH}": request.level == LIBTORCH,
        f"--collector {collector}": collector != DEFAULT_COLLECTOR,
    }
    for option, is_given in refused.items():
        if is_given:
            message = f"{option} cannot be combined with --no-profile"
            raise UnusableInputError(message, hint="remove one of them")


def _describe_workload(request: Request, recording: Recording, *, collector: str, now: datetime) -> RunMeta:
    pinned = request.pin_memory and recording.device != "cpu"
    used = replace(
        request,
        device=recording.device,
        threads=recording.threads,
        pin_memory=pinned,
        batch_size=recording.batch_size or request.batch_size,
    )
    work = values(used, Scope.WORK)
    workload = {"name": work.pop("workload"), **work}
    if recording.compilation is not None:
        workload[compilation.KEY] = recording.compilation
    ignored = []
    problem = recording.environment.get(GPU_PROBLEM)
    if problem and request.device == "auto":
        message = (
            f"--device auto ran on the CPU of a machine with a GPU, because torch cannot use it: {problem}"
        )
        ignored.append(Diagnostic(Level.WARN, "gpu_not_used", message))
    if request.pin_memory and not pinned:
        message = "--pin-memory was left out: without a GPU there is nothing to copy to"
        ignored.append(Diagnostic(Level.INFO, "pin_memory_ignored", message))
    return run_meta(
        f"{request.workload}-{request.mode}",
        recording,
        workload,
        collector=collector,
        command=command(used),
        now=now,
        diagnostics=[*ignored, *compilation.diagnostics(compilation.parse(recording.compilation))],
    )


def command(request: Request) -> list[str]:
    """Return the command that records the same again, without paths.

    Example:
        >>> command(Request(workload="resnet50", batch_size=8))[:4]
        ['tracekit', 'collect', '--workload', 'resnet50']
    """
    words = ["tracekit", "collect"]
    for name, value in values(request).items():
        if value is True:
            words.append(flag(name))
        elif isinstance(value, tuple):
            words += [word for item in value for word in (flag(name), item)]
        elif value is not None and value is not False:
            words += [flag(name), str(value)]
    return words


def program_title(command: tuple[str, ...]) -> str:
    """Return the name of a program: its script or module, without folder and launcher."""
    program = PurePath(command[0]).name
    if not program.startswith(_LAUNCHERS):
        return PurePath(program).stem or program
    for previous, word in pairwise(command):
        if previous == "-c":
            break
        if previous == "-m" and not word.startswith("torch.distributed."):
            return word
        if word.endswith((".py", ".sh")):
            return PurePath(word).stem
    return program
