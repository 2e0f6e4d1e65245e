"""Versions and hardware of a run, without environment variables, host names, user names and paths."""

from __future__ import annotations

import os
import platform
import sys
import warnings
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

PACKAGES = ("tracekit-torch", "torch", "triton", "numpy", "torchvision", "transformers", "timm")
"""Packages whose versions can affect measurements."""

PCIE = {
    "generation": "nvmlDeviceGetCurrPcieLinkGeneration",
    "width": "nvmlDeviceGetCurrPcieLinkWidth",
    "max_generation": "nvmlDeviceGetMaxPcieLinkGeneration",
    "max_width": "nvmlDeviceGetMaxPcieLinkWidth",
}
"""PCIe link of a GPU: current (an idle link uses a lower generation) and maximum."""
PROGRAM = "program"
"""Field with the settings of a recorded program, as `tracekit.recording.agent.settings` reads them."""
CPUS = "cpus"
"""Field with the cores that a workload may use, as `tracekit.recording.agent.cpu_load` reads them."""
GPU_PROBLEM = "gpu_problem"
"""Field with the reason why torch can use no GPU, on a machine with a GPU."""


def program_settings(environment: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return the settings of the recorded program; empty if they are not known."""
    return environment.get(PROGRAM) or {}


def capture() -> dict[str, Any]:
    """Return the environment in the form of `run.json`; never raises, what cannot be read is None.

    CUDA is not initialized in a program that has not done so, which could then not fork: torch's build and
    settings are included if torch is imported, the devices it sees only if it has initialized CUDA. Otherwise
    the GPUs are those of the machine, from NVML.
    """
    torch = sys.modules.get("torch")
    gpus = nvml_gpus()
    visible = _visible(torch, gpus)
    problem = without_gpu_support(torch) if gpus and torch else ""
    return {
        "python": platform.python_version(),
        **torch_versions(torch),
        "driver": nvml_driver(),
        "os": f"{platform.system()} {platform.release()} {platform.machine()}",
        "cpu": cpu_name(),
        "gpus": visible or gpus,
        **({GPU_PROBLEM: problem} if problem else {}),
        "settings": torch_settings(torch),
        "packages": packages(),
    }


def _try(read: Callable[..., Any], *arguments: Any) -> Any:
    """Return what a function returns; None if it fails, since a description must not end a recording."""
    try:
        return read(*arguments)
    except Exception:
        return None


def torch_versions(torch: Any) -> dict[str, str | None]:
    """Return the versions of torch and of the CUDA or HIP and the cuDNN of its build; None without them."""
    cuda = _try(lambda: torch.version.cuda)
    cudnn = _try(lambda: torch.backends.cudnn.version()) if cuda else None
    return {
        "torch": _try(lambda: str(torch.__version__)) if torch else None,
        "cuda": cuda,
        "hip": _try(lambda: torch.version.hip),
        "cudnn": str(cudnn) if cudnn else None,
    }


def gpu_build(torch: Any) -> str:
    """Return what torch was built for, as in `CUDA 13.0` or `ROCm 7.0`; empty for the CPU only."""
    versions = torch_versions(torch)
    if versions["hip"]:  # also of builds that name a CUDA version for compatibility
        return f"ROCm {versions['hip']}"
    return f"CUDA {versions['cuda']}" if versions["cuda"] else ""


def without_gpu_support(torch: Any) -> str:
    """Return that torch was built without CUDA and ROCm; empty if it was built with one of them."""
    return "" if gpu_build(torch) else f"torch {torch_versions(torch)['torch']} was built without CUDA"


def gpu_problem(torch: Any) -> str:
    """Return why torch can use no GPU, in its own words; empty if it can. Initializes the GPU driver."""
    if missing := without_gpu_support(torch):
        return missing
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        try:
            if torch.cuda.is_available():
                return ""
            torch.cuda.init()  # its error names the reason, unless a warning has done so
            reason: object = "torch finds no GPU"
        except Exception as error:
            reason = error
    return first_line(caught[0].message if caught else reason)


def first_line(error: object) -> str:
    """Return the first line of an error or warning that says something; its type if none does."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return lines[0] if lines else type(error).__name__


def torch_settings(torch: Any) -> dict[str, Any]:
    """Return the settings of torch that choose kernels and their precision; unknown ones are None.

    torch refuses to read a setting by its older name once it was set by its newer one, so both are tried.
    """
    if torch is None:
        return {}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        cudnn = _try(lambda: torch.backends.cudnn)
        matmul = _try(lambda: torch.backends.cuda.matmul)
        return {
            "float32_matmul_precision": _try(lambda: torch.get_float32_matmul_precision()),
            "matmul_tf32": _is_tf32(matmul, matmul),
            "cudnn_tf32": _is_tf32(cudnn, _try(lambda: cudnn.conv)),
            "cudnn_enabled": _try(lambda: bool(cudnn.enabled)),
            "cudnn_benchmark": _try(lambda: bool(cudnn.benchmark)),
            "cudnn_deterministic": _try(lambda: bool(cudnn.deterministic)),
        }


def _is_tf32(old: Any, new: Any) -> bool | None:
    is_tf32: bool | None = _try(lambda: bool(old.allow_tf32))
    return _try(lambda: bool(new.fp32_precision == "tf32")) if is_tf32 is None else is_tf32


def packages() -> dict[str, str]:
    """Return the installed versions of `PACKAGES`."""
    from importlib import metadata

    versions = ((name, _try(metadata.version, name)) for name in PACKAGES)
    return {name: version for name, version in versions if version}


def cpu_name() -> str:
    """Return the model of the processor, else its architecture."""
    try:
        lines = Path("/proc/cpuinfo").read_text(errors="replace").splitlines()
    except OSError:
        return platform.machine()
    models = (line.partition(":")[2].strip() for line in lines if line.startswith("model name"))
    return next(models, platform.machine())


def identity() -> dict[str, Any]:
    """Return what measurements on this machine depend on, besides the measured program."""
    return {
        "cpu": cpu_name(),
        "cpus": sorted(os.sched_getaffinity(0)),
        "gpus": [gpu["uuid"] for gpu in nvml_gpus()],
        "driver": nvml_driver(),
        "packages": packages(),
    }


@contextmanager
def nvml() -> Iterator[Any]:
    """Return initialized NVML; None without an NVIDIA driver or its Python binding."""
    try:
        import pynvml

        pynvml.nvmlInit()
    except Exception:  # package, library, driver or device nodes are missing
        yield None
        return
    try:
        yield pynvml
    finally:
        _ask(pynvml, "nvmlShutdown")


def _ask(library: Any, function: str, *arguments: Any) -> Any:
    """Return the answer of NVML; None if the device, driver or binding does not support the function."""
    return _try(lambda: getattr(library, function)(*arguments))


def nvml_driver() -> str | None:
    """Return the version of the NVIDIA driver; None if unknown."""
    with nvml() as library:
        return _text(_ask(library, "nvmlSystemGetDriverVersion") or "") or None


def nvml_gpus() -> list[dict[str, Any]]:
    """Return the NVIDIA GPUs of the machine that this process may use, in NVML's order.

    A GPU in MIG mode is replaced by its instances, since programs can only use these.
    """
    with nvml() as library:
        handles = nvml_handles(library) if library else {}
        usable = [part for handle in handles.values() for part in (mig_handles(library, handle) or [handle])]
        return [_nvml_gpu(library, index, handle) for index, handle in enumerate(usable)]


KFD = Path("/sys/class/kfd/kfd/topology/nodes")
"""Nodes of AMD's driver: a GPU has a `gpu_id` other than 0, a CPU has 0."""


def machine_gpus() -> int:
    """Return the number of NVIDIA GPUs or MIG instances and of AMD GPUs of this machine."""
    ids = (str(_try(path.read_text) or "0").strip() for path in KFD.glob("*/gpu_id"))
    return len(nvml_gpus()) + sum(number != "0" for number in ids)


def nvml_handles(library: Any, closed: dict[int, Exception] | None = None) -> dict[int, Any]:
    """Return the handles of the GPUs by NVML's index, without those that cannot be opened.

    A GPU may be lost, or belong to another container or job.

    Args:
        library: Initialized module `pynvml`.
        closed: Filled with the errors of the GPUs that cannot be opened.
    """
    handles: dict[int, Any] = {}
    for index in range(_ask(library, "nvmlDeviceGetCount") or 0):
        try:
            handles[index] = library.nvmlDeviceGetHandleByIndex(index)
        except Exception as error:
            if closed is not None:
                closed[index] = error
    return handles


def mig_handles(library: Any, handle: Any) -> list[Any]:
    """Return the handles of the MIG instances of a GPU; empty if it is not in MIG mode."""
    mode = _ask(library, "nvmlDeviceGetMigMode", handle)
    count = _ask(library, "nvmlDeviceGetMaxMigDeviceCount", handle) if mode and mode[0] else 0
    numbers = range(count or 0)  # those without an instance have no handle
    parts = (_ask(library, "nvmlDeviceGetMigDeviceHandleByIndex", handle, number) for number in numbers)
    return [part for part in parts if part is not None]


def nvml_uuid(library: Any, handle: Any) -> str:
    """Return the UUID of a GPU or MIG instance, with its prefix; empty if unknown."""
    return _text(_ask(library, "nvmlDeviceGetUUID", handle) or "")


def nvml_name(library: Any, handle: Any) -> str:
    """Return the name of a GPU or MIG instance; empty if unknown."""
    return _text(_ask(library, "nvmlDeviceGetName", handle) or "")


def _nvml_gpu(library: Any, index: int, handle: Any) -> dict[str, Any]:
    def ask(function: str) -> Any:
        return _ask(library, function, handle)

    memory, capability = ask("nvmlDeviceGetMemoryInfo"), ask("nvmlDeviceGetCudaComputeCapability")
    limit, ecc = ask("nvmlDeviceGetPowerManagementLimit"), ask("nvmlDeviceGetEccMode")
    link = {name: ask(function) for name, function in PCIE.items()}
    return {
        "index": index,
        "name": nvml_name(library, handle),
        "uuid": nvml_uuid(library, handle),
        "memory_bytes": int(memory.total) if memory else None,
        "sm_count": None,
        "compute_capability": f"{capability[0]}.{capability[1]}" if capability else None,
        "pcie": link if any(link.values()) else None,
        "power_limit_w": round(limit / 1000) if limit else None,
        "ecc": bool(ecc[0]) if ecc else None,
    }


def _visible(torch: Any, gpus: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return the GPUs that torch sees, in its order, completed by NVML; empty if CUDA is not initialized."""
    if not _try(lambda: torch.cuda.is_initialized()):
        return []
    by_uuid = {bare_uuid(gpu["uuid"]): gpu for gpu in gpus if gpu["uuid"]}
    count = _try(lambda: torch.cuda.device_count()) or 0
    visible = (_try(_torch_gpu, torch, index, by_uuid) for index in range(count))
    return [gpu for gpu in visible if gpu]


def _torch_gpu(torch: Any, index: int, by_uuid: dict[str, dict[str, Any]]) -> dict[str, Any]:
    properties = torch.cuda.get_device_properties(index)
    uuid = str(getattr(properties, "uuid", ""))
    by_nvml = by_uuid.get(bare_uuid(uuid), {})
    major, minor = getattr(properties, "major", None), getattr(properties, "minor", None)
    return {
        "index": index,
        "name": properties.name,
        "uuid": by_nvml.get("uuid") or (f"GPU-{bare_uuid(uuid)}" if uuid else ""),
        "memory_bytes": int(properties.total_memory),
        "sm_count": int(properties.multi_processor_count),
        "compute_capability": None if major is None else f"{major}.{minor}",
        **{name: by_nvml.get(name) for name in ("pcie", "power_limit_w", "ecc")},
    }


def device_indices(environment: Mapping[str, Any]) -> dict[str, int]:
    """Return the device index of each GPU that the described program saw, by UUID without prefix.

    Empty if the program did not initialize CUDA: then the GPUs are those of the machine.
    """
    gpus = environment.get("gpus") or []
    return {bare_uuid(gpu["uuid"]): gpu["index"] for gpu in gpus if gpu.get("uuid") and gpu.get("sm_count")}


def bare_uuid(uuid: str) -> str:
    """Return a UUID in lower case without `GPU-` or `MIG-`, as torch has it."""
    return uuid.lower().removeprefix("gpu-").removeprefix("mig-")


def _text(value: str | bytes) -> str:
    return value.decode(errors="replace") if isinstance(value, bytes) else value
