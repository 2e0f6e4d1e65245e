"""Record a block of the user's own process: the implementation of `tracekit.record` and `%%profile`."""

from __future__ import annotations

import shlex
import sys
from contextlib import ExitStack, suppress
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

from tracekit.errors import CollectionError, MissingDependencyError, TracekitError, UnusableInputError
from tracekit.recording.agent import program_step
from tracekit.recording.agent.program_profilers import follow
from tracekit.recording.agent.recorder import TorchRecorder
from tracekit.recording.agent.settings import name_script
from tracekit.recording.agent.window import Window

if TYPE_CHECKING:
    from tracekit.recording.collector import Recording
    from tracekit.runs.run import Run
    from tracekit.runs.store import Draft


TRACE = "trace.json"
RECORD = "record"
"""Name of a program without a file."""

_active: Record | None = None


class Progress:
    """Shows what a recording does: lines of a terminal, or one output of a notebook, which changes."""

    def __init__(self) -> None:
        self._output: Any = None

    def show(self, text: str) -> None:
        """Show a line; nothing is shown where stderr is neither."""
        shell = getattr(sys.modules.get("IPython"), "get_ipython", lambda: None)()
        if hasattr(shell, "kernel"):
            self._show_in_notebook(text)
            return
        with suppress(AttributeError, ValueError):  # stderr is missing or closed
            if sys.stderr.isatty():
                sys.stderr.write(f"tracekit: {text}\n")

    def _show_in_notebook(self, text: str) -> None:
        from IPython.display import display

        content = {"text/plain": f"tracekit: {text}"}
        if self._output is None:
            self._output = display(content, raw=True, display_id=True)  # type: ignore[no-untyped-call]
        else:
            self._output.update(content, raw=True)


def step() -> None:
    """Mark the end of a step for the recording of this process, if there is one."""
    if _active is not None:
        _active.step()
    else:
        program_step()


