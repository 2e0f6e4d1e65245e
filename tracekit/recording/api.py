"""Record a block of the user's own process: what `tracekit.record` gives."""

from __future__ import annotations

import sys
from contextlib import ExitStack
from datetime import UTC, datetime
from pathlib import Path, PurePath
from typing import TYPE_CHECKING, Any, Self

from tracekit.errors import CollectionError, MissingDependencyError, TracekitError, UnusableInputError
from tracekit.recording.agent import program_step

if TYPE_CHECKING:
    from types import TracebackType

    from tracekit.recording.agent.recorder import TorchRecorder
    from tracekit.recording.agent.window import Window
    from tracekit.recording.workload import Recording
    from tracekit.runs.run import Run
    from tracekit.runs.store import Draft


TRACE = "trace.json"

_active: Record | None = None


def step() -> None:
    """Mark the end of a step for whatever records this process."""
    if _active is not None:
        _active.step()
    else:
        program_step()


class Record:
    """A block that is recorded; see `tracekit.record` for its arguments.

    Attributes:
        run: The run, once the block has ended; None before, and when nothing whole was recorded.
    """

    def __init__(
        self,
        *,
        label: str | None,
        start_step: int,
        steps: int | None,
        stacks: bool,
        keep_trace: bool,
        store: str | None,
    ) -> None:
        for name, value, least in (("start_step", start_step, 0), ("steps", steps, 1)):
            if value is not None and value < least:
                raise UnusableInputError(f"{name}={value} is too low", hint=f"use {name}={least} or more")
        self._label, self._start_step, self._steps = label, start_step, steps
        self._stacks, self._keep_trace, self._store = stacks, keep_trace, store
        self._trace: Path | None = None
        self.run: Run | None = None

    def __enter__(self) -> Self:
        global _active
        if _active is not None:
            raise UnusableInputError(
                "a recording is already running in this process", hint="end its block before starting another"
            )
        recorder = self._recorder()
        from tracekit.recording.agent.window import Window
        from tracekit.runs.store import Store, locate

        with ExitStack() as stack:
            self._draft: Draft = stack.enter_context(Store(locate(self._store)).draft())
            self._recording: TorchRecorder = recorder
            self._window: Window = Window(self._start_step, self._steps, recorder)
            self._window.begin()
            self._open = stack.pop_all()
        _active = self
        return self

    def step(self) -> None:
        """The end of a step, and the begin of the next."""
        self._window.finished()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        global _active
        _active = None
        with self._open:
            try:
                self._window.end(keep_open=error is None and self._window.passed == 0)
                self.run = self._imported()
            except Exception as failed:
                if error is None:
                    raise
                error.add_note(f"tracekit: what was recorded is lost: {failed}")
        if self.run is None and error is None:
            raise self._nothing()

    def _recorder(self) -> TorchRecorder:
        try:
            import torch
        except ModuleNotFoundError as missing:
            raise MissingDependencyError(
                "torch is not installed",
                hint="pip install 'tracekit-torch[torch]'",
            ) from missing
        from tracekit.recording.agent.recorder import TorchRecorder
        from tracekit.workloads.options import RecordingOptions, values

        if torch.autograd.profiler._is_profiler_enabled:
            raise UnusableInputError(
                "a profiler is already running in this process", hint="stop it before the block starts"
            )
        recorder = TorchRecorder(torch, values(RecordingOptions(stacks=self._stacks)))
        recorder.trace = lambda: self._draft.path / TRACE
        recorder.written = self._written
        recorder.give_way = lambda: self._window.end()
        return recorder

    def _written(self, trace: Path, whole: int) -> None:
        self._trace, self._whole = trace, whole

    def _imported(self) -> Run | None:
        if self._trace is None:
            return None
        from dataclasses import replace

        from tracekit import storage
        from tracekit.ingest.importer import import_recording
        from tracekit.recording.program import run_meta
        from tracekit.recording.workload import keep
        from tracekit.runs import revisions

        name, command = _invocation()
        window = {"start_step": self._start_step, "steps": self._whole or 1}
        recording, now = self._handed_over(self._trace), datetime.now(UTC)
        meta = run_meta(self._label or name, recording, window, collector="torch", command=command, now=now)
        meta = replace(meta, git=revisions.state(), label=self._label)
        kept = keep(self._trace, self._draft) if self._keep_trace else None
        run = import_recording(self._draft.store, recording.traces, meta, samples=recording.samples)
        if kept:
            storage.move(kept, run.path / kept.name)
        return run

    def _handed_over(self, trace: Path) -> Recording:
        import torch

        from tracekit.ingest.write import Sample
        from tracekit.recording.workload import Recording
        from tracekit.runs import environment
        from tracekit.runs.meta import Diagnostic, Level, Timings

        recorder = self._recording
        step_ns, clock = recorder.timings()
        began = recorder.began_unix_ns
        return Recording(
            traces=(trace,),
            device=recorder.device,
            threads=torch.get_num_threads(),
            version=str(torch.__version__),
            timings=Timings(step_ns, [], clock) if step_ns else None,
            samples=tuple(
                Sample(began, source, device, metric, "bytes", value)
                for source, device, metric, value in recorder.peaks
            ),
            environment=environment.capture(),
            options={**recorder.options, "step": "marked"},
            diagnostics=tuple(Diagnostic(Level.WARN, code, said) for code, said in recorder.notes),
        )

    def _nothing(self) -> TracekitError:
        said = "; ".join(message for _, message in self._recording.notes)
        passed = self._window.passed
        steps = (
            f"the block ended after {passed} step{'s' * (passed != 1)}; recording would have started after "
            f"step {self._start_step}"
        )
        return CollectionError(
            f"nothing was recorded: {said or steps}",
            hint="call rec.step() after each step, or lower start_step",
        )


def _invocation() -> tuple[str, list[str]]:
    """What a person calls this program, and how it was started; a notebook is neither called nor started."""
    script: Any = sys.argv[0] if sys.argv else ""
    if not script or not Path(script).is_file() or "ipykernel" in script:
        return "record", []
    return PurePath(script).stem, ["python", *sys.argv]
