"""The measured processes of the nsys collector: one that is timed without nsys, then one that nsys watches.

Without arguments it times: a request on standard input, events on standard output. With the path of a
request it runs the steps to be recorded, between `cudaProfilerStart` and `cudaProfilerStop`, and appends its
events to the file beside it, since nsys prints to the standard streams.
"""

from __future__ import annotations

import json
import sys
from contextlib import ExitStack, contextmanager, suppress
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tracekit.recording.collector import Request

from ..compilation import Compilations
from ..measured import built, found, surroundings, timed
from ..protocol import PROFILE, Reporter, asked, serve
from ..sampling import sampling

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

STEP_NAME = "ProfilerStep#"
"""As torch's profiler names a step, by which the importer knows it."""
REQUEST, TOLD = "request.json", "told.jsonl"


def main() -> int:
    """Serve one request; returns the exit code."""
    if len(sys.argv) > 1:
        path = Path(sys.argv[1])
        with path.with_name(TOLD).open("a", encoding="utf-8") as stream:
            reporter = Reporter(stream)
            request = Request(**json.loads(path.read_text()))
            return serve(reporter, lambda: _record(request, reporter))
    reporter, content = asked()
    request = Request(**content["request"])
    return serve(reporter, lambda: _time(request, reporter))


def _time(request: Request, reporter: Reporter) -> dict[str, Any]:
    reporter.tell("progress", part="start", done=0, total=1)
    device = found(request.device)
    compilations = Compilations(request.level)
    with built(request, device=device) as program:
        told = timed(program, request, device, reporter, compilations)
    return {"compilation": compilations.facts(told["warmup_ns"]), **told, **surroundings(device)}


def _record(request: Request, reporter: Reporter) -> dict[str, Any]:
    reporter.tell("progress", part=PROFILE, done=0, total=request.steps)
    device = found(request.device)
    notes: list[tuple[str, str]] = []
    with built(request, device=device) as program:
        compilations, done = Compilations(request.level), 0
        while not compilations.warm(done, max(1, request.warmup)):  # no first step is among the recorded
            program.step()
            done += 1
        with sampling() as taken, _window(device), _ranges(notes) as step:
            for number in range(1, request.steps + 1):
                with step(f"{STEP_NAME}{number}"):
                    program.step()
                reporter.tell("progress", part=PROFILE, done=number, total=request.steps)
    return {
        "notes": notes,
        "samples": [vars(one) for one in taken.samples()],
        "diagnostics": [vars(one) for one in taken.diagnostics()],
    }


@contextmanager
def _window(device: str) -> Iterator[None]:
    """What nsys records; on a host alone nobody can mark it, and nsys records everything."""
    if device == "cpu":
        yield
        return
    torch: Any = import_module("torch")
    torch.cuda.synchronize()
    torch.cuda.profiler.start()
    try:
        yield
        torch.cuda.synchronize()  # the work of the last step belongs to it
    finally:
        torch.cuda.profiler.stop()


@contextmanager
def _ranges(notes: list[tuple[str, str]]) -> Iterator[Callable[[str], Any]]:
    """Ranges of all ops inside the block; gives what makes a range of one's own."""
    torch: Any = import_module("torch")
    with ExitStack() as stack:
        try:
            stack.enter_context(torch.autograd.profiler.emit_nvtx(record_shapes=True))
        except (RuntimeError, AssertionError) as error:  # how torch says that it lacks CUDA, or a GPU
            reason = str(error).splitlines()[0]
            notes.append(("no_nvtx_ops", f"nsys saw no ops: this torch cannot mark them here ({reason})"))
        yield _marker(notes)


def _marker(notes: list[tuple[str, str]]) -> Callable[[str], Any]:
    """What makes an NVTX range: torch's own, else that of the package `nvtx`, else nothing."""
    try:
        nvtx: Any = import_module("torch.cuda.nvtx")
        nvtx.mark("tracekit")
    except RuntimeError:  # this torch was built without
        with suppress(ImportError):
            return import_module("nvtx").annotate  # type: ignore[no-any-return]
        notes.append(("no_nvtx_steps", "nsys saw no steps: this torch lacks NVTX; `pip install nvtx` helps"))
        return lambda _name: ExitStack()
    return nvtx.range  # type: ignore[no-any-return]


if __name__ == "__main__":
    sys.exit(main())
