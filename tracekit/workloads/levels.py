"""Levels: what runs in place of a module: itself, its trace, or what `torch.compile` makes of it.

At level `libtorch` a C++ program runs the trace; the collector exports it, and here the module is itself.
"""

from __future__ import annotations

import warnings
from typing import TYPE_CHECKING, Any

import torch

from tracekit.errors import UnusableInputError
from tracekit.workloads.base import COMPILE, INDUCTOR, TORCHSCRIPT

if TYPE_CHECKING:
    from collections.abc import Callable

    from tracekit.workloads.base import Options

    Forward = Callable[..., Any]


def runnable(
    model: torch.nn.Module, example: Callable[[], tuple[torch.Tensor, ...]], options: Options
) -> Forward:
    """What runs in place of a module at the level of the options; its parameters stay the module's own.

    Args:
        model: On its device, in the mode it will run in.
        example: Makes inputs such as it will be called with, on its device; not called where nothing is
            traced, so that an eager program allocates nothing for it.
        options: Name the level, and what compiles.

    Raises:
        UnusableInputError: There is no such backend here.

    Example:
        >>> from tracekit.workloads.base import Options
        >>> options = Options(mode="train", device="cpu", batch_size=1, resolution=1, level="torchscript")
        >>> type(runnable(torch.nn.Linear(2, 2), lambda: (torch.ones(1, 2),), options)).__name__
        'TopLevelTracedModule'
    """
    if options.level == TORCHSCRIPT:
        return traced(model, example())
    if options.level == COMPILE:
        return compiled(model, backend=options.backend, device=options.device)
    return model


def traced(model: torch.nn.Module, inputs: tuple[torch.Tensor, ...]) -> torch.jit.ScriptModule:
    """Record one call of a module as TorchScript, which runs without Python.

    Buffers, and what random numbers come next, are as if it had not been called. `torch.jit.script` refuses
    several of the workloads; a trace holds for inputs of the same kind alone, and a workload runs no other.

    Args:
        model: On its device, in the mode it will run in; shares its parameters with the result.
        inputs: Such as it will be called with, on its device.

    Example:
        >>> traced(torch.nn.ReLU(), (torch.ones(2),))(torch.tensor([-1.0, 2.0]))
        tensor([0., 2.])
    """
    kept = [buffer.clone() for buffer in model.buffers()]
    devices = {one.device for one in inputs if one.is_cuda}
    with torch.random.fork_rng(devices), warnings.catch_warnings():
        warnings.simplefilter("ignore")  # the level is deprecated; what a trace cannot hold, the tests show
        trace: Callable[..., torch.jit.ScriptModule] = torch.jit.trace  # torch does not annotate it
        found = trace(model, inputs, check_trace=False)
    with torch.no_grad():
        for buffer, before in zip(model.buffers(), kept, strict=True):
            buffer.copy_(before)
    return found


def compiled(model: torch.nn.Module, *, backend: str, device: str = "cpu") -> Forward:
    """The module behind `torch.compile`, which compiles in its first calls.

    Args:
        model: The module.
        backend: One that `torch._dynamo.list_backends` names.
        device: Where it runs: `cpu` or `cuda`.

    Raises:
        UnusableInputError: There is no such backend here, or nothing that compiles what it generates.
    """
    from torch._dynamo import list_backends

    if backend not in list_backends(exclude_tags=()):
        usual = (*list_backends(), "aot_eager", "eager")
        raise UnusableInputError(
            f"torch {torch.__version__} has no compile backend {backend!r}",
            hint=f"use --backend {' or '.join(usual)}",
        )
    if backend == INDUCTOR and (missing := _missing(device)):
        raise UnusableInputError(
            f"backend inductor needs {missing}, which is missing",
            hint="install it, or use --backend aot_eager, which generates no code",
        )
    made: Forward = torch.compile(model, backend=backend)
    return made


def _missing(device: str) -> str:
    """What Inductor lacks here to compile for a device; empty where it lacks nothing."""
    if device == "cuda":
        from torch.utils._triton import has_triton

        return "" if has_triton() else "Triton for this GPU"
    from torch._inductor import cpp_builder, exc

    try:
        cpp_builder.get_cpp_compiler()
    except exc.InvalidCxxCompiler:
        return "a C++ compiler such as g++"
    return ""


def allow_inner_gradients() -> None:
    """Let `torch.compile` take models that call autograd, which newer versions of torch can, if told to."""
    from torch._dynamo import config

    if hasattr(config, "trace_autograd_ops"):
        config.trace_autograd_ops = True
