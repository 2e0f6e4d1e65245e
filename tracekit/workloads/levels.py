"""Run a module eagerly, as a TorchScript trace, or through `torch.compile`.

At level `libtorch`, the collector exports a trace to a C++ program; here the module stays itself.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any, TypeAlias

import torch

from tracekit.errors import UnusableInputError
from tracekit.workloads.base import COMPILE, INDUCTOR, TORCHSCRIPT, Options

Forward: TypeAlias = Callable[..., Any]


def at_level(
    model: torch.nn.Module, example: Callable[[], tuple[torch.Tensor, ...]], options: Options
) -> Forward:
    """Return a module in the form of its level; it shares its parameters with the module.

    Args:
        model: Module on its device, in the mode it will run in.
        example: Makes example inputs on its device; called for tracing only, so that an eager program does
            not allocate them.
        options: Options with the level and backend.

    Raises:
        UnusableInputError: The backend is unknown or cannot compile here.

    Example:
        >>> from tracekit.workloads.base import Options
        >>> options = Options(mode="train", device="cpu", batch_size=1, resolution=1, level="torchscript")
        >>> type(at_level(torch.nn.Linear(2, 2), lambda: (torch.ones(1, 2),), options)).__name__
        'TopLevelTracedModule'
    """
    if options.level == TORCHSCRIPT:
        return trace_module(model, example())
    if options.level == COMPILE:
        return _compile_module(model, backend=options.backend, device=options.device)
    return model


def trace_module(model: torch.nn.Module, inputs: tuple[torch.Tensor, ...]) -> torch.jit.ScriptModule:
    """Trace a module to TorchScript, which runs without Python.

    The result shares the parameters; buffers and the state of the random generators are preserved.
    `torch.jit.script` refuses several of the workloads; a trace is valid for inputs of the same shapes only,
    which is all that a workload needs.
    """
    before = [buffer.clone() for buffer in model.buffers()]
    devices = {tensor.device for tensor in inputs if tensor.is_cuda}
    with torch.random.fork_rng(devices), warnings.catch_warnings():
        warnings.simplefilter("ignore")  # torch deprecates tracing; tests compare traces with eager runs
        trace: Callable[..., torch.jit.ScriptModule] = torch.jit.trace  # torch does not annotate it
        module = trace(model, inputs, check_trace=False)
    with torch.no_grad():
        for buffer, saved in zip(model.buffers(), before, strict=True):
            buffer.copy_(saved)
    return module


def _compile_module(model: torch.nn.Module, *, backend: str, device: str) -> Forward:
    """Return the module under `torch.compile`, which compiles in its first calls."""
    from torch._dynamo import list_backends

    if backend not in list_backends(exclude_tags=()):
        usual = (*list_backends(), "aot_eager", "eager")
        message = f"torch {torch.__version__} has no compile backend {backend!r}"
        raise UnusableInputError(message, hint=f"use --backend {' or '.join(usual)}")
    if backend == INDUCTOR and (missing := _missing_compiler(device)):
        hint = "install it, or use --backend aot_eager, which generates no code"
        raise UnusableInputError(f"backend inductor needs {missing}, which is missing", hint=hint)
    return torch.compile(model, backend=backend)


def _missing_compiler(device: str) -> str:
    """Name the compiler that Inductor lacks for a device; empty if it lacks none."""
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
    """Let `torch.compile` trace calls of autograd, an option of newer versions of torch."""
    from torch._dynamo import config

    if hasattr(config, "trace_autograd_ops"):
        config.trace_autograd_ops = True
