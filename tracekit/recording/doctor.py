"""Check what can be recorded on this machine."""

from __future__ import annotations

import os
import platform
import shutil
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tracekit import registry
from tracekit.errors import MissingDependencyError, TracekitError
from tracekit.runs import environment, nvml
from tracekit.runs.store import Store
from tracekit.runs.toolchain import HOW_TO_INSTALL, Toolchain, find_toolchain

if TYPE_CHECKING:
    from tracekit.storage import Place

DRIVER_PARAMETERS = Path("/proc/driver/nvidia/params")
NEEDS_ADMIN = "RmProfilingAdminOnly: 1"
LOW_DISK_BYTES = 5 << 30


class Status(StrEnum):
    """Outcome of a check."""

    OK = "ok"
    WARN = "warn"
    MISSING = "missing"


@dataclass(frozen=True)
class Check:
    """Result of a check; `next_step` is empty if there is nothing to do."""

    name: str
    status: Status
    detail: str
    next_step: str = ""


def examine(store: Place) -> list[Check]:
    """Run all checks; never raises, whatever is missing.

    Args:
        store: Where runs would be written.
    """
    torch, reason = _import_torch()
    return [
        Check("python", Status.OK, f"{platform.python_version()} ({platform.system()})"),
        _torch(torch, reason),
        _cuda(torch),
        _profiler(torch),
        _cupti(DRIVER_PARAMETERS),
        *_nvml(),
        _nsys(),
        _libtorch(find_toolchain()),
        _scanner(),
        *_store(store),
        *_plugins(),
    ]


def can_collect(checks: list[Check]) -> bool:
    """Tell whether a workload can be profiled with torch."""
    return all(check.status is not Status.MISSING for check in checks if check.name in {"torch", "profiler"})


def _import_torch() -> tuple[Any, str]:
    try:
        import torch
    except Exception as error:  # a broken build can raise anything
        return None, f"{type(error).__name__}: {error}".splitlines()[0]
    return torch, ""


def _torch(torch: Any, reason: str) -> Check:
    if torch is None:
        return Check("torch", Status.MISSING, reason, "pip install 'tracekit-torch[torch]'")
    built = f"CUDA {torch.version.cuda}" if torch.version.cuda else "CPU only"
    return Check("torch", Status.OK, f"{torch.__version__}, built for {built}")


def _cuda(torch: Any) -> Check:
    if torch is None:
        return Check("cuda", Status.MISSING, "unknown without torch", "install torch first")
    if torch.version.cuda is None:
        step = "install a CUDA build of torch for GPU profiles; CPU profiles work"
        return Check("cuda", Status.MISSING, "this torch was built without CUDA", step)
    if not torch.cuda.is_available():
        step = "check the driver with nvidia-smi, and CUDA_VISIBLE_DEVICES; CPU profiles work"
        return Check("cuda", Status.MISSING, "no usable GPU", step)
    count = torch.cuda.device_count()
    names = ", ".join(torch.cuda.get_device_name(index) for index in range(count))
    return Check("cuda", Status.OK, f"{count} GPU{'s' * (count != 1)}: {names}")


def _profiler(torch: Any) -> Check:
    if torch is None:
        return Check("profiler", Status.MISSING, "unknown without torch", "install torch first")
    try:
        available = torch.profiler.kineto_available()
        recorded = sorted(activity.name for activity in torch.profiler.supported_activities())
    except Exception as error:  # custom builds of torch may lack parts of the profiler
        return Check("profiler", Status.MISSING, f"{type(error).__name__}: {error}", "reinstall torch")
    if not available:
        return Check("profiler", Status.MISSING, "torch lacks Kineto", "install an official build")
    if torch.cuda.is_available() and "CUDA" not in recorded:
        return Check("profiler", Status.WARN, "cannot record GPU activity", "install an official CUDA build")
    return Check("profiler", Status.OK, f"torch.profiler records {', '.join(recorded)}")


def _cupti(parameters: Path) -> Check:
    try:
        text = parameters.read_text(errors="replace")
    except OSError:
        return Check("cupti", Status.MISSING, "no NVIDIA driver loaded", "use a machine with an NVIDIA GPU")
    if NEEDS_ADMIN in text and os.geteuid() != 0:
        return Check(
            "cupti",
            Status.WARN,
            "the driver restricts GPU performance counters to administrators",
            "set NVreg_RestrictProfilingToAdminUsers=0 for the nvidia kernel module, or run as root",
        )
    return Check("cupti", Status.OK, "the driver allows profiling")


def _nvml() -> list[Check]:
    with environment.nvml() as library:
        if library is None:
            step = "install the NVIDIA driver for GPU clocks, power and PCIe metrics"
            return [Check("nvml", Status.MISSING, "NVML not available", step)]
        try:
            count = library.nvmlDeviceGetCount()
            driver = environment.nvml_driver()
        except library.NVMLError as error:
            return [Check("nvml", Status.MISSING, str(error), "check the driver with nvidia-smi")]
        found = Check("nvml", Status.OK, f"driver {driver}, {count} GPU{'s' * (count != 1)}")
        return [found, *(_gpu(library, index) for index in range(count))]


