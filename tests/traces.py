"""Small Kineto traces for tests of the reader, and ways to write and read them."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from samples.simulator import Program
from tracekit.analysis import analyze
from tracekit.ingest.importer import import_traces
from tracekit.schema import C

if TYPE_CHECKING:
    from pathlib import Path

    import pandas as pd

    from tracekit.runs.run import Run
    from tracekit.runs.store import Store

COUNT = 20


def kernel_event(number: int, **more: Any) -> dict[str, Any]:
    return {
        "ph": "X",
        "cat": "kernel",
        "name": f"k{number}",
        "pid": 0,
        "tid": 7,
        "ts": 1_000_000.5 + 10 * number,
        "dur": 5.25,
        "args": {"device": 0, "stream": 7, "correlation": number, "grid": [1, 2, 3], "block": [32, 1, 1]},
        **more,
    }


def kernels_text(count: int = COUNT) -> str:
    """A trace of so many kernels, 5.25 µs each, one every 10 µs."""
    return json.dumps({"traceEvents": [kernel_event(i) for i in range(count)], "traceName": "x"})


def busy_program(*, rank: int = 0, world_size: int = 1) -> Program:
    """Two training steps with everything a trace can hold."""
    program = Program(rank=rank, world_size=world_size)
    for _ in range(2):
        with program.step():
            with program.annotation("enumerate(DataLoader)#_SingleProcessDataLoaderIter.__next__"):
                program.wait(3_000)
            with program.op("aten::to", shapes=[[8, 3]], dtypes=["float"]):
                program.copy("H2D", 96)
            with program.op("aten::linear", shapes=[[8, 3], [4, 3]]), program.op("aten::addmm"):
                program.allocate(128)
                program.kernel("gemm", 9_000, grid=(4, 1, 1))
            backward = "autograd::engine::evaluate_function: AddmmBackward0"
            with program.thread(2000), program.op(backward), program.op("aten::mm"):
                program.kernel("gemm", 12_000, stream=9)
            with program.annotation("Optimizer.step#SGD.step"), program.op("aten::add_"):
                program.graph([("fused", 2_000), ("fused", 3_000)])
            with program.annotation("Optimizer.zero_grad#SGD.zero_grad"):
                program.memset(128, 1_000)
                program.allocate(-128)
        program.synchronize()
    return program


def imported(store: Store, path: Path) -> Run:
    (run,) = import_traces(store, [path])
    return run


def table(run: Run, name: str) -> pd.DataFrame:
    """A table with its text as plain strings, to compare runs by content."""
    frame = run.table(name)
    text = frame.select_dtypes("category").columns
    return frame.astype(dict.fromkeys(text, "str"))


def durations(run: Run) -> list[int]:
    """Durations of the kernels, by start."""
    frame = run.table("device_intervals", columns=[C.KIND, C.DUR_NS])
    return frame.loc[frame[C.KIND] == "kernel", C.DUR_NS].tolist()


def event(
    category: str, name: str, start: float, duration: float, pid: Any = 9, **args: Any
) -> dict[str, Any]:
    """An event of a category, with its arguments."""
    times = {"ts": start, "dur": duration}
    return {"ph": "X", "cat": category, "name": name, "pid": pid, "tid": 9, **times, "args": args}


def launch(number: int, start: float, pid: Any) -> dict[str, Any]:
    """A call that launches a kernel with this correlation id."""
    return event("cuda_runtime", "cudaLaunchKernel", start, 4, pid, correlation=number)


def run_of(store: Store, tmp_path: Path, events: list[dict[str, Any]], **top: Any) -> Run:
    """Import a trace of these events."""
    path = tmp_path / "trace.json"
    path.write_text(json.dumps({**top, "traceEvents": events}))
    return imported(store, path)


def notes(run: Run) -> dict[str, str]:
    """Messages of the warnings and errors of a run, by code."""
    return {note.code: note.message for note in run.meta.diagnostics if note.level != "info"}


def verdict(run: Run) -> tuple[str, str]:
    """The verdict of `integrity`, and its reason."""
    row = analyze(run, "integrity").tables["verdict"].iloc[0]
    return row["verdict"], row["reason"]
