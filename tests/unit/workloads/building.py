"""Built-in workloads in their smallest size, on one thread."""

from __future__ import annotations

from typing import Any

from tracekit import registry
from tracekit.workloads.base import Options, Workload

NAMES = (
    "bert",
    "dlrm",
    "gpt",
    "lennard_jones",
    "mnist_cnn",
    "mobilenet_v2",
    "reformer",
    "reformer_fixed",
    "resnet18",
    "resnet50",
    "sac",
    "speech_transformer",
    "tts",
    "unet",
    "vgg16",
)
BUILT_INS: dict[str, Workload] = {name: registry.load(registry.WORKLOADS, name) for name in NAMES}
SMALL = {"dlrm", "lennard_jones", "mnist_cnn", "sac", "unet"}
"""Workloads with few parameters and quick steps: those that the default tier trains."""


def built(workload: Workload, *, mode: str = "train", **options: Any) -> Any:
    """Build a workload in size `test`, after validating its options."""
    import torch

    torch.set_num_threads(1)
    chosen = {**workload.sizes["test"], "size": "test", **options}
    decided = Options(mode=mode, device="cpu", **chosen)
    workload.validate(decided)
    return workload.build(decided)


def losses(workload: Workload, steps: int, **options: Any) -> list[float]:
    """Return the losses of the first training steps."""
    program = built(workload, **options)
    return [float(program.step()) for _ in range(steps)]
