"""Agent of one process: follow the steps of a program that was not changed, and record a window of them."""

from __future__ import annotations

import json
import os
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import Any

from .changes import begin_turns, end_step, end_turns
from .device import is_capturing, summary
from .recorder import LATER_STEPS, NvtxRecorder, TorchRecorder
from .settings import capture_environment, hash_job, name_script
from .step_hooks import (
    CALL,
    FUNCTION,
    MARKED,
    NONE,
    OPTIMIZER,
    ModuleCalls,
    at_exit,
    before_signals,
    describe_step,
    is_worker,
)
from .window import Window

MAX_STEPS_BEHIND = 100
"""Steps that a rank waits for others of its job before it ends alone."""
MAX_PROCESSES = 8
"""Processes of a program that are recorded for each rank, if they are no ranks of one job."""
TIMED_ONLY = "forked_after_profiler"
"""Code of the note of a process that was timed only."""
TIMED_STEPS = 1_000
"""Steps that are timed in such a process."""
FALLBACK = ".first"
"""Part of the name of a recording of the first call only, used if there is no other."""
BUSY = ".busy"
"""Suffix of the file that exists while a profiler begins or ends."""


def _option(text: str, default: Any = False, **details: Any) -> Any:  # noqa: FBT002 (most are switches)
    """Declare an option of `tracekit collect`: `details` as in `tracekit.workloads.options.Option`."""
    return field(default=default, metadata={"help": text, **details})


@dataclass(frozen=True, kw_only=True)
class ProgramOptions:
    """Options of the user's own program."""

    start_step: int = _option("Steps to run before profiling starts.", 5, least=0)
    step_on: str = _option(
        "A step is a call of this function or method, such as train:Trainer.update.",
        "",
        metavar="MODULE:FUNCTION",
    )
    timed_steps: int = _option("Maximum steps to time after the profiled ones.", LATER_STEPS, least=0)
    stop_after_profile: bool = _option(
        "End the program once the steps after the profile are timed.", scope="profiler"
    )
    every: int = _option(
        "Profile another window after so many steps, up to 8 in all; each is a run.", 0, least=0
    )
    no_host_samples: bool = _option(
        "Take no samples of Python call stacks while steps are profiled.", scope="profiler"
    )
    no_command: bool = _option("Leave the command out of the run; secrets in it are redacted.", scope="run")
    keep_command: bool = _option("Store the command as it is, with the secrets in it.", scope="run")


@dataclass(frozen=True)
class AgentRequest(ProgramOptions):
    """What to record in a process of a program; some fields are options of every recording."""

    directory: str  # folder for the recording
    profiler: str  # `torch`, or `outside` if a profiler watches the process from outside
    steps: int
    stacks: bool
    collector_pid: int  # process that started the program
    light: bool = False
    changes: list[dict[str, str]] = field(default_factory=list)  # as `changes.apply_changes` takes them
    alternate: bool = False

    @classmethod
    def of(cls, values: dict[str, Any]) -> AgentRequest:
        """Select the fields from the values that `environment_with_agent` passes on."""
        return cls(**{item.name: values[item.name] for item in fields(cls) if item.name in values})


