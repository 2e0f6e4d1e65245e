"""Export the input of the C++ program: the module as TorchScript, its batch, and how to run it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

from tracekit.errors import UnusableInputError
from tracekit.recording.collector import Request
from tracekit.workloads.base import Program
from tracekit.workloads.levels import trace_module
from tracekit.workloads.program import Inference, Training

JOB, MODULE = "job.pt", "module.pt"
_OPTIMIZERS = (torch.optim.SGD, torch.optim.Adam, torch.optim.AdamW)
_UNSUPPORTED = ("dampening", "nesterov", "amsgrad", "maximize")
"""Options of optimizers that the C++ program does not support."""


class Loss(torch.nn.Module):
    """Module that computes the loss from a model's inputs and targets."""

    def __init__(self, model: torch.nn.Module, loss: Callable[..., torch.Tensor], inputs: int) -> None:
        super().__init__()
        self.model = model
        self._loss, self._inputs = loss, inputs

    def forward(self, *tensors: torch.Tensor) -> torch.Tensor:
        """Return the loss of the inputs followed by the targets."""
        return self._loss(self.model(*tensors[: self._inputs]), *tensors[self._inputs :])


def export(program: Program, request: Request, *, device: str, folder: Path) -> Path:
    """Write the files with which the C++ program runs the steps of a workload.

    Args:
        program: Newly built workload, on its device.
        request: Options.
        device: Device of the workload.
        folder: Folder of the files.

    Returns:
        The job file, which names the others.

    Raises:
        UnusableInputError: The C++ program does not support the workload or its optimizer.
    """
    if not isinstance(program, (Training, Inference)):
        message = f"{request.workload} cannot be exported, as it is not a single module"
        raise UnusableInputError(message, hint="use --level eager")
    batches = program.batches
    job = {
        "module": str(folder / MODULE),
        "mode": request.mode,
        "device": device,
        "steps": request.steps,
        "warmup": request.warmup,
        "seed": str(torch.initial_seed()),  # torch reads pickled integers as 32 bits in C++
        "threads": request.threads or 0,
        "zero_grad": request.zero_grad,
        "pin_memory": batches.pinned,
        "inputs": list(batches.inputs),
        "targets": list(batches.targets),
        "random_state": torch.get_rng_state(),
    }
    if isinstance(program, Training):
        job |= _optimizer(program.optimizer)
    _trace(program).save(job["module"])
    torch.save(job, folder / JOB)
    return folder / JOB


def _trace(program: Training | Inference) -> torch.jit.ScriptModule:
    inputs = program.batches.example()
    if isinstance(program, Inference):
        with torch.no_grad():
            return trace_module(program.model, inputs)
    targets = tuple(target.to(program.batches.device) for target in program.batches.targets)
    return trace_module(Loss(program.model, program.loss, len(inputs)), (*inputs, *targets))


def _optimizer(optimizer: torch.optim.Optimizer) -> dict[str, Any]:
    """Return the class and options of an optimizer; options that it lacks have neutral values."""
    options, name = optimizer.defaults, type(optimizer).__name__
    unsupported = [option for option in _UNSUPPORTED if options.get(option)]
    if type(optimizer) not in _OPTIMIZERS or len(optimizer.param_groups) != 1 or unsupported:
        message = f"the C++ program cannot train with this {name}"
        raise UnusableInputError(message, hint="use --level eager or --mode infer")
    beta1, beta2 = options.get("betas", (0.0, 0.0))
    return {
        "optimizer": name,
        "lr": float(options["lr"]),
        "momentum": float(options.get("momentum", 0.0)),
        "weight_decay": float(options["weight_decay"]),
        "beta1": float(beta1),
        "beta2": float(beta2),
        "eps": float(options.get("eps", 0.0)),
    }
