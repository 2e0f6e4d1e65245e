"""What the C++ program is given: the workload's module as TorchScript, its batch, and how to run it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch

from tracekit.errors import UnusableInputError
from tracekit.workloads.levels import traced
from tracekit.workloads.program import Inference, Training

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from tracekit.recording.collector import Request
    from tracekit.workloads.base import Program

JOB, MODULE = "job.pt", "module.pt"
_OPTIMIZERS = (torch.optim.SGD, torch.optim.Adam, torch.optim.AdamW)
_LEFT_OUT = ("dampening", "nesterov", "amsgrad", "maximize")
"""Options of an optimizer that the C++ program does not know."""


class Loss(torch.nn.Module):
    """From a model's inputs, then the targets, to the loss."""

    def __init__(self, model: torch.nn.Module, loss: Callable[..., torch.Tensor], inputs: int) -> None:
        super().__init__()
        self.model = model
        self._loss, self._inputs = loss, inputs

    def forward(self, *given: torch.Tensor) -> torch.Tensor:
        """The loss of `inputs` inputs and as many targets as the loss takes."""
        return self._loss(self.model(*given[: self._inputs]), *given[self._inputs :])


def export(program: Program, request: Request, *, device: str, folder: Path) -> Path:
    """Write what the C++ program needs to run the steps that the program would run next.

    Args:
        program: Just built, on the device.
        request: How to run it.
        device: Where it runs.
        folder: Where the files go.

    Returns:
        The file that names all others.

    Raises:
        UnusableInputError: It is not made of what the C++ program knows.
    """
    if not isinstance(program, (Training, Inference)):
        raise UnusableInputError(
            f"{request.workload} cannot be exported, as it is not a single module", hint="use --level eager"
        )
    host = program.batches.source
    job = {
        "module": str(folder / MODULE),
        "mode": request.mode,
        "device": device,
        "steps": request.steps,
        "warmup": request.warmup,
        "seed": str(torch.initial_seed()),  # torch's reader of pickles in C++ takes integers of 32 bits
        "threads": request.threads or 0,
        "zero_grad": request.zero_grad,
        "pin_memory": host.pinned,
        "inputs": list(host.inputs),
        "targets": list(host.targets),
        "random_state": torch.get_rng_state(),
    }
    if isinstance(program, Training):
        job |= _optimizer(program.optimizer)
    _traced(program).save(job["module"])
    torch.save(job, folder / JOB)
    return folder / JOB


def _traced(program: Training | Inference) -> torch.jit.ScriptModule:
    host, inputs = program.batches.source, program.batches.example()
    if isinstance(program, Inference):
        with torch.no_grad():
            return traced(program.model, inputs)
    targets = tuple(target.to(program.batches.device) for target in host.targets)
    return traced(Loss(program.model, program.loss, len(inputs)), (*inputs, *targets))


def _optimizer(optimizer: torch.optim.Optimizer) -> dict[str, Any]:
    """Kind and options of an optimizer, those of others at what changes nothing.

    Raises:
        UnusableInputError: The C++ program does not know it.
    """
    chosen, name = optimizer.defaults, type(optimizer).__name__
    unknown = [option for option in _LEFT_OUT if chosen.get(option)]
    if type(optimizer) not in _OPTIMIZERS or len(optimizer.param_groups) != 1 or unknown:
        raise UnusableInputError(
            f"the C++ program cannot train with this {name}", hint="use --level eager or --mode infer"
        )
    first, second = chosen.get("betas", (0.0, 0.0))
    return {
        "optimizer": name,
        "lr": float(chosen["lr"]),
        "momentum": float(chosen.get("momentum", 0.0)),
        "weight_decay": float(chosen["weight_decay"]),
        "beta1": float(first),
        "beta2": float(second),
        "eps": float(chosen.get("eps", 0.0)),
    }
