"""Run the user's own program in the foreground with the agent in it, and read what the agent recorded."""

from __future__ import annotations

import fcntl
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import psutil

from tracekit.errors import CollectionError, ProgramFailedError, TracekitError, UnusableInputError
from tracekit.ingest.host_samples import HostSamples
from tracekit.recording import agent, changes
from tracekit.recording.agent.agent import TIMED_ONLY
from tracekit.recording.collector import Program, Recording, read_cpu_load, read_facts, read_thread_times
from tracekit.runs.meta import PROCESS_NOT_RECORDED, Diagnostic, Level
from tracekit.workloads.options import values

from . import guard
from .assignment import View, assign_samples
from .children import STUCK, end_stuck_profilers, run_guarded
from .compilation import artifact_environment, artifact_folder
from .sampling import SampleBuffer, is_recording, program_of, sample_counters

STARTED = "started"
"""File with the process id of the program, once a profiler has started it."""
PROFILER_END_S = 600.0
"""Time in which a profiler outside ends after its program, and one inside works or writes when it ends."""
_POLL_S = 0.5
ONE_REQUEST_S = 0.5
"""Signals within this time are one request: `timeout` sends one to the process, and one to its group."""
_FACTS = re.compile(r"rank-(\d+)(?:-of-(\d+))?(?:\.(\d+))?(\.first)?\.facts")
_FIRST_CALL = ".first"


def run(
    program: Program, directory: Path, *, wrapper: Sequence[str] = (), log: Path | None = None
) -> tuple[int, SampleBuffer]:
    """Run the program to its end; returns its exit code and samples.

    Args:
        program: Program and options.
        directory: Folder for the recordings of its processes.
        wrapper: Command of a profiler to run it under, which records in place of torch.profiler.
        log: File for what the profiler prints; what the program prints goes where it goes without it.

    Raises:
        UnusableInputError: The program does not exist.
    """
    command = program.command
    if shutil.which(command[0]) is None:
        raise UnusableInputError(f"{command[0]} not found", hint="give a program on $PATH, or a path")
    scratch = directory.resolve()
    profiler = "outside" if wrapper else "torch"
    request = {
        **values(program),
        "directory": str(scratch),
        "profiler": profiler,
        "collector_pid": os.getpid(),
        "changes": changes.locate(program.change),
    }
    artifacts = artifact_environment(program, directory, os.environ)
    environment = agent.environment_with_agent(request, artifacts) | changes.environment(program.change)
    # a profiler would end on these, and leave the program running
    forwarded = [number for number in guard.FORWARDED if not (wrapper and number in guard.ENDING)]
    with (
        _apart(log) as (shell, streams),
        run_guarded(
            (*wrapper, *shell, *command),
            environment=environment,
            scratch=scratch,
            while_running=partial(forward_signals, forwarded),
            **streams,
        ) as process,
        sample_counters(
            pid=partial(program_of, process.pid), condition=partial(is_recording, directory)
        ) as sampled,
        end_stuck_profilers(directory, process.pid, PROFILER_END_S),
    ):
        code = exit_code(_wait(process, None if log is None else log.with_name(STARTED)))
    return _known_code(code, directory), sampled


def _wait(process: subprocess.Popen[str], started: Path | None) -> int:
    """Wait for a program, or for its profiler at most `PROFILER_END_S` longer, and return its exit code.

    Raises:
        CollectionError: The profiler did not end.
    """
    if started is None:
        return process.wait()
    ended_s: float | None = None
    while True:
        with suppress(subprocess.TimeoutExpired):
            return process.wait(_POLL_S)
        if ended_s is None and _has_ended(started):
            ended_s = time.monotonic()
        check_profiler(ended_s)


def _has_ended(started: Path) -> bool:
    """Whether the program that the file names has ended."""
    try:
        return psutil.Process(int(started.read_text())).status() == psutil.STATUS_ZOMBIE
    except (FileNotFoundError, ValueError):  # it has not started, or is about to
        return False
    except psutil.Error:
        return True


def check_profiler(ended_s: float | None) -> None:
    """Check that a profiler ends in time after its program.

    Args:
        ended_s: When the program ended, on the monotonic clock; None if it has not.

    Raises:
        CollectionError: The profiler still runs.
    """
    if ended_s is not None and time.monotonic() - ended_s > PROFILER_END_S:
        message = f"the program ended, and its profiler did not within {PROFILER_END_S:.0f} s: it was ended"
        raise CollectionError(message, hint="use another version of the profiler, or --collector torch")