class Record:
    """Context manager that records its block; see `tracekit.record` for its arguments.

    Attributes:
        run: The run after the block; None before, and if no complete step was recorded.
    """

    def __init__(
        self,
        *,
        label: str | None,
        start_step: int,
        steps: int | None,
        stacks: bool,
        light: bool,
        keep_trace: bool,
        store: str | None,
    ) -> None:
        for name, value, minimum in (("start_step", start_step, 0), ("steps", steps, 1)):
            if value is not None and value < minimum:
                raise UnusableInputError(f"{name}={value} is too low", hint=f"use {name}={minimum} or more")
        self._label, self._start_step, self._steps = label, start_step, steps
        self._stacks, self._light, self._keep_trace, self._store = stacks, light, keep_trace, store
        self._trace: Path | None = None
        self.run: Run | None = None
        self._state = "not started"
        self._progress = Progress()

    def __repr__(self) -> str:
        """Describe the recording and its state in one line.

        Example:
            >>> import tracekit
            >>> tracekit.record("mine", steps=5)
            <Record 'mine': not started>
        """
        label = f" {self._label!r}" if self._label else ""
        state = repr(self.run) if self.run else self._state
        return f"<Record{label}: {state}>"

    def __enter__(self) -> Self:
        global _active
        if _active is not None:
            message = "a recording is already running in this process"
            raise UnusableInputError(message, hint="end its block before starting another")
        recorder = self._make_recorder()
        after = f" after {_count(self._start_step)}" if self._start_step else ""
        self._progress.show(f"profiling {_count(self._steps) if self._steps else 'the block'}{after}")
        from tracekit.runs.store import Store, locate

        with ExitStack() as stack:
            self._draft: Draft = stack.enter_context(Store(locate(self._store)).draft())
            self._recorder = recorder
            self._window = Window(self._start_step, self._steps, recorder)
            self._window.begin()
            self._open = stack.pop_all()
        _active = self
        self._state = "recording"
        return self

    def step(self) -> None:
        """End a step and begin the next."""
        self._window.end_step()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        global _active
        _active = None
        self._state = "ended without a run"
        with self._open:
            try:
                self._window.close(keep_open=error is None and self._window.steps_done == 0)
                self._progress.show("importing the profile")
                self.run = self._store_run()
            except Exception as failure:
                if error is None:
                    raise
                error.add_note(f"tracekit: what was recorded is lost: {failure}")
            finally:
                self._progress.show(f"stored {self.run.id}" if self.run else "nothing was stored")
        if self.run is None and error is None:
            raise self._explain_missing_run()

    def _make_recorder(self) -> TorchRecorder:
        try:
            import torch
        except ModuleNotFoundError as missing:
            message = "torch is not installed"
            raise MissingDependencyError(message, hint="pip install 'tracekit-torch[torch]'") from missing

        if follow(torch).are_active():
            message = "a profiler is already running in this process"
            raise UnusableInputError(message, hint="stop it before the block starts")
        recorder = TorchRecorder(torch, stacks=self._stacks, light=self._light)
        recorder.trace_path = lambda: self._draft.path / TRACE
        recorder.on_written = self._remember_trace
        recorder.on_conflict = lambda: self._window.close()
        return recorder

    def _remember_trace(self, trace: Path, steps: int) -> None:
        self._trace, self._recorded_steps = trace, steps
        self._progress.show(f"profiled {_count(steps) if steps else 'the block'}")

    def _store_run(self) -> Run | None:
        if self._trace is None:
            return None
        from tracekit.recording.store_run import program_meta, store_run
        from tracekit.runs import revisions

        name, command = name_script() or RECORD, _invocation()
        window = {"start_step": self._start_step, "steps": self._recorded_steps or 1}
        recording, now = self._make_recording(self._trace), datetime.now(UTC)
        meta = program_meta(name, recording, window, collector="torch", command=command, now=now)
        meta = replace(meta, git=revisions.state(), label=self._label)
        return store_run(self._draft, recording, meta, keep_trace=self._keep_trace)

    def _make_recording(self, trace: Path) -> Recording:
        from tracekit.recording.collector import read_facts
        from tracekit.runs import environment
        from tracekit.runs.meta import Diagnostic, Level

        recorder = self._recorder
        facts = recorder.with_later_steps(recorder.facts("marked"))
        recording = read_facts({**facts, "environment": environment.capture()}, [trace])
        notes = tuple(Diagnostic(Level.WARN, code, message) for code, message in recorder.notes)
        return replace(recording, diagnostics=notes)

    def _explain_missing_run(self) -> TracekitError:
        notes = "; ".join(message for _, message in self._recorder.notes)
        steps = self._window.steps_done
        too_short = (
            f"the block ended after {steps} step{'s' * (steps != 1)}; recording would have started after "
            f"step {self._start_step}"
        )
        message = f"nothing was recorded: {notes or too_short}"
        return CollectionError(message, hint="call rec.step() after each step, or lower start_step")


def _count(steps: int) -> str:
    return f"{steps} step{'s' * (steps != 1)}"


def _invocation() -> list[str]:
    """Return the command of this program; a notebook has none."""
    script: Any = sys.argv[0] if sys.argv else ""
    is_script = script and Path(script).is_file() and "ipykernel" not in script
    return ["python", *sys.argv] if is_script else []


_USAGE = "%%profile [LABEL]"


def register(shell: Any) -> None:
    """Add the magic to a shell of IPython.

    Args:
        shell: The shell.
    """

    def profile(line: str, cell: str) -> None:
        """Record the cell as a run; `tracekit.step()` in it marks the end of a step.

        %%profile [LABEL]
        """
        words = shlex.split(line)
        if len(words) > 1 or line.strip().startswith("-"):
            print(f"usage: {_USAGE}")  # noqa: T201 (a magic prints)
            return
        record = Record(
            label=words[0] if words else None,
            start_step=0,
            steps=None,
            stacks=False,
            light=False,
            keep_trace=False,
            store=None,
        )
        try:
            with record:
                shell.run_cell(cell).raise_error()
        except TracekitError as error:
            print(f"tracekit: {error}")  # noqa: T201
            return
        shell.user_ns["run"] = record.run
        from IPython.display import display

        display(record.run)  # type: ignore[no-untyped-call]

    shell.register_magic_function(profile, "cell", "profile")
