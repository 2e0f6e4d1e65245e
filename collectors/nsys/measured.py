"""Process of a workload under nsys.

With the path of a request, it runs the steps to record between `cudaProfilerStart` and `cudaProfilerStop`,
and appends events to a file in the same folder, since nsys prints to the standard streams.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from importlib import import_module
from pathlib import Path
from typing import Any

from tracekit.recording.agent.device import CPU
from tracekit.recording.agent.recorder import LACKS_NVTX
from tracekit.recording.agent.step_hooks import ranges_of_ops
from tracekit.recording.collector import Request

from ..compilation import Compilations
from ..protocol import PROFILE, Reporter, serve
from ..sampling import sample_counters
from ..workload_process import build_workload, keep_busy, resolve_device

STEP_NAME = "ProfilerStep#"
"""Name of a step by torch.profiler, which the importer recognizes."""
REQUEST, EVENTS = "request.json", "events.jsonl"


def main() -> int:
    """Serve one request; returns the exit code."""
    path = Path(sys.argv[1])
    with path.with_name(EVENTS).open("a", encoding="utf-8") as stream:
        reporter = Reporter(stream)
        request = Request(**json.loads(path.read_text()))
        return serve(reporter, lambda: _record(request, reporter))


def _record(request: Request, reporter: Reporter) -> dict[str, Any]:
    reporter.send("progress", part=PROFILE, done=0, total=request.steps)
    device = resolve_device(request.device)
    notes: list[tuple[str, str]] = []
    with build_workload(request, device=device) as program:
        compilations, done = Compilations(request.level), 0
        while not compilations.is_warm(done, max(1, request.warmup)):  # the first step is never recorded
            program.step()
            done += 1
        if device != CPU:
            keep_busy(program.step, device)
        step = _range_maker(notes)  # before the recording, which would have its mark
        with sample_counters() as buffer, _window(device), _mark_ops(notes):
            for number in range(1, request.steps + 1):
                with step(f"{STEP_NAME}{number}"):
                    program.step()
                reporter.send("progress", part=PROFILE, done=number, total=request.steps)
    return {
        "notes": notes,
        "samples": [vars(sample) for sample in buffer.samples()],
        "diagnostics": [vars(diagnostic) for diagnostic in buffer.diagnostics()],
    }


@contextmanager
def _window(device: str) -> Iterator[None]:
    """Limit the recording to the block; without a GPU, nsys records the entire process."""
    if device == "cpu":
        yield
        return
    torch: Any = import_module("torch")
    torch.cuda.synchronize()
    torch.cuda.profiler.start()
    try:
        yield
        torch.cuda.synchronize()  # wait for the kernels of the last step
    finally:
        torch.cuda.profiler.stop()


@contextmanager
def _mark_ops(notes: list[tuple[str, str]]) -> Iterator[None]:
    """Mark ops inside the block with NVTX ranges."""
    torch: Any = import_module("torch")
    with ExitStack() as stack:
        try:
            stack.enter_context(torch.autograd.profiler.emit_nvtx(record_shapes=True))
        except (RuntimeError, AssertionError) as error:  # torch lacks CUDA or a GPU
            reason = str(error).splitlines()[0]
            try:
                stack.enter_context(ranges_of_ops(torch))
            except ImportError:
                message = f"nsys saw no ops: this torch cannot mark them here ({reason})"
                notes.append(("no_nvtx_ops", message))
        yield


def _range_maker(notes: list[tuple[str, str]]) -> Callable[[str], Any]:
    """Return a function that makes an NVTX range, by torch, or by the package `nvtx`, or does nothing."""
    try:
        nvtx: Any = import_module("torch.cuda.nvtx")
        nvtx.mark("tracekit")
    except RuntimeError:  # this torch lacks NVTX
        with suppress(ImportError):
            return import_module("nvtx").annotate  # type: ignore[no-any-return]
        notes.append(("no_nvtx_steps", f"nsys saw no steps: {LACKS_NVTX}"))
        return lambda _name: ExitStack()
    return nvtx.range  # type: ignore[no-any-return]


if __name__ == "__main__":
    sys.exit(main())