class Agent:
    """The state of one process of a recorded program.

    Errors are reported to `tracekit collect`, and never reach the program.

    Args:
        torch: The program's torch.
        request: What to record.
        timed_only: Time the steps, and run no profiler.

    Attributes:
        source: Source of the steps; empty until it is known.
    """

    def __init__(self, torch: Any, request: AgentRequest, *, timed_only: bool = False) -> None:
        if timed_only:
            request = replace(request, start_step=max(request.start_step, TIMED_STEPS))
        self._torch, self._request, self._timed_only = torch, request, timed_only
        self._outside = request.profiler == "outside"
        self._thread = 0
        self.source, self._subject = "", request.step_on
        self._report = self._new_report()
        self._number = 1
        self._window = self._new_window(request.start_step, request.steps)
        self._fallback: Window | None = None
        self._calls = ModuleCalls(torch, begun=self.call_began, ended=self.call_ended)
        if request.step_on:
            self._run_safely(self._follow, FUNCTION)
        at_exit(self.finish)
        before_signals(self.finish)

    def _new_report(self) -> Report:
        return Report(self._torch, self._request.directory, processes=1 if self._outside else MAX_PROCESSES)

    def _new_window(self, start_step: int, steps: int, *, fallback: bool = False) -> Window:
        make = NvtxRecorder if self._outside else TorchRecorder
        request = self._request
        recorder = make(
            self._torch,
            stacks=request.stacks,
            samples=not request.no_host_samples,
            root=request.collector_pid,
            light=request.light,
        )
        recorder.later_steps = 0 if fallback else request.timed_steps
        self._notes = recorder.notes
        window = Window(start_step, steps, recorder, while_busy=self._report.mark_busy)
        if not self._timed_only:
            recorder.trace_path = lambda: self._report.trace_path(fallback=fallback)
        if not fallback:
            self._recorder = recorder

        def write_facts(trace: Path, recorded: int) -> None:
            self._report.write_facts(
                trace,
                recorder,
                source=self.source,
                step=describe_step(self.source, self._subject),
                recorded_steps=recorded,
                requested_steps=steps,
                window=self._number,
            )
            if not fallback and recorded == steps:
                self._say_that_profiling_ended(recorded)

        recorder.on_written = write_facts
        recorder.on_conflict = lambda: self._run_safely(window.close)
        return window

    def _say_that_profiling_ended(self, steps: int) -> None:
        """Say once for all ranks that the window is over, and what a request to end does."""
        if self._report.rank or self._number > 1:
            return
        goes_on = "the program goes on; Ctrl-C ends it and keeps the profile"
        if self._request.stop_after_profile:
            goes_on = "the program ends, as asked by --stop-after-profile"
        elif self._request.every:
            goes_on += f"; the next window is after {self._request.every} more steps"
        with suppress(OSError, ValueError):  # standard error is closed
            sys.stderr.write(f"tracekit: profiled {steps} step{'s' * (steps != 1)}; {goes_on}\n")
            sys.stderr.flush()

    def is_recording(self) -> bool:
        """Return whether a profiler of this agent is running."""
        return any(window.state == "recording" for window in self._windows())

    def quit(self) -> None:
        """Stop following steps and recording."""
        end_turns()
        self._calls.stop()
        self.source = NONE
        self._window.state = "done"

    def optimizer_made(self) -> None:
        """Follow steps of optimizers from now on instead of module calls: the program trains."""
        if self.source in {"", CALL}:
            self._run_safely(self._follow, OPTIMIZER)
            if self._request.start_step == 0:
                self._run_safely(self._window.begin)

    def optimizer_stepped(self, name: str) -> None:
        """End a step of the first optimizer, of the class with that name."""
        if self.source == OPTIMIZER:
            self._subject = name
        self._end_step(OPTIMIZER)

    def step_marked(self) -> None:
        """End a step that the program marks, and follow only its marks from now on."""
        if self.source == FUNCTION or is_capturing(self._torch):  # a recording cannot be stopped now
            return
        if self.source not in {MARKED, NONE}:
            self._run_safely(self._follow, MARKED)
        self._end_step(MARKED)

    def function_called(self) -> None:
        """Begin the first step, if calls of a named function are the steps."""
        if self.source == FUNCTION:
            self._run_safely(self._window.begin)

    def function_returned(self) -> None:
        """End a step of the named function."""
        if not is_capturing(self._torch):
            self._end_step(FUNCTION)

    def call_began(self, name: str) -> bool:
        """Begin the first call of a module of a class, recorded in case that the window is never reached."""
        if self.source or is_worker():
            return False
        self.source, self._subject = CALL, name
        if self._request.start_step > 0:
            if self._outside or self._timed_only:  # a profiler outside records one window only
                return True
            self._fallback = self._new_window(0, 1, fallback=True)
            self._run_safely(self._fallback.begin)
        else:
            self._run_safely(self._window.begin)
        return True

    def call_ended(self) -> None:
        """End a call of the first module."""
        if self._fallback and self._fallback.state == "recording":
            self._run_safely(self._fallback.end_step)
        self._end_step(CALL)

    def finish(self, exit_code: int | None = None) -> None:
        """Write the recording and the report at the end of the program, whose exit code may be known."""
        self._report.end = {"at_end": True, "exit_code": exit_code}
        self._calls.stop()
        for window in self._windows():
            self._run_safely(window.close)
        self._run_safely(self._report.add_later_steps)
        steps = self._window.steps_done
        if self._timed_only and steps:
            self._notes.append((TIMED_ONLY, self._describe_timed(steps)))
        if self._number == 1 or self._report.error:
            source, number = self.source, self._number
            self._run_safely(
                lambda: self._report.write_note(source, steps_done=steps, notes=self._notes, window=number)
            )

    def _describe_timed(self, steps: int) -> str:
        durations, _ = self._recorder.timings()
        mean = f", {sum(durations) / len(durations) / 1e6:.3f} ms on average" if durations else ""
        return f"process {os.getpid()} was forked after a profiler had run: {steps} steps{mean}, not profiled"

    def _follow(self, source: str) -> None:
        begin_turns()
        self._calls.stop()
        for window in self._windows():
            window.abandon()
        self.source, self._fallback = source, None
        self._window = self._new_window(self._request.start_step, self._request.steps)

    def _windows(self) -> list[Window]:
        return [*([self._fallback] if self._fallback else []), self._window]

    def _end_step(self, source: str) -> None:
        thread = threading.get_ident()
        if self.source == source and thread == (self._thread or thread):
            self._thread = thread  # a profiler is stopped by the thread that started it
            self._run_safely(end_step)
            self._run_safely(self._window.end_step)
            if self._window.state == "done":
                self._window_done()

    def _window_done(self) -> None:
        """End the program, or wait for the next window, if that is asked for."""
        if self._request.stop_after_profile:
            if self._report.are_others_done(self._window.steps_done):
                self.finish(0)
                raise SystemExit(0)
        elif self._request.every and self._report.has_trace:
            self._run_safely(self._report.add_later_steps)
            self._report, self._number = self._new_report(), self._number + 1
            self._window = self._new_window(self._request.every, self._request.steps)
        else:
            self._calls.stop()

    def _run_safely(self, work: Callable[..., None], *arguments: Any) -> None:
        try:
            work(*arguments)
        except Exception as error:  # the program comes first
            self._report.set_error(error)
            for window in self._windows():
                with suppress(Exception):  # a profiler would go on recording
                    window.abandon()
            if self._request.stop_after_profile and self._window.steps_done:
                self._window.state = "done"  # the steps still tell when all ranks of the job end
            else:
                self.quit()