def _gpu(library: Any, index: int) -> Check:
    """Check which metrics NVML provides for a GPU."""
    name = f"gpu {index}"
    try:
        handle = library.nvmlDeviceGetHandleByIndex(index)
        model = str(library.nvmlDeviceGetName(handle))
        refused = nvml.unsupported(library, handle)
    except library.NVMLError as error:
        return Check(name, Status.WARN, f"NVML: {error}", "check it with nvidia-smi; it may need a reset")
    total = sum(len(one.metrics) for one in nvml.QUESTIONS)
    supported = f"{total - len(refused)} of {total} NVML metrics"
    without = f", without {', '.join(refused)}" if refused else ""
    return Check(name, Status.OK, f"{model}: {supported}{without}")


def _nsys() -> Check:
    try:
        check: Check = registry.load(registry.COLLECTORS, "nsys")().check()
    except TracekitError as error:
        return Check("nsys", Status.WARN, error.message, error.hint)
    return check


def _libtorch(tools: Toolchain) -> Check:
    """Check that the C++ program of `--level libtorch` can be built."""
    if missing := " and no ".join(tools.missing()):
        return Check("libtorch", Status.MISSING, f"--level libtorch: no {missing} found", HOW_TO_INSTALL)
    return Check("libtorch", Status.OK, f"{tools.cmake} and {tools.compiler} can build --level libtorch")


def _scanner() -> Check:
    """Check that imports can use the fast decoder; without it they are only slower."""
    try:
        from tracekit.ingest.kineto.scan import native

        code = native.place()
    except ModuleNotFoundError:
        return Check("scanner", Status.MISSING, _NO_NUMBA, _FAST)
    except Exception as error:  # LLVM can fail to load in many ways
        return Check("scanner", Status.WARN, _slower(error), "reinstall llvmlite and numba")
    if native.is_compiled():
        return Check("scanner", Status.OK, f"compiled: {code}")
    if not native.can_be_kept():
        step = "set XDG_CACHE_HOME to a writable folder"
        return Check("scanner", Status.WARN, f"{code.parent} is not writable; imports are slower", step)
    step = "run `tracekit doctor --compile`, or let the first large import compile it"
    return Check("scanner", Status.OK, "the fast trace decoder is not compiled yet", step)


_NO_NUMBA = "Numba is not installed: importing large traces takes twice the CPU time"
_FAST = "pip install 'tracekit-torch[fast]'"


def _slower(error: Exception) -> str:
    return f"imports are slower without the fast trace decoder: {type(error).__name__}: {error}"


def compile_scanner() -> None:
    """Compile the fast trace decoder, unless it is compiled.

    Raises:
        TracekitError: It cannot be compiled on this machine.
    """
    try:
        from tracekit.ingest.kineto.scan import native

        native.load()
    except ModuleNotFoundError as error:
        raise MissingDependencyError(_NO_NUMBA, hint=_FAST) from error
    except Exception as error:
        raise TracekitError(_slower(error), hint="reinstall llvmlite and numba") from error


def _store(place: Place) -> list[Check]:
    """Check the disk of the store, and access to a store on object storage."""
    store = Store(place)
    if isinstance(place, Path):
        return [_disk(place)]
    try:
        count = len(store.runs())
    except TracekitError as error:
        return [Check("store", Status.MISSING, error.message, error.hint), _disk(store.beside)]
    return [Check("store", Status.OK, f"{place} has {count} run{'s' * (count != 1)}"), _disk(store.beside)]


def _disk(store: Path) -> Check:
    place = next(parent for parent in (store.absolute(), *store.absolute().parents) if parent.is_dir())
    try:
        free = shutil.disk_usage(place).free
    except OSError as error:
        return Check("disk", Status.WARN, f"unknown: {error.strerror}", "choose another store with --store")
    writable = os.access(place, os.W_OK)
    detail = f"{free / 2**30:.1f} GiB free at the store"
    if not writable:
        return Check("disk", Status.MISSING, "the store is not writable", "choose another with --store")
    if free < LOW_DISK_BYTES:
        return Check("disk", Status.WARN, detail, "free disk space, or choose another store with --store")
    return Check("disk", Status.OK, detail)


def _plugins() -> list[Check]:
    broken = registry.broken()
    if not broken:
        count = sum(len(registry.names(group)) for group in registry.GROUPS)
        return [Check("plug-ins", Status.OK, f"{count} loaded")]
    groups: dict[tuple[str, str, str], list[str]] = {}
    for item in broken:
        groups.setdefault((item.group, item.reason, item.hint), []).append(item.name)
    return [
        Check(
            "plug-ins", Status.WARN, f"{group} {', '.join(names)}: {reason}", hint or "reinstall its package"
        )
        for (group, reason, hint), names in groups.items()
    ]
