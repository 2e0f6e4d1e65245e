"""Versions and hardware of a run, without environment variables, host names, user names and paths."""

from __future__ import annotations

import os
import platform
import sys
from contextlib import contextmanager
from importlib import metadata
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterator

PACKAGES = ("tracekit-torch", "torch", "triton", "numpy", "torchvision", "transformers", "timm")
"""Packages whose versions can affect measurements."""

PCIE = {
    "generation": "nvmlDeviceGetCurrPcieLinkGeneration",
    "width": "nvmlDeviceGetCurrPcieLinkWidth",
    "max_generation": "nvmlDeviceGetMaxPcieLinkGeneration",
    "max_width": "nvmlDeviceGetMaxPcieLinkWidth",
}
"""PCIe link of a GPU: current (an idle link uses a lower generation) and maximum."""


def capture() -> dict[str, Any]:
    """Return the environment in the form of `run.json`.

    Torch's build and visible devices are included only if torch is imported already, so that no GPU context
    is created.
    """
    torch = sys.modules.get("torch")
    gpus = nvml_gpus()
    return {
        "python": platform.python_version(),
        **torch_versions(torch),
        "driver": nvml_driver(),
        "os": f"{platform.system()} {platform.release()} {platform.machine()}",
        "cpu": cpu_name(),
        "gpus": _visible(torch, gpus) if torch and torch.cuda.is_available() else gpus,
        "packages": packages(),
    }


def torch_versions(torch: Any) -> dict[str, str | None]:
    """Return the versions of torch and of the CUDA and cuDNN of its build; None without them."""
    if torch is None:
        return {"torch": None, "cuda": None, "cudnn": None}
    cudnn = torch.backends.cudnn.version() if torch.version.cuda else None
    return {
        "torch": str(torch.__version__),
        "cuda": torch.version.cuda,
        "cudnn": str(cudnn) if cudnn else None,
    }


def packages() -> dict[str, str]:
    """Return the installed versions of `PACKAGES`."""
    found = {}
    for name in PACKAGES:
        try:
            found[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            continue
    return found


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
        pynvml.nvmlShutdown()


def nvml_driver() -> str | None:
    """Return the version of the NVIDIA driver."""
    with nvml() as library:
        return _text(library.nvmlSystemGetDriverVersion()) if library else None


def nvml_gpus() -> list[dict[str, Any]]:
    """Return all NVIDIA GPUs of the machine, in NVML's order."""
    with nvml() as library:
        if library is None:
            return []
        return [_nvml_gpu(library, index) for index in range(library.nvmlDeviceGetCount())]


def _nvml_gpu(library: Any, index: int) -> dict[str, Any]:
    handle = library.nvmlDeviceGetHandleByIndex(index)

    def ask(function: str) -> Any:
        try:
            return getattr(library, function)(handle)
        except library.NVMLError:
            return None  # virtual and partitioned GPUs support only some queries

    memory, capability = ask("nvmlDeviceGetMemoryInfo"), ask("nvmlDeviceGetCudaComputeCapability")
    link = {name: ask(function) for name, function in PCIE.items()}
    return {
        "index": index,
        "name": _text(ask("nvmlDeviceGetName") or ""),
        "uuid": _text(ask("nvmlDeviceGetUUID") or ""),
        "memory_bytes": int(memory.total) if memory else None,
        "sm_count": None,
        "compute_capability": f"{capability[0]}.{capability[1]}" if capability else None,
        "pcie": link if any(link.values()) else None,
    }


def _visible(torch: Any, gpus: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return the GPUs visible to torch, in its order (see CUDA_VISIBLE_DEVICES), completed by NVML."""
    by_uuid = {gpu["uuid"].removeprefix("GPU-"): gpu for gpu in gpus}
    return [
        _torch_gpu(torch.cuda.get_device_properties(index), index, by_uuid)
        for index in range(torch.cuda.device_count())
    ]


def _torch_gpu(properties: Any, index: int, by_uuid: dict[str, dict[str, Any]]) -> dict[str, Any]:
    uuid = str(getattr(properties, "uuid", ""))
    known = by_uuid.get(uuid, {})
    return {
        "index": index,
        "name": properties.name,
        "uuid": known.get("uuid") or (f"GPU-{uuid}" if uuid else ""),
        "memory_bytes": int(properties.total_memory),
        "sm_count": int(properties.multi_processor_count),
        "compute_capability": f"{properties.major}.{properties.minor}",
        "pcie": known.get("pcie"),
    }


def _text(value: str | bytes) -> str:
    return value.decode(errors="replace") if isinstance(value, bytes) else value