class Report:
    """Files of one process in the directory of the recording.

    `rank-R.json` is a complete trace and `rank-R.facts` describes it, `rank-R-of-N.json` if there are several
    ranks; `process-P.note` describes a process without a recording, and `process-P.busy` exists while its
    profiler begins or ends. Each process claims a name. Those of one rank, as `bash -c "python a.py; python
    b.py"` starts them, have a number in addition.

    Args:
        torch: The program's torch.
        directory: Folder of the recording.
        processes: Processes that are recorded for each rank.
    """

    def __init__(self, torch: Any, directory: str, *, processes: int = 1) -> None:
        self._torch, self._directory, self._processes = torch, Path(directory), processes
        self._name: str | None = None
        self._described: tuple[Path, dict[str, Any], TorchRecorder] | None = None
        self.error = ""
        self.end: dict[str, Any] = {"at_end": False, "exit_code": None}
        self._left_out = False
        self._done_at = 0
        self._script = name_script()  # at the end of the process Python has forgotten it

    @property
    def rank(self) -> int:
        """Rank of this process."""
        return self._rank()[0]

    @property
    def has_trace(self) -> bool:
        """Whether a trace was written."""
        return self._described is not None

    def trace_path(self, *, fallback: bool) -> Path | None:
        """Return the path for the trace of this process; None if enough others record this rank."""
        self._name = self._name or self._claim()
        if self._name is None:
            self._left_out = True
            return None
        return self._directory / f"{self._name}{FALLBACK * fallback}.json"

    def _claim(self) -> str | None:
        rank, world = self._rank()
        of_job = f"-of-{world}" if world > 1 else ""
        for number in range(self._processes):
            name = f"rank-{rank}{of_job}" + (f".{number}" if number else "")
            with suppress(FileExistsError):
                os.close(os.open(self._directory / f"{name}.claim", os.O_CREAT | os.O_EXCL))
                return name
        return None

    def write_facts(
        self,
        trace: Path,
        recorder: TorchRecorder,
        *,
        source: str,
        step: str,
        recorded_steps: int,
        requested_steps: int,
        window: int,
    ) -> None:
        """Describe a trace: its steps, how many were complete and to be recorded, which window."""
        rank, world = self._rank()
        facts = {
            **recorder.facts(source, recorded_steps),
            "rank": rank,
            "world_size": world,
            "requested_steps": requested_steps,
            "recorded_steps": recorded_steps,
            "notes": recorder.notes,
            "pid": os.getpid(),
            "job": hash_job(),
            "window": window,
            "environment": capture_environment(),
        }
        facts["program"]["step"] = step
        self._described = trace.with_suffix(".facts"), facts, recorder
        self._write(trace.with_suffix(".facts"), facts)

    def add_later_steps(self) -> None:
        """Add the times and samples of the steps after the window, at the end of the program."""
        if self._described is not None:
            path, facts, recorder = self._described
            self._write(path, recorder.with_later_steps(facts))

    def are_others_done(self, step: int) -> bool:
        """Return whether all ranks of the job end with this step, since one that ends earlier blocks others.

        Each says at which step it was done; two steps after the last one all of them know it.

        Args:
            step: Steps of this process that have ended.
        """
        rank, world = self._rank()
        if world == 1:
            return True
        files = [self._directory / f"done-{other}-of-{world}.{hash_job()}" for other in range(world)]
        if not self._done_at:
            self._done_at = step
            self._write(files[rank], {"step": step})
        if not all(file.exists() for file in files):
            return step > self._done_at + MAX_STEPS_BEHIND
        return step >= max(int(json.loads(file.read_text())["step"]) for file in files) + 2

    def write_note(
        self, source: str, *, steps_done: int, notes: list[tuple[str, str]], window: int = 1
    ) -> None:
        """Describe a process, or a later window of it, that recorded nothing, and why.

        Args:
            source: Source of the steps.
            steps_done: Steps that have ended.
            notes: Notes of the last recorder.
            window: Number of the window.
        """
        if self._described is None:
            error = "; ".join(filter(None, [self.error, *(message for _, message in notes)]))
            note = {
                "source": source,
                "steps_done": steps_done,
                "error": error,
                "codes": [code for code, _ in notes],
                "script": self._script,
                "world_size": self._rank()[1],
                "left_out": self._left_out,
                "window": window,
            }
            self._write(self._directory / f"process-{os.getpid()}.note", note)

    @contextmanager
    def mark_busy(self) -> Iterator[None]:
        """Mark that a profiler begins or ends: if that takes for ever, `collect` ends the process."""
        mark = self._directory / f"process-{os.getpid()}{BUSY}"
        with suppress(OSError):  # no space
            self._write(mark, {"name": self._name, "thread": threading.get_native_id(), **self.end})
        try:
            yield
        finally:
            mark.unlink(missing_ok=True)

    def set_error(self, error: Exception) -> None:
        """Keep the first error that stopped recording."""
        self.error = self.error or f"{type(error).__name__}: {summary(error)}"

    def _rank(self) -> tuple[int, int]:
        distributed = self._torch.distributed
        if distributed.is_available() and distributed.is_initialized():
            return distributed.get_rank(), distributed.get_world_size()
        with suppress(KeyError, ValueError):
            return int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
        return 0, 1

    def _write(self, path: Path, content: dict[str, Any]) -> None:
        with suppress(FileNotFoundError):  # `collect` and its directory are gone
            part = path.with_name(path.name + ".part")
            part.write_text(json.dumps(content))
            part.rename(path)
