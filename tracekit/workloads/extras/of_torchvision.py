"""Models of torchvision with random weights; numbers of parameters are those it documents."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tracekit.workloads.extras.library import imported, source
from tracekit.workloads.extras.pictures import pictures

if TYPE_CHECKING:
    from tracekit.workloads.base import Workload

_LIBRARY = "torchvision"
imported(_LIBRARY)


def _workload(model: str, *, called: str, parameters: int, one_side: bool = False) -> Workload:
    def make(classes: int) -> Any:
        return imported(_LIBRARY).models.get_model(model, weights=None, num_classes=classes)

    return pictures(
        f"{_LIBRARY}_{model}",
        summary=f"torchvision's {called}",
        parameters=parameters,
        make=make,
        source=source(_LIBRARY),
        one_side=one_side,
    )


TORCHVISION_CONVNEXT_TINY = _workload("convnext_tiny", called="ConvNeXt-T", parameters=28_589_128)
TORCHVISION_DENSENET121 = _workload("densenet121", called="DenseNet-121", parameters=7_978_856)
TORCHVISION_VIT_B_16 = _workload("vit_b_16", called="ViT-B/16", parameters=86_567_656, one_side=True)
