"""What a run ran on: versions and hardware; no environment variables, host, user or path is taken."""

from __future__ import annotations

import platform
import sys
from contextlib import contextmanager
from importlib import metadata
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterator

PACKAGES = ("tracekit-torch", "torch", "triton", "numpy", "torchvision", "transformers", "timm")
"""Packages whose version can change what is measured."""

PCIE = {
    "generation": "nvmlDeviceGetCurrPcieLinkGeneration",
    "width": "nvmlDeviceGetCurrPcieLinkWidth",
    "max_generation": "nvmlDeviceGetMaxPcieLinkGeneration",
    "max_width": "nvmlDeviceGetMaxPcieLinkWidth",
}
"""A GPU's link: as it is now (a link at rest falls back to a lower generation), and what it can be here."""


def capture() -> dict[str, Any]:
    """The environment as `run.json` keeps it.

    Torch's own view (its build, the devices it sees) is taken only where torch is loaded already, so that
    asking never starts a GPU context by surprise.
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
    """Versions of torch and of the CUDA and cuDNN it was built with; None what it lacks."""
    if torch is None:
        return {"torch": None, "cuda": None, "cudnn": None}
    cudnn = torch.backends.cudnn.version() if torch.version.cuda else None
    return {
        "torch": str(torch.__version__),
        "cuda": torch.version.cuda,
        "cudnn": str(cudnn) if cudnn else None,
    }


def packages() -> dict[str, str]:
    """Installed versions of the packages that matter."""
    found = {}
    for name in PACKAGES:
        try:
            found[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            continue
    return found


def cpu_name() -> str:
    """Model of the processor, else its architecture."""
    try:
        lines = Path("/proc/cpuinfo").read_text(errors="replace").splitlines()
    except OSError:
        return platform.machine()
    models = (line.partition(":")[2].strip() for line in lines if line.startswith("model name"))
    return next(models, platform.machine())


@contextmanager
def nvml() -> Iterator[Any]:
    """NVML, initialized; None where there is no NVIDIA driver or no binding for it."""
    try:
        import pynvml

        pynvml.nvmlInit()
    except Exception:  # every way of being absent (package, library, driver, device nodes) means the same
        yield None
        return
    try:
        yield pynvml
    finally:
        pynvml.nvmlShutdown()


def nvml_driver() -> str | None:
    """Version of the NVIDIA driver."""
    with nvml() as library:
        return _text(library.nvmlSystemGetDriverVersion()) if library else None


def nvml_gpus() -> list[dict[str, Any]]:
    """All NVIDIA GPUs of the machine, as NVML numbers them."""
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
            return None  # virtual and partitioned GPUs answer only some questions

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
    """The GPUs torch sees, in its numbering (CUDA_VISIBLE_DEVICES renumbers), completed by NVML."""
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