def _known_code(code: int, directory: Path) -> int:
    """Return the exit code of a program that was ended as its profiler did not, if the program had one."""
    codes = [stuck["exit_code"] for stuck in _read_stuck(directory)]
    known = len(codes) == 1 and code == 128 + signal.SIGKILL and codes[0] is not None
    return int(codes[0]) if known else code


def _read_stuck(directory: Path) -> list[dict[str, Any]]:
    """Return what the processes knew whose profiler did not end."""
    return [json.loads(path.read_text()) for path in sorted(directory.glob(f"*{STUCK}"))]


def _describe_stuck(stuck: dict[str, Any]) -> str:
    what = "the program had ended, its profiler did not" if stuck["at_end"] else "a profiler did not end"
    return f"{what} within {PROFILER_END_S:.0f} s: the process was killed"


@contextmanager
def _apart(log: Path | None) -> Iterator[tuple[tuple[str, ...], dict[str, Any]]]:
    """Return the start of a program's command, and the streams of its profiler, that keep their output apart.

    The shell writes the id of its process, which becomes the program, to `STARTED` beside the log.
    """
    if log is None:
        yield (), {}
        return
    with ExitStack() as files:
        output = files.enter_context(log.open("wb"))
        kept = [fcntl.fcntl(number, fcntl.F_DUPFD, 3) for number in (1, 2)]
        for number in kept:
            files.callback(os.close, number)
        mark = 'echo $$ >"$0"; exec "$@"'
        if max(kept) > 9:  # of which shells may know one digit only: the terminal has both
            yield ("sh", "-c", mark, str(log.with_name(STARTED))), {}
            return
        out, err = kept
        script = f"{mark} >&{out} 2>&{err} {out}>&- {err}>&-"
        streams = {"stdout": output, "stderr": subprocess.STDOUT}
        yield ("sh", "-c", script, str(log.with_name(STARTED))), streams


@contextmanager
def forward_signals(forwarded: Sequence[signal.Signals], pipe: int) -> Iterator[None]:
    """Forward signals to the guard, which drops those that the program has received already.

    A second SIGTERM or SIGHUP exits.
    """
    first_request_s: float | None = None

    def send(number: int) -> None:
        with suppress(BrokenPipeError):  # the guard has ended
            os.write(pipe, bytes([number]))

    def forward(number: int, _frame: Any) -> None:
        nonlocal first_request_s
        if number in guard.ENDING:
            now_s = time.monotonic()
            if first_request_s is None:
                first_request_s = now_s
            elif now_s - first_request_s > ONE_REQUEST_S:
                sys.exit(128 + number)
            else:
                return
        send(number)

    in_main = threading.current_thread() is threading.main_thread()  # only there can handlers be set
    handled = [number for number in forwarded if in_main and signal.getsignal(number) is not signal.SIG_IGN]
    former = {number: signal.signal(number, forward) for number in handled}
    try:
        yield
    finally:
        for number, handler in former.items():
            signal.signal(number, handler)
        send(guard.END)


def exit_code(returncode: int) -> int:
    """Return the exit code as a shell reports it.

    Example:
        >>> exit_code(3), exit_code(-15)
        (3, 143)
    """
    return returncode if returncode >= 0 else 128 - returncode


@dataclass(frozen=True)
class Rank:
    """Recording of one process."""

    number: int  # rank of the process
    first_call: bool  # whether only the program's first call was recorded
    trace: Path  # path of the trace
    facts: dict[str, Any]  # description of the trace by `tracekit.recording.agent.agent`

    @property
    def view(self) -> View:
        """Devices that the rank saw and used."""
        return View.of(self.number, self.facts["environment"], (peak[1] for peak in self.facts["peaks"]))


