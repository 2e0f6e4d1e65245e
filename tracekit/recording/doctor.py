"""Check what can be recorded on this machine."""

from __future__ import annotations

import os
import platform
import shutil
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Any

from tracekit import registry
from tracekit.errors import MissingDependencyError, TracekitError
from tracekit.recording import cupti
from tracekit.runs import environment, nvml
from tracekit.runs.store import Store
from tracekit.runs.toolchain import HOW_TO_INSTALL, Toolchain, find_toolchain
from tracekit.storage import Place

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
    """Run all checks, also of where runs would be stored; never raises, whatever is missing."""
    torch, reason = _import_torch()
    return [
        Check("python", Status.OK, f"{platform.python_version()} ({platform.system()})"),
        *_torch(torch, reason),
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
    except ModuleNotFoundError as error:
        return None, NO_TORCH if error.name == "torch" else str(error)
    except Exception as error:  # a broken build can raise anything
        return None, f"{type(error).__name__}: {error}".splitlines()[0]
    return torch, ""


def _torch(torch: Any, reason: str) -> list[Check]:
    """Check torch and what depends on it; without torch, one line says so."""
    if torch is None:
        return [Check("torch", Status.MISSING, reason, "pip install 'tracekit-torch[torch]'")]
    built = environment.gpu_build(torch) or "CPU only"
    check = Check("torch", Status.OK, f"{torch.__version__}, built for {built}")
    return [check, _gpu_use(torch), _profiler(torch), _kernel(torch)]


NO_TORCH = "not installed: nothing can be recorded; importing and analyzing work"


def _gpu_use(torch: Any) -> Check:
    """Check that torch can use a GPU, of CUDA or of ROCm, where it has the same name."""
    if environment.without_gpu_support(torch):
        step = "install a CUDA or ROCm build of torch for GPU profiles; CPU profiles work"
        return Check("cuda", Status.MISSING, f"this torch was built without CUDA{_unused_gpus()}", step)
    if problem := environment.gpu_problem(torch):
        detail = f"torch can use no GPU: {problem}{_unused_gpus()}"
        step = "check the driver with nvidia-smi or rocm-smi, and CUDA_VISIBLE_DEVICES; CPU profiles work"
        return Check("cuda", Status.MISSING, detail, step)
    try:
        count = torch.cuda.device_count()
        names = ", ".join(torch.cuda.get_device_name(index) for index in range(count))
    except Exception as error:  # a device may be lost
        return Check("cuda", Status.WARN, environment.first_line(error), "check the GPUs with nvidia-smi")
    return Check("cuda", Status.OK, f"{count} GPU{'s' * (count != 1)}: {names}")


def _unused_gpus() -> str:
    count = environment.machine_gpus()
    return f", although the machine has {count} GPU{'s' * (count != 1)}" if count else ""


def _profiler(torch: Any) -> Check:
    try:
        available = torch.profiler.kineto_available()
        recorded = sorted(activity.name for activity in torch.profiler.supported_activities())
    except Exception as error:  # custom builds of torch may lack parts of the profiler
        return Check("profiler", Status.MISSING, f"{type(error).__name__}: {error}", "reinstall torch")
    if not available:
        return Check("profiler", Status.MISSING, "torch lacks Kineto", "install an official build")
    if not environment.gpu_problem(torch) and "CUDA" not in recorded:
        message = "install an official CUDA or ROCm build"
        return Check("profiler", Status.WARN, "cannot record GPU activity", message)
    return Check("profiler", Status.OK, f"torch.profiler records {', '.join(recorded)}")


def _kernel(torch: Any, *, limit_s: float = cupti.LIMIT_S) -> Check:
    """Check that a kernel can be recorded by recording one, in a process of its own."""
    if environment.gpu_problem(torch):
        return Check("cupti", Status.MISSING, "not tried without a usable GPU", "see the check `cuda`")
    probe = cupti.probe(limit_s=limit_s)
    if probe.problem:
        detail = f"one kernel was recorded, but {probe.problem}" if probe.kernel else probe.problem
        step = "`tracekit collect` will miss GPU activity until this is solved"
        return Check("cupti", Status.WARN, detail, step)
    return Check("cupti", Status.OK, f"one kernel was recorded: {probe.kernel}")


def _nvml() -> list[Check]:
    with environment.nvml() as library:
        if library is None:
            step = "install the NVIDIA driver for GPU clocks, power and PCIe metrics"
            return [Check("nvml", Status.MISSING, "NVML not available", step)]
        closed: dict[int, Exception] = {}
        handles = environment.nvml_handles(library, closed)
        count = len(handles)
        check = Check(
            "nvml", Status.OK, f"driver {environment.nvml_driver()}, {count} GPU{'s' * (count != 1)}"
        )
        if not handles and not closed:
            check = Check("nvml", Status.WARN, "NVML lists no GPU", "check the driver with nvidia-smi")
        instances = {
            f"gpu {index} instance {number}": instance
            for index, handle in handles.items()
            for number, instance in enumerate(environment.mig_handles(library, handle))
        }
        gpus = {f"gpu {index}": handle for index, handle in handles.items()} | instances
        step = "check it with nvidia-smi; it may need a reset, or be of another job"
        checks = [check, *(_gpu(library, name, handle) for name, handle in gpus.items())]
        for index, error in closed.items():
            detail = f"NVML cannot open it: {environment.first_line(error)}"
            checks.append(Check(f"gpu {index}", Status.WARN, detail, step))
        return checks


def _gpu(library: Any, name: str, handle: Any) -> Check:
    """Check which metrics NVML provides for a GPU or MIG instance."""
    model, refused = environment.nvml_name(library, handle), nvml.unsupported_metrics(library, handle)
    total = sum(len(question.metrics) for question in nvml.QUERIES)
    if len(refused) == total:
        return Check(name, Status.WARN, f"{model}: no NVML metric", "check it with nvidia-smi")
    supported = f"{total - len(refused)} of {total} NVML metrics"
    without = f", without {', '.join(refused)}" if refused else ""
    return Check(name, Status.OK, f"{model or 'GPU of unknown name'}: {supported}{without}")


def _nsys() -> Check:
    try:
        check: Check = registry.load(registry.COLLECTORS, "nsys")().check()
    except TracekitError as error:
        return Check("nsys", Status.WARN, error.message, error.hint)
    return check


def _libtorch(tools: Toolchain) -> Check:
    """Check that the C++ program of `--level libtorch` can be built."""
    if missing := " and no ".join(tools.missing_tools()):
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
        check = Check("store", Status.OK, f"{place} has {count} run{'s' * (count != 1)}")
    except TracekitError as error:
        check = Check("store", Status.MISSING, error.message, error.hint)
    return [check, _disk(store.local_folder)]


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
    broken = registry.find_broken()
    groups: dict[tuple[str, str, str], list[str]] = {}
    extras: dict[str, str] = {}
    for item in broken:
        if item.extra:
            extras[item.extra] = item.hint
        else:
            groups.setdefault((item.group, item.reason, item.hint), []).append(item.name)
    count = sum(len(registry.names(group)) for group in registry.GROUPS) - len(broken)
    missing = [
        Check(extra, Status.MISSING, f"not installed: {_BUYS.get(extra, 'plug-ins need it')}", hint)
        for extra, hint in extras.items()
    ]
    faulty = [
        Check(
            "plug-ins", Status.WARN, f"{group} {', '.join(names)}: {reason}", hint or "reinstall its package"
        )
        for (group, reason, hint), names in groups.items()
    ]
    return missing + (faulty or [Check("plug-ins", Status.OK, f"{count} loaded")])


_BUYS = {"dashboard": "no `tracekit dashboard` and `tracekit report`"}  # what is missing without an extra
