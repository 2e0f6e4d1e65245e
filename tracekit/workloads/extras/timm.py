"""Models of timm with random weights; numbers of parameters are those it documents."""

from __future__ import annotations

from typing import Any

from tracekit.workloads.base import Workload
from tracekit.workloads.extras.library import image_classifier, import_library

_LIBRARY = "timm"
import_library(_LIBRARY)


def _workload(name: str, timm_name: str, **declared: Any) -> Workload:
    def make(classes: int) -> Any:
        return import_library(_LIBRARY).create_model(timm_name, pretrained=False, num_classes=classes)

    return image_classifier(name, make=make, library=_LIBRARY, **declared)


TIMM_EFFICIENTNET_B0 = _workload(
    "timm_efficientnet_b0", "efficientnet_b0", model="EfficientNet-B0", parameters=5_288_548
)
TIMM_MIXER_B16 = _workload(
    "timm_mixer_b16", "mixer_b16_224", model="MLP-Mixer-B/16", parameters=59_880_472, fixed_side=True
)
TIMM_VIT_SMALL = _workload(
    "timm_vit_small", "vit_small_patch16_224", model="ViT-S/16", parameters=22_050_664, fixed_side=True
)
