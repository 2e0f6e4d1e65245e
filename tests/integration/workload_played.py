"""Plays the process of a workload without torch; its first argument says how it ends."""

from __future__ import annotations

import shutil
import signal
import sys
import time
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tracekit.collectors.protocol import MEASURE, PROFILE, Reporter, serve_request

from tracekit.errors import CollectionError, UnusableInputError
from tracekit.ingest.write import Sample

if TYPE_CHECKING:
    from tracekit.recording.collector import Request

HOW = sys.argv[1]
RECORDED = Path(__file__).parents[2] / "samples" / "recorded" / "mnist_cnn-train-cpu" / "trace.json.gz"
COMPILATION = {
    "first_call_ns": 9_000,
    "graphs": 2,
    "cached": 0,
    "breaks": [],
    "compilations": [],
}


def record(request: Request, directory: Path, reporter: Reporter) -> dict[str, Any]:
    """The result of a workload whose steps took as long as they have numbers."""
    reporter.send("progress", part=MEASURE, done=0, total=request.steps)
    reporter.send("progress", part=MEASURE, done=1, total=request.steps)
    if HOW == "runs on":
        signal.pause()
    if HOW == "has no gpu":
        raise UnusableInputError("torch can use no GPU", hint="use --device cpu")
    if HOW == "lacks memory":
        error = MemoryError("you tried to allocate 1000 bytes")
        raise CollectionError("it ran out of memory", hint="lower --batch-size") from error
    if not request.no_profile:
        shutil.copy(RECORDED, directory)
        reporter.send("progress", part=PROFILE, done=0, total=request.steps)
    peak = Sample(time.time_ns(), "process", None, "host_peak_bytes", "bytes", 60e6)
    return {
        "trace": RECORDED.name,
        "version": "2.0",
        "options": {},
        "compilation": COMPILATION if HOW == "compiles" else None,
        "step_ns": [*range(1, request.steps + 1)],
        "warmup_ns": [9_000] * request.warmup,
        "clock": "perf_counter",
        "samples": [asdict(peak)],
        "notes": [],
        "batch_size": request.batch_size,
        "device": "cpu",
        "threads": 1,
        "environment": {"python": "3", "torch": "2.0"},
    }


if __name__ == "__main__":
    sys.exit(serve_request(record))
