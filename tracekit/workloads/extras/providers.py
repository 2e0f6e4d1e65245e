"""Names of the workloads of each library and where they are declared, found without importing the library."""

from __future__ import annotations

from importlib.util import find_spec


def transformers() -> dict[str, str]:
    """Return the workloads of Hugging Face's transformers, if it is installed."""
    return _workloads("transformers", "hf_bert", "hf_gpt2", "hf_t5")


def torchvision() -> dict[str, str]:
    """Return the workloads of torchvision, if it is installed."""
    names = ("torchvision_convnext_tiny", "torchvision_densenet121", "torchvision_vit_b_16")
    return _workloads("torchvision", *names)


def timm() -> dict[str, str]:
    """Return the workloads of timm, if it is installed."""
    return _workloads("timm", "timm_efficientnet_b0", "timm_mixer_b16", "timm_vit_small")


def _workloads(library: str, *names: str) -> dict[str, str]:
    if find_spec(library) is None:
        return {}
    return {name: f"{__package__}.{library}:{name.upper()}" for name in names}
