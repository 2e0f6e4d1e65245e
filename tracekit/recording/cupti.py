"""Find and explain the messages of CUPTI, NVIDIA's library behind torch.profiler, in a program's output.

Kineto writes why it records no device activity to standard error only, and goes on without it.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from tracekit.runs.meta import Diagnostic, Level

CODE = "cupti"
"""Code of the diagnostics."""
_ERROR = re.compile(r"CUPTI_ERROR_[A-Z0-9_]+")
_ADVICE = "If you see "
"""Kineto names one error as an example after each failure."""
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
        >>> [found] = diagnostics("init.cpp:155] it failed with error CUPTI_ERROR_HARDWARE_BUSY (26)")
        >>> found.message[:60]
        'it failed with error CUPTI_ERROR_HARDWARE_BUSY (26): another'
    """
    lines = list(dict.fromkeys(_ORIGIN.sub("", line.strip()) for line in text.splitlines()))
    named = dict(_named(lines))
    if not named:  # says less than the errors before it
        named = {line: line for line in lines if _FAILED.search(line)}
    messages = (f"{line}: {CAUSES.get(error, UNEXPLAINED)}" for error, line in named.items())
    return [Diagnostic(Level.WARN, CODE, message) for message in messages]


def _named(lines: list[str]) -> Iterator[tuple[str, str]]:
    """Return the last message of each error."""
    for line in lines:
        error = _ERROR.search(line)
        if error and _ADVICE not in line:
            yield error[0], line
