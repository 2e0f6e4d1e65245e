"""Import libraries that provide models, and declare the image classifiers among them."""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from importlib.metadata import PackageNotFoundError, version
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

from tracekit.errors import PluginError, UnusableInputError
from tracekit.workloads.base import DATASET_SHAPES, Options, Program, Workload

if TYPE_CHECKING:
    import torch


SIDE, MIN_SIDE = 224, 64
_SHAPES = tuple(
    name
    for name, shape in DATASET_SHAPES.items()
    if shape.channels == 3 and (shape.side is None or shape.side >= MIN_SIDE)
)
"""Data sets whose images a classifier without a fixed side can take."""


def import_library(name: str) -> Any:
    """Import a library.

    Raises:
        ModuleNotFoundError: It is not installed.
        PluginError: It cannot be imported; the one-line message is the same for all of its workloads.
    """
    if find_spec(name) is None:
        raise ModuleNotFoundError(f"no module named {name!r}", name=name)
    try:
        return import_module(name)
    except Exception as error:  # a library built for another torch fails in many ways
        message = f"{source(name)} is installed but cannot be imported: {_summary(error)}"
        hint = f"install a build of {name} that matches this torch, or uninstall it"
        raise PluginError(message, hint=hint) from error


def import_class(library: str, name: str) -> Any:
    """Import one class of a library that loads its classes lazily.

    Raises:
        PluginError: It cannot be imported; the message has the first cause.
    """
    module = import_library(library)
    try:
        return getattr(module, name)
    except Exception as error:
        cause: BaseException = error
        while earlier := cause.__cause__ or cause.__context__:
            cause = earlier
        message = f"{source(library)} cannot import its {name}: {_summary(cause)}"
        hint = f"fix or uninstall the packages that {library} fails to import"
        raise PluginError(message, hint=hint) from error


def _summary(error: BaseException) -> str:
    return f"{type(error).__name__}: {error}".splitlines()[0]


def source(name: str) -> str:
    """Return a library and its version, as in `Workload.source`."""
    try:
        return f"{name} {version(name)}"
    except PackageNotFoundError:
        return name


def image_classifier(
    name: str,
    *,
    model: str,
    parameters: int,
    make: Callable[[int], torch.nn.Module],
    library: str,
    fixed_side: bool = False,
) -> Workload:
    """Declare a classifier of random images of three channels.

    Args:
        name: Registered name.
        model: Published name of the model.
        parameters: Number of parameters with 1000 classes.
        make: Makes the model for a number of classes.
        library: Library of the model.
        fixed_side: Whether it takes images of 224 pixels only.
    """

    def build(options: Options) -> Program:
        from tracekit.workloads import tasks

        return tasks.image_classifier(lambda _, classes: make(classes), options)

    def check(options: Options) -> None:
        if fixed_side and options.resolution != SIDE:
            message = f"{name} cannot run with --resolution {options.resolution}"
            raise UnusableInputError(message, hint=f"use --resolution {SIDE}")

    smallest = SIDE if fixed_side else MIN_SIDE
    return Workload(
        name=name,
        domain="vision",
        summary=f"{library}'s {model} classifying random 3-channel images into 1000 classes",
        parameters=parameters,
        levels=("eager",),
        defaults={"batch_size": 16, "resolution": SIDE},
        sizes={
            "test": {"batch_size": 2, "resolution": smallest},
            "gpu": {"batch_size": 128, "resolution": SIDE},
        },
        dataset_shapes=() if fixed_side else _SHAPES,
        smallest_resolution=smallest,
        build=build,
        check=check,
        source=source(library),
    )
