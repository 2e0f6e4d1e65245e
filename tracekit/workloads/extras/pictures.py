"""What the classifiers of the libraries of vision share."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tracekit.errors import UnusableInputError
from tracekit.workloads.base import DTYPES, MODES, Workload
from tracekit.workloads.datasets import DATASET_SHAPES

if TYPE_CHECKING:
    from collections.abc import Callable

    import torch

    from tracekit.workloads.base import Options, Program

SIDE, LEAST = 224, 64


def pictures(
    name: str,
    *,
    summary: str,
    parameters: int,
    make: Callable[[int], torch.nn.Module],
    source: str,
    one_side: bool = False,
) -> Workload:
    """A classifier of random images of three channels.

    Args:
        name: Registered name.
        summary: What it is.
        parameters: With 1000 classes.
        make: Makes the model for a number of classes.
        source: The library and its version.
        one_side: Whether it takes images of 224 pixels only.
    """

    def build(options: Options) -> Program:
        from tracekit.workloads.images import classifier

        return classifier(lambda _, classes: make(classes), options)

    def check(options: Options) -> None:
        if one_side and options.resolution != SIDE:
            raise UnusableInputError(
                f"{name} cannot run with --resolution {options.resolution}", hint=f"use --resolution {SIDE}"
            )

    least = SIDE if one_side else LEAST
    return Workload(
        name=name,
        domain="vision",
        summary=f"{summary} classifying random 3-channel images into 1000 classes",
        parameters=parameters,
        modes=MODES,
        levels=("eager",),
        dtypes=DTYPES,
        defaults={"batch_size": 16, "resolution": SIDE},
        sizes={
            "test": {"batch_size": 2, "resolution": least},
            "gpu": {"batch_size": 128, "resolution": SIDE},
        },
        dataset_shapes=() if one_side else _SHAPES,
        smallest_resolution=least,
        build=build,
        check=check,
        source=source,
    )


_SHAPES = tuple(
    name
    for name, shape in DATASET_SHAPES.items()
    if shape.channels == 3 and (shape.side is None or shape.side >= LEAST)
)
"""Data sets whose images such a classifier takes."""
