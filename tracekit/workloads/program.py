"""Steps of any workload: batches from host memory, a model, a loss and an optimizer, run as users do."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeAlias

import torch

from tracekit.workloads.base import COMPILE
from tracekit.workloads.batches import Batches, HostBatches
from tracekit.workloads.gradients import zeroing
from tracekit.workloads.levels import allow_inner_gradients, runnable
from tracekit.workloads.offload import Offload

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from tracekit.workloads.base import Options

Tensors: TypeAlias = "tuple[torch.Tensor, ...]"


@dataclass(frozen=True, kw_only=True)
class Task:
    """What tells one workload from another; see `program`.

    Attributes:
        model: Makes the model on the host, in float32.
        data: Makes one batch on the host for an element type: what the model is called with, and what the
            loss compares with. The first dimension of each tensor counts the samples.
        loss: Loss from what the model returns and the targets, as a tensor of one element.
        optimizer: Makes the optimizer of the parameters.
        needs_grad: The model derives something by autograd when it infers, too.
    """

    model: Callable[[], torch.nn.Module]
    data: Callable[[torch.dtype], tuple[Tensors, Tensors]]
    loss: Callable[..., torch.Tensor]
    optimizer: Callable[[Iterable[torch.nn.Parameter]], torch.optim.Optimizer]
    needs_grad: bool = False


@dataclass(frozen=True, kw_only=True)
class Training:
    """One step: load, copy, zero the gradients, forward, backward, optimizer.

    Attributes:
        model: What is trained.
        forward: What runs in its place; see `tracekit.workloads.levels`.
    """

    model: torch.nn.Module
    forward: Callable[..., Any]
    batches: Batches
    loss: Callable[..., torch.Tensor]
    optimizer: torch.optim.Optimizer
    zero_grad: Callable[[torch.optim.Optimizer], None]
    offload: Offload

    def step(self) -> torch.Tensor:
        """Run one training step; returns the loss."""
        inputs, targets = self.batches.next()
        with self.offload.parameters(self.model):
            self.zero_grad(self.optimizer)
            with self.offload.activations():
                loss = self.loss(self.forward(*inputs), *targets)
            loss.backward()  # type: ignore[no-untyped-call]  # torch does not annotate it
            self.optimizer.step()
        return loss.detach()


@dataclass(frozen=True, kw_only=True)
class Inference:
    """One step: load, copy, forward; `forward` runs in place of the model."""

    model: torch.nn.Module
    forward: Callable[..., Any]
    batches: Batches
    no_grad: Callable[[], Any]
    offload: Offload

    def step(self) -> Any:
        """Run one inference step; returns what the model returns."""
        with self.no_grad():
            inputs, _ = self.batches.next()
            with self.offload.parameters(self.model):
                return self.forward(*inputs)


def program(task: Task, options: Options) -> Training | Inference:
    """Build a workload: parameters first, then data, both from the seed.

    Args:
        task: Model, data, loss and optimizer.
        options: How to build it.

    Example:
        >>> from torch.nn import Linear, functional
        >>> from tracekit.workloads.base import Options
        >>> task = Task(
        ...     model=lambda: Linear(3, 1),
        ...     data=lambda dtype: ((torch.ones(4, 3, dtype=dtype),), (torch.ones(4, 1, dtype=dtype),)),
        ...     loss=functional.mse_loss,
        ...     optimizer=sgd,
        ... )
        >>> options = Options(mode="train", device="cpu", batch_size=4, resolution=3)
        >>> program(task, options).step().shape
        torch.Size([])
    """
    torch.manual_seed(options.seed)
    dtype: torch.dtype = getattr(torch, options.dtype)
    device = torch.device(options.device)
    model = task.model().to(device=device, dtype=dtype)
    inputs, targets = task.data(dtype)
    batches = Batches(HostBatches(inputs, targets, pinned=options.pin_memory), device)
    moved = Offload(what=options.offload, device=device, pinned=options.pin_memory)
    training = options.mode == "train"
    if task.needs_grad and options.level == COMPILE:
        allow_inner_gradients()
    forward = _forward(model.train(training), batches.example, options)
    if not training:
        no_grad = torch.no_grad if task.needs_grad else torch.inference_mode
        return Inference(model=model, forward=forward, batches=batches, no_grad=no_grad, offload=moved)
    return Training(
        model=model,
        forward=forward,
        batches=batches,
        loss=task.loss,
        optimizer=task.optimizer(model.parameters()),
        zero_grad=zeroing(options.zero_grad),
        offload=moved,
    )


def _forward(model: torch.nn.Module, example: Callable[[], Tensors], options: Options) -> Callable[..., Any]:
    with torch.set_grad_enabled(options.mode == "train"):
        return runnable(model, example, options)


def sgd(parameters: Iterable[torch.nn.Parameter]) -> torch.optim.Optimizer:
    """The optimizer of the published studies of classifiers: learning rate 1e-3, momentum 0.9."""
    return torch.optim.SGD(parameters, lr=1e-3, momentum=0.9)
