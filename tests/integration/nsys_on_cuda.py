"""The measured processes of the nsys collector as on a GPU: only the workload runs on the CPU."""

from __future__ import annotations

import runpy
import sys
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import torch
from tracekit.collectors import workload_process
from tracekit.collectors.nsys import measured
from tracekit.collectors.protocol import serve_request

if TYPE_CHECKING:
    from collections.abc import Iterator

RUNTIME = runpy.run_path(str(Path(__file__).parents[1] / "nsys_runtime.py"))
build_workload = measured.build_workload


@contextmanager
def built_on_cpu(request: Any, *, device: str) -> Iterator[SimpleNamespace]:
    """The workload, whose steps each launch a kernel."""
    assert device == "cuda"
    with build_workload(request, device="cpu") as program:

        def step() -> None:
            RUNTIME["report"]("kernel gemm")
            program.step()

        yield SimpleNamespace(step=step)


if __name__ == "__main__":
    RUNTIME["use_in"](torch)
    torch.version.cuda = "12.8"
    measured.build_workload = workload_process.build_workload = built_on_cpu
    sys.exit(measured.main() if len(sys.argv) > 1 else serve_request(workload_process.record))
