"""Process that builds the C++ program and exports its input; follows `tracekit.collectors.protocol`."""

from __future__ import annotations

import signal
import sys
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tracekit.recording.collector import Request

from ..compilation import MIN_WARMUP
from ..protocol import receive_request, serve
from ..workload_process import built_workload, describe_process, resolve_device
from .build import ensure_built

if TYPE_CHECKING:
    from ..protocol import Reporter


def main() -> int:
    """Serve one request; returns the exit code."""
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))  # a build cleans up
    reporter, content = receive_request()
    request, directory = Request(**content["request"]), Path(content["directory"])
    return serve(reporter, lambda: _prepare(request, directory, reporter))


def _prepare(request: Request, directory: Path, reporter: Reporter) -> dict[str, Any]:
    reporter.send("progress", part="start", done=0, total=1)
    device = resolve_device(request.device)
    program = ensure_built(on_build=lambda: reporter.send("progress", part="build", done=0, total=1))
    reporter.send("progress", part="export", done=0, total=1)
    import torch

    from .export import export

    warm = replace(request, warmup=max(request.warmup, MIN_WARMUP))
    with built_workload(request, device=device) as workload:
        job = export(workload, warm, device=device, folder=directory)
    return {
        "program": str(program),
        "job": str(job),
        "version": str(torch.__version__),
        **describe_process(device),
    }


if __name__ == "__main__":
    sys.exit(main())
