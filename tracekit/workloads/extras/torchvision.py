"""Models of torchvision with random weights; numbers of parameters are those it documents."""

from __future__ import annotations

from typing import Any

from tracekit.workloads.base import Workload
from tracekit.workloads.extras.library import image_classifier, import_library

_LIBRARY = "torchvision"
import_library(_LIBRARY)


def _workload(name: str, **declared: Any) -> Workload:
    def make(classes: int) -> Any:
        return import_library(_LIBRARY).models.get_model(name, weights=None, num_classes=classes)

    return image_classifier(f"{_LIBRARY}_{name}", make=make, library=_LIBRARY, **declared)


TORCHVISION_CONVNEXT_TINY = _workload("convnext_tiny", model="ConvNeXt-T", parameters=28_589_128)
TORCHVISION_DENSENET121 = _workload("densenet121", model="DenseNet-121", parameters=7_978_856)
TORCHVISION_VIT_B_16 = _workload("vit_b_16", model="ViT-B/16", parameters=86_567_656, fixed_side=True)
