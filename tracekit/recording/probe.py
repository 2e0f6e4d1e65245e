"""Record one kernel with torch.profiler, as `tracekit doctor` does in a process of its own.

Whether a GPU can be profiled depends on the driver, the container, the user, other profilers and the
libraries that are loaded, so it is tried. CUPTI and drivers can end or block a process.
"""

from __future__ import annotations

import json
import subprocess
import sys
from contextlib import suppress
from dataclasses import dataclass
from importlib import import_module
from typing import Any

from tracekit.recording import cupti

_COMMAND = (sys.executable, "-P", "-m", "tracekit.recording.probe")
LIMIT_S = 120.0
"""Importing torch and initializing CUDA take seconds, on machines with many GPUs up to a minute."""
_GRACE_S = 5.0


@dataclass(frozen=True)
class Probe:
    """Result of recording one kernel.

    Attributes:
        kernel: Name of the recorded kernel; empty if none was recorded.
        problem: What was wrong, with its cause if known; empty if nothing was.
    """

    kernel: str
    problem: str


def probe(*, limit_s: float = LIMIT_S) -> Probe:
    """Record one kernel in a child process; never raises.

    Args:
        limit_s: Seconds after which the child is ended.
    """
    try:
        process = subprocess.Popen(  # noqa: S603 (this module)
            _COMMAND,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            errors="replace",
        )
    except OSError as error:
        return Probe("", f"no process could be started: {error.strerror}")
    try:
        said, log = process.communicate(timeout=limit_s)
    except subprocess.TimeoutExpired:
        process.kill()
        with suppress(subprocess.TimeoutExpired):  # it may be blocked in the driver
            process.wait(_GRACE_S)
        return Probe("", f"recording one kernel did not end within {limit_s:g} s")
    finally:
        for stream in filter(None, (process.stdout, process.stderr)):
            stream.close()
    return _result(process.returncode, said, log)


def _result(code: int, said: str, log: str) -> Probe:
    kernels: list[str] = []
    with suppress(ValueError):
        kernels = json.loads(said.strip().rpartition("\n")[2] or "[]")
    explained = [one.message for one in cupti.diagnostics(log)]
    if code:
        lines = [line.strip() for line in log.splitlines() if line.strip()]
        error = next(
            (line for line in reversed(lines) if "Error" in line), lines[-1] if lines else "no message"
        )
        explained.append(f"recording one kernel failed with exit code {code}: {error}")
    elif not kernels and not explained:
        explained.append("torch.profiler recorded no kernel, and gave no reason")
    return Probe(kernels[0] if kernels else "", "; ".join(explained))


def main() -> int:
    """Record one kernel on the current GPU and print the names of what was recorded, as JSON."""
    import torch
    from torch.profiler import ProfilerActivity, profile

    kinds: Any = import_module("torch.autograd").DeviceType
    value = torch.ones(1, device="cuda")
    torch.cuda.synchronize()
    with profile(activities=[ProfilerActivity.CPU, ProfilerActivity.CUDA]) as recorded:
        value.add_(1)
        torch.cuda.synchronize()
    print(json.dumps([one.name for one in recorded.events() if one.device_type == kinds.CUDA]))  # noqa: T201
    return 0


if __name__ == "__main__":
    sys.exit(main())
