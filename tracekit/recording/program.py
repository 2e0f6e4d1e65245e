"""Collect the user's own program, unchanged."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime
from itertools import pairwise
from pathlib import PurePath
from typing import TYPE_CHECKING, Any

from tracekit import registry, storage
from tracekit.errors import UnusableInputError
from tracekit.ingest.importer import import_recording
from tracekit.recording.workload import collector_name, keep, silent
from tracekit.runs import revisions
from tracekit.runs.meta import Collector as CollectorMeta
from tracekit.runs.meta import RunMeta, fingerprint
from tracekit.runs.store import new_run_id, timestamp
from tracekit.workloads.options import Scope, check, values

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tracekit.recording.workload import Collector, Program, Progress, Recording
    from tracekit.runs.run import Run
    from tracekit.runs.store import Store

_INTERPRETERS = ("python", "torchrun", "accelerate", "deepspeed", "bash", "sh")
"""Programs that are named for what they run."""


def collect_program(store: Store, program: Program, *, progress: Progress = silent) -> Run:
    """Record one run of the user's program into the store.

    The program keeps the standard streams of this process. Its exit code is `workload["exit_code"]` of the
    run's metadata, whatever it is.

    Args:
        store: Where the run goes; nothing is left there unless the run is whole.
        program: What to run, and which of its steps to record; one run of it, whatever its `repeat`.
        progress: Told how far it is once the program has ended.

    Raises:
        ProgramFailedError: The program failed, and nothing was recorded.
        CollectionError: The program ended well, and nothing was recorded.
        UnusableInputError: The program cannot be started.
    """
    if not program.command:
        raise UnusableInputError("no program to record", hint="give a command after --")
    check(program)
    name = collector_name(program)
    plugin: Collector = registry.load(registry.COLLECTORS, name)()
    git, now = revisions.state(), datetime.now(UTC)
    with store.draft() as draft:
        recording = plugin.record_program(program, draft.path, progress=progress)
        progress("import", 0, 1)
        kept = keep(recording.traces[0], draft) if program.keep_trace else None
        window = {**values(program, Scope.WORK), "exit_code": recording.exit_code}
        meta = run_meta(
            title(program.command), recording, window, collector=name, command=program.command, now=now
        )
        meta = replace(meta, git=git, label=program.label)
        run = import_recording(store, recording.traces, meta, samples=recording.samples)
        if kept:
            storage.move(kept, run.path / kept.name)
        progress("import", 1, 1)
    return run


def run_meta(
    name: str,
    recording: Recording,
    window: dict[str, Any],
    *,
    collector: str,
    command: Sequence[str],
    now: datetime,
) -> RunMeta:
    """What is known about a run of the user's own code.

    Args:
        name: What a person calls it.
        recording: What was recorded.
        window: Which of its steps; kept in `workload`, with how it ended.
        collector: Registered name.
        command: How it was started.
        now: When.
    """
    workload: dict[str, Any] = {
        "name": name,
        "device": recording.device,
        "threads": recording.threads,
        **window,
    }
    found = fingerprint(workload, recording.environment, recording.options, collector=collector)
    return RunMeta(
        run_id=new_run_id(name, now=now),
        created_at=timestamp(now),
        t0_unix_ns=0,
        collector=CollectorMeta(collector, recording.version, recording.options),
        workload=workload,
        command=list(command),
        environment=recording.environment,
        fingerprint={**found, "world_size": len(recording.traces)},
        timings=recording.timings,
        diagnostics=[*recording.diagnostics],
    )


def title(command: tuple[str, ...]) -> str:
    """What a person calls a program: its script or module, without the folder and what runs it.

    Example:
        >>> title(("python", "-u", "src/train.py", "--lr", "0.1")), title(("python", "-m", "pkg.train"))
        ('train', 'pkg.train')
        >>> title(("torchrun", "--nproc-per-node", "2", "train.py")), title(("python", "-c", "1"))
        ('train', 'python')
    """
    program = PurePath(command[0]).name
    if not program.startswith(_INTERPRETERS):
        return PurePath(program).stem or program
    for before, word in pairwise(command):
        if before == "-c":
            break
        if before == "-m" and not word.startswith("torch.distributed."):
            return word
        if word.endswith((".py", ".sh")):
            return PurePath(word).stem
    return program
