"""Record the user's own program into a store, without changes to the program."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime
from itertools import pairwise
from pathlib import PurePath

from tracekit.errors import UnusableInputError
from tracekit.recording.collector import Program, Progress, load_collector, silent
from tracekit.recording.failed_logs import kept_log
from tracekit.recording.store_run import program_meta, store_run
from tracekit.runs import revisions
from tracekit.runs.run import Run
from tracekit.runs.store import Store
from tracekit.workloads.options import Scope, check, values

_LAUNCHERS = ("python", "torchrun", "accelerate", "deepspeed", "bash", "sh")
"""Programs whose runs are named after the script or module that they run."""


def collect_program(store: Store, program: Program, *, progress: Progress = silent) -> Run:
    """Record one run of the user's program.

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
    git, now = revisions.state(), datetime.now(UTC)
    with store.draft() as draft, kept_log(draft, title(program.command)):
        recording = collector.record_program(program, draft.path, progress=progress)
        progress("import", 0, 1)
        window = {**values(program, Scope.WORK), "exit_code": recording.exit_code}
        command = () if program.no_command else program.command
        meta = program_meta(
            title(program.command), recording, window, collector=name, command=command, now=now
        )
        meta = replace(meta, git=git, label=program.label)
        run = store_run(draft, recording, meta, keep_trace=program.keep_trace)
        progress("import", 1, 1)
    return run


def title(command: tuple[str, ...]) -> str:
    """Return the name of a program: its script or module, without folder and launcher.

    Example:
        >>> title(("python", "-u", "src/train.py", "--lr", "0.1")), title(("python", "-m", "pkg.train"))
        ('train', 'pkg.train')
        >>> title(("torchrun", "--nproc-per-node", "2", "train.py")), title(("python", "-c", "1"))
        ('train', 'python')
    """
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
