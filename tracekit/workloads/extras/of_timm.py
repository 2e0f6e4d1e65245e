"""Models of timm with random weights; numbers of parameters are those it documents."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tracekit.workloads.extras.library import imported, source
from tracekit.workloads.extras.pictures import pictures

if TYPE_CHECKING:
    from tracekit.workloads.base import Workload

_LIBRARY = "timm"
imported(_LIBRARY)


def _workload(name: str, model: str, *, called: str, parameters: int, one_side: bool = False) -> Workload:
    def make(classes: int) -> Any:
        return imported(_LIBRARY).create_model(model, pretrained=False, num_classes=classes)

    return pictures(
        name,
        summary=f"timm's {called}",
        parameters=parameters,
        make=make,
        source=source(_LIBRARY),
        one_side=one_side,
    )


TIMM_EFFICIENTNET_B0 = _workload(
    "timm_efficientnet_b0", "efficientnet_b0", called="EfficientNet-B0", parameters=5_288_548
)
TIMM_MIXER_B16 = _workload(
    "timm_mixer_b16", "mixer_b16_224", called="MLP-Mixer-B/16", parameters=59_880_472, one_side=True
)
TIMM_VIT_SMALL = _workload(
    "timm_vit_small", "vit_small_patch16_224", called="ViT-S/16", parameters=22_050_664, one_side=True
)
