"""Which workloads a library brings, while nothing of it is imported: names, and where each is made."""

from __future__ import annotations

from importlib.util import find_spec

_PACKAGE = "tracekit.workloads.extras"


def transformers() -> dict[str, str]:
    """Of Hugging Face's transformers, where it is installed."""
    return _where("transformers", "of_transformers", ("hf_bert", "hf_gpt2", "hf_t5"))


def torchvision() -> dict[str, str]:
    """Of torchvision, where it is installed."""
    names = ("torchvision_convnext_tiny", "torchvision_densenet121", "torchvision_vit_b_16")
    return _where("torchvision", "of_torchvision", names)


def timm() -> dict[str, str]:
    """Of timm, where it is installed."""
    return _where("timm", "of_timm", ("timm_efficientnet_b0", "timm_mixer_b16", "timm_vit_small"))


def _where(library: str, module: str, names: tuple[str, ...]) -> dict[str, str]:
    if find_spec(library) is None:
        return {}
    return {name: f"{_PACKAGE}.{module}:{name.upper()}" for name in names}