def make_recording(
    program: Program, directory: Path, ranks: Sequence[Rank], *, code: int, sampled: SampleBuffer
) -> Recording:
    """Return what torch.profiler recorded in the ranks of one job, without diagnostics.

    Args:
        program: Program and options.
        directory: Folder of the recordings of its processes.
        ranks: These recordings; at least one.
        code: Exit code of the program.
        sampled: Samples while it was recorded.
    """
    recording = read_facts(ranks[0].facts, [rank.trace for rank in ranks])
    times = [sample for rank in ranks[1:] for sample in read_thread_times(rank.facts, rank.number)]
    assigned = assign_samples(sampled.samples(), [rank.view for rank in ranks])
    return replace(
        recording,
        samples=(*recording.samples, *times, *assigned),
        host_samples=tuple(HostSamples.of(rank.number, rank.facts["host_samples"]) for rank in ranks),
        cpu_loads=tuple(load for rank in ranks for load in read_cpu_load(rank.facts, rank.number)),
        exit_code=code,
        compile_artifacts=artifact_folder(program, directory, os.environ),
    )


def read_jobs(directory: Path) -> list[list[Rank]]:
    """Return the recordings in a directory, in order of time; those of first calls only without others.

    Processes that are no ranks of one job have recordings of their own, each with ranks in their order.
    """
    recordings = []
    for path in sorted(directory.iterdir()):
        if match := _FACTS.fullmatch(path.name):
            number, world, _, first = match.groups()
            facts = json.loads(path.read_text())
            rank = Rank(int(number), bool(first), path.with_suffix(".json"), facts)
            recordings.append((world, rank))
    # Jobs of one world size may run at once, or one after the other with the same port and ranks missing.
    jobs: dict[tuple[Any, ...], list[list[Rank]]] = {}
    for world, rank in sorted(recordings, key=lambda pair: int(pair[1].facts["began_unix_ns"])):
        facts = rank.facts
        key = (world, facts["job"], facts["program"].get("script"), facts["window"])
        of_key = jobs.setdefault(key, [])
        if not of_key or rank.number in {other.number for other in of_key[-1]}:
            of_key.append([])
        of_key[-1].append(rank)
    all_jobs = [ranks for of_key in jobs.values() for ranks in of_key]
    windows = [windows for ranks in all_jobs if (windows := [rank for rank in ranks if not rank.first_call])]
    recorded = windows or all_jobs
    ordered = [sorted(ranks, key=lambda rank: rank.number) for ranks in recorded]
    return sorted(ordered, key=lambda ranks: int(ranks[0].facts["began_unix_ns"]))


def number_jobs(jobs: Sequence[Sequence[Rank]]) -> list[tuple[int | None, int | None]]:
    """Return the number of the process and of the window of each job, in order; None where there is one."""
    processes = [ranks[0].facts.get("pid") for ranks in jobs]
    distinct = list(dict.fromkeys(processes))
    numbers = []
    for place, process in enumerate(processes):
        window = processes[:place].count(process) + 1
        numbers.append(
            (
                distinct.index(process) + 1 if len(distinct) > 1 else None,
                window if processes.count(process) > 1 else None,
            )
        )
    return numbers


def diagnostics(directory: Path, ranks: Sequence[Rank], code: int) -> Iterator[Diagnostic]:
    """Report a failed program, an incomplete window, what is missing, and notes of the processes."""
    facts = ranks[0].facts
    ended = {_describe_stuck(stuck) for stuck in _read_stuck(directory)}
    for message in sorted(ended):
        yield Diagnostic(Level.WARN, "profiler_stuck", message)
    if code and not (ended and code == 128 + signal.SIGKILL):
        yield Diagnostic(Level.WARN, "program_failed", f"the program {_describe_end(code)}")
    if ranks[0].first_call:
        message = "the program ended before profiling started: only the first call of its model was recorded"
        hint = "use --start-step 0, or call tracekit.step() after each step"
        yield Diagnostic(Level.WARN, "first_call_only", f"{message}; {hint}")
    elif (recorded := facts["recorded_steps"]) < (requested := facts["requested_steps"]):
        message = f"the program ended after {recorded} of {requested} profiled steps"
        yield Diagnostic(Level.WARN, "window_cut_short", message)
    if facts["source"] == "call":
        message = "the program has no optimizer: each call of its first module is a step"
        yield Diagnostic(Level.INFO, "steps_are_calls", f"{message}; to mark steps, call tracekit.step()")
    missing = max(rank.facts["world_size"] for rank in ranks) - len(ranks)
    if missing > 0:
        yield Diagnostic(Level.WARN, "ranks_missing", f"{missing} of the ranks recorded nothing")
    for message in sorted(_list_unrecorded(directory)):
        yield Diagnostic(Level.INFO, PROCESS_NOT_RECORDED, message)
    notes = [json.loads(path.read_text()) for path in sorted(directory.glob("process-*.note"))]
    if timed := [note["error"] for note in notes if TIMED_ONLY in note["codes"]]:
        more = f"; so were {len(timed) - 1} others" * (len(timed) > 1)
        yield Diagnostic(Level.WARN, TIMED_ONLY, timed[0] + more)
    for kind, message in sorted({(kind, message) for rank in ranks for kind, message in rank.facts["notes"]}):
        yield Diagnostic(Level.WARN, kind, message)


