"""Record one kernel to check that the GPU can be profiled, and explain the messages of CUPTI.

CUPTI is NVIDIA's library behind torch.profiler. Kineto writes why it records no device activity to standard
error only, and goes on without it.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
from contextlib import suppress
from dataclasses import dataclass
from importlib import import_module
from typing import Any

from tracekit.runs.meta import Diagnostic, Level

CODE = "cupti"
"""Code of the diagnostics."""
_ERROR = re.compile(r"CUPTI_ERROR_[A-Z0-9_]+")
_ADVICE = "If you see "  # Kineto names one error as an example after each failure
_FAILED = re.compile(
    r"CUPTI initialization failed|Failed to load CUPTI|libcupti\S* ?: cannot open shared object"
)
_ORIGIN = re.compile(r"^.*?\b[\w.]+\.(?:cpp|cc|h):\d+\]\s*")
"""Level, time, process and source line before a message of Kineto."""

_PERMIT = (
    "the driver lets only administrators profile: run as root, set NVreg_RestrictProfilingToAdminUsers=0 for "
    "the nvidia kernel module, or start the container with --cap-add=SYS_ADMIN"
)
_OTHER = (
    "another profiler is attached: run without nsys, ncu, cuda-gdb and compute-sanitizer, and unset "
    "CUDA_INJECTION64_PATH and NVTX_INJECTION64_PATH"
)
_LIBRARY = (
    "the CUPTI that was loaded does not fit the driver: update the driver, and remove CUDA folders from "
    "LD_LIBRARY_PATH so that torch loads its own CUPTI"
)
_VIRTUAL = "the hypervisor does not let this virtual GPU be profiled: enable profiling for the vGPU there"
CAUSES = {
    "CUPTI_ERROR_INSUFFICIENT_PRIVILEGES": _PERMIT,
    "CUPTI_ERROR_MULTIPLE_SUBSCRIBERS_NOT_SUPPORTED": _OTHER,
    "CUPTI_ERROR_DISABLED": _OTHER,
    "CUPTI_ERROR_OLD_PROFILER_API_INITIALIZED": _OTHER,
    "CUPTI_ERROR_HARDWARE_BUSY": _OTHER,
    "CUPTI_ERROR_NOT_INITIALIZED": _LIBRARY,
    "CUPTI_ERROR_INVALID_DEVICE": _LIBRARY,
    "CUPTI_ERROR_VIRTUALIZED_DEVICE_NOT_SUPPORTED": _VIRTUAL,
    "CUPTI_ERROR_VIRTUALIZED_DEVICE_INSUFFICIENT_PRIVILEGES": _VIRTUAL,
    "CUPTI_ERROR_CONFIDENTIAL_COMPUTING_NOT_SUPPORTED": (
        "the GPU is in confidential computing mode, or driver and CUPTI do not fit; see `nvidia-smi -q`"
    ),
    "CUPTI_ERROR_CMP_DEVICE_NOT_SUPPORTED": "CUPTI does not support mining processors",
    "CUPTI_ERROR_OUT_OF_MEMORY": "no memory is left for the profiler: use fewer steps or a smaller batch",
}
"""Likely cause and remedy by error; others are reported without."""
UNEXPLAINED = "device activity may be missing; see `tracekit doctor`"


def diagnostics(text: str) -> list[Diagnostic]:
    """Return each of CUPTI's messages in the output of a program once, with its likely cause.

    Example:
        >>> [diagnostic] = diagnostics("init.cpp:155] it failed with error CUPTI_ERROR_HARDWARE_BUSY (26)")
        >>> diagnostic.message[:60]
        'it failed with error CUPTI_ERROR_HARDWARE_BUSY (26): another'
    """
    lines = list(dict.fromkeys(_ORIGIN.sub("", line.strip()) for line in text.splitlines()))
    # the last message of each error
    named = ((_ERROR.search(line), line) for line in lines if _ADVICE not in line)
    messages_by_error = {error[0]: line for error, line in named if error}
    if not messages_by_error:  # these lines say less than the named errors, which precede them
        messages_by_error = {line: line for line in lines if _FAILED.search(line)}
    messages = (f"{line}: {CAUSES.get(error, UNEXPLAINED)}" for error, line in messages_by_error.items())
    return [Diagnostic(Level.WARN, CODE, message) for message in messages]


COMMAND = (sys.executable, "-P", "-m", "tracekit.recording.cupti")
LIMIT_S = 120.0
"""Importing torch and initializing CUDA take seconds, on machines with many GPUs up to a minute."""
_GRACE_S = 5.0


@dataclass(frozen=True)
class Probe:
    """The kernel that was recorded, and what was wrong, with its cause if known; empty if nothing."""

    kernel: str
    problem: str


def probe(*, limit_s: float = LIMIT_S) -> Probe:
    """Record one kernel with torch.profiler in a child process; never raises.

    Whether a GPU can be profiled depends on the driver, the container, the user, other profilers and the
    libraries that are loaded, so it is tried. CUPTI and drivers can end or block a process.
    """
    try:
        process = subprocess.Popen(  # noqa: S603 (this module)
            COMMAND,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            errors="replace",
        )
    except OSError as error:
        return Probe("", f"no process could be started: {error.strerror}")
    try:
        output, log = process.communicate(timeout=limit_s)
    except subprocess.TimeoutExpired:
        process.kill()
        with suppress(subprocess.TimeoutExpired):  # it may be blocked in the driver
            process.wait(_GRACE_S)
        return Probe("", f"recording one kernel did not end within {limit_s:g} s")
    finally:
        for stream in filter(None, (process.stdout, process.stderr)):
            stream.close()
    return _explain(process.returncode, output, log)


def _explain(code: int, output: str, log: str) -> Probe:
    kernels: list[str] = []
    with suppress(ValueError):
        kernels = json.loads(output.strip().rpartition("\n")[2] or "[]")
    problems = [diagnostic.message for diagnostic in diagnostics(log)]
    if code:
        lines = [line.strip() for line in log.splitlines() if line.strip()]
        errors = [line for line in lines if "Error" in line] or lines or ["no message"]
        problems.append(f"recording one kernel failed with exit code {code}: {errors[-1]}")
    elif not kernels and not problems:
        problems.append("torch.profiler recorded no kernel, and gave no reason")
    return Probe(kernels[0] if kernels else "", "; ".join(problems))


def main() -> int:
    """Record one kernel on the current GPU and print the names of what was recorded, as JSON."""
    import torch
    from torch.profiler import ProfilerActivity, profile

    kinds: Any = import_module("torch.autograd").DeviceType
    value = torch.ones(1, device="cuda")
    torch.cuda.synchronize()
    with profile(activities=[ProfilerActivity.CPU, ProfilerActivity.CUDA]) as profiler:
        value.add_(1)
        torch.cuda.synchronize()
    names = [event.name for event in profiler.events() if event.device_type == kinds.CUDA]
    print(json.dumps(names))  # noqa: T201
    return 0


if __name__ == "__main__":
    sys.exit(main())
