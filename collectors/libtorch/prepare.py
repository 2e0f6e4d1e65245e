"""The process before the one that is measured: builds the C++ program, and exports what it will run.

Reads a request and tells its progress and result as the measured process of other levels does.
"""

from __future__ import annotations

import signal
import sys
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tracekit.recording.collector import Request

from ..compilation import LEAST
from ..measured import built, found, surroundings
from ..protocol import asked, serve
from .build import built as built_program

if TYPE_CHECKING:
    from ..protocol import Reporter


def main() -> int:
    """Serve one request; returns the exit code."""
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))  # a build then cleans up
    reporter, content = asked()
    request, directory = Request(**content["request"]), Path(content["directory"])
    return serve(reporter, lambda: _prepare(request, directory, reporter))


def _prepare(request: Request, directory: Path, reporter: Reporter) -> dict[str, Any]:
    reporter.tell("progress", part="start", done=0, total=1)
    device = found(request.device)
    program = built_program(building=lambda: reporter.tell("progress", part="build", done=0, total=1))
    reporter.tell("progress", part="export", done=0, total=1)
    import torch

    from .export import export

    warm = replace(request, warmup=max(request.warmup, LEAST))
    with built(request, device=device) as workload:
        job = export(workload, warm, device=device, folder=directory)
    return {
        "program": str(program),
        "job": str(job),
        "version": str(torch.__version__),
        **surroundings(device),
    }


if __name__ == "__main__":
    sys.exit(main())