def _list_unrecorded(directory: Path) -> Iterator[str]:
    """Return which processes had steps, belong to no job of several ranks, and were not recorded, and why."""
    for path in directory.glob("process-*.note"):
        note = json.loads(path.read_text())
        if note["window"] > 1:
            yield f"window {note['window']} and later ones were not recorded: {note['error']}"
            continue
        if (
            TIMED_ONLY in note["codes"]
            or note["world_size"] > 1
            or note["source"] in {"", "none"}
            or not note["steps_done"]
        ):
            continue
        steps = note["steps_done"]
        reason = note["error"] or f"it ended after {steps} step{'s' * (steps != 1)}"
        if note["left_out"]:
            reason = "others were recorded before it"
        yield f"another process ({note['script'] or 'without a script'}) was not recorded: {reason}"
    for path in directory.glob(f"*{_FIRST_CALL}.facts"):
        window = path.with_name(path.name.replace(_FIRST_CALL, ""))
        if not window.exists() and any(
            not other.stem.endswith(_FIRST_CALL) for other in directory.glob("*.facts")
        ):
            script = json.loads(path.read_text())["program"].get("script") or "without a script"
            yield f"another process ({script}) was not recorded: it ended before profiling started"


def _describe_end(code: int) -> str:
    """Describe how a program ended that did not succeed."""
    try:
        return f"was ended by {signal.Signals(code - 128).name}"
    except ValueError:
        return f"failed with exit code {code}"


def failure(program: Program, directory: Path, code: int) -> TracekitError:
    """Return the error that says why nothing was recorded, and what to do.

    Args:
        program: Program and options.
        directory: Folder for the recordings of its processes.
        code: Exit code of the program.
    """
    if stuck := _read_stuck(directory):
        message = f"nothing was recorded: {_describe_stuck(stuck[0])}"
        hint = "profile other steps with --start-step, or less of them with --light"
        if code and code != 128 + signal.SIGKILL:
            return ProgramFailedError(message, hint=hint, program_code=code)
        return CollectionError(message, hint=hint)
    if code:
        message = f"the program {_describe_end(code)} before anything was recorded"
        return ProgramFailedError(message, hint="check its output", program_code=code)
    notes = [json.loads(path.read_text()) for path in directory.glob("process-*.note")]
    if not notes:
        message = "nothing was recorded: no Python process that imported torch exited normally"
        hint = "run a program that uses torch, without Python's options -I, -E and -S"
        return CollectionError(message, hint=hint)
    note = max(notes, key=lambda note: (bool(note["error"]), note["steps_done"], note["source"]))
    steps = note["steps_done"]
    if "captured_steps" in note["codes"]:
        reason = f"{note['error']}; {steps} others ended before profiling started"
        hint = "call tracekit.step() after each replay of the graph"
    elif note["error"]:
        reason = note["error"]
        hint = "if the program uses its own profiler, `tracekit import` its trace"
    elif note["source"] == "function" and not steps:
        reason = f"{program.step_on} was not called, or is not in that module"
        hint = "give --step-on MODULE:FUNCTION or MODULE:CLASS.METHOD, with __main__ for the script"
    elif note["source"] in {"", "none"}:
        reason = "the program used no optimizer and called no module"
        hint = "mark the end of each step with `import tracekit; tracekit.step()`"
    else:
        ended = f"the program ended after {steps} step{'s' * (steps != 1)}"
        reason = f"{ended}; recording would have started after step {program.start_step}"
        hint = f"use --start-step {max(0, steps - 1)} or less, or run the program longer"
    return CollectionError(f"nothing was recorded: {reason}", hint=hint)
