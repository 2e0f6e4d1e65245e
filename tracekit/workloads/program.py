"""Run a workload's steps as users do: load a batch, copy it, run the model, and when training, update it.

Batches, clearing of gradients and offloading, which options of `tracekit collect` select, are here as well.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass
from functools import partial
from typing import Any, TypeAlias

import torch
from torch.profiler import record_function

from tracekit.workloads.base import COMPILE, Options
from tracekit.workloads.levels import allow_inner_gradients, at_level

ZeroGrad: TypeAlias = Callable[[torch.optim.Optimizer], None]
Tensors: TypeAlias = "tuple[torch.Tensor, ...]"
Batch: TypeAlias = "tuple[Tensors, Tensors]"
"""Inputs of the model, and targets of the loss."""

LOAD_RANGE = "enumerate(DataLoader)#HostBatches.__next__"
"""Range around loading a batch; torch's DataLoader uses the same form, which trace readers recognize."""
HOST = torch.device("cpu")


@dataclass(frozen=True, kw_only=True)
class Task:
    """Parts of a workload that `build_program` combines.

    Attributes:
        model: Makes the model on the host, in float32.
        data: Makes one batch on the host for an element type; the first dimension of each tensor counts the
            samples.
        loss: Loss from the model's output and the targets, as a tensor of one element.
        optimizer: Makes the optimizer of the parameters.
        needs_grad: The model uses autograd in inference, too.
    """

    model: Callable[[], torch.nn.Module]
    data: Callable[[torch.dtype], Batch]
    loss: Callable[..., torch.Tensor]
    optimizer: Callable[[Iterable[torch.nn.Parameter]], torch.optim.Optimizer]
    needs_grad: bool = False


@dataclass(frozen=True, kw_only=True)
class Training:
    """One step: load, copy, zero the gradients, forward, backward, optimizer."""

    model: torch.nn.Module  # trained model
    forward: Callable[..., Any]  # the model at its level; see `tracekit.workloads.levels`
    batches: Batches
    loss: Callable[..., torch.Tensor]
    optimizer: torch.optim.Optimizer
    zero_grad: ZeroGrad
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
    """One step: load, copy, forward; attributes as in `Training`."""

    model: torch.nn.Module
    forward: Callable[..., Any]
    batches: Batches
    no_grad: Callable[[], Any]
    offload: Offload

    def step(self) -> Any:
        """Run one inference step; returns the model's output."""
        with self.no_grad():
            inputs, _ = self.batches.next()
            with self.offload.parameters(self.model):
                return self.forward(*inputs)


def build_program(task: Task, options: Options) -> Training | Inference:
    """Build a workload: parameters first, then data, both from the seed.

    Example:
        >>> from functools import partial
        >>> from torch.nn import Linear, functional
        >>> from tracekit.workloads.base import Options
        >>> task = Task(
        ...     model=lambda: Linear(3, 1),
        ...     data=lambda dtype: ((torch.ones(4, 3, dtype=dtype),), (torch.ones(4, 1, dtype=dtype),)),
        ...     loss=functional.mse_loss,
        ...     optimizer=partial(torch.optim.SGD, lr=0.1),
        ... )
        >>> options = Options(mode="train", device="cpu", batch_size=4, resolution=3)
        >>> build_program(task, options).step().shape
        torch.Size([])
    """
    torch.manual_seed(options.seed)
    dtype: torch.dtype = getattr(torch, options.dtype)
    device = torch.device(options.device)
    training = options.mode == "train"
    model = task.model().to(device=device, dtype=dtype).train(training)
    batches = Batches(*task.data(dtype), device, pinned=options.pin_memory)
    offload = Offload(what=options.offload, device=device, pinned=options.pin_memory)
    if task.needs_grad and options.level == COMPILE:
        allow_inner_gradients()
    with torch.set_grad_enabled(training):
        forward = at_level(model, batches.example, options)
    if not training:
        no_grad = torch.no_grad if task.needs_grad else torch.inference_mode
        return Inference(model=model, forward=forward, batches=batches, no_grad=no_grad, offload=offload)
    return Training(
        model=model,
        forward=forward,
        batches=batches,
        loss=task.loss,
        optimizer=task.optimizer(model.parameters()),
        zero_grad=ZERO_GRAD[options.zero_grad],
        offload=offload,
    )


@dataclass(frozen=True)
class Batches:
    """One batch of random data in host memory, drawn in a new order each step, as a loader would, and copied.

    Attributes:
        inputs: Inputs of the model; the first dimension of each counts the samples.
        targets: Targets of the loss.
        device: Device of the model.
        pinned: Draw into page-locked memory, so that the host does not wait for the copies.
    """

    inputs: Tensors
    targets: Tensors
    device: torch.device
    pinned: bool = False

    def next(self) -> Batch:
        """Return the next batch on the device."""
        with record_function(LOAD_RANGE):
            order = torch.randperm(len(self.inputs[0]))
            inputs, targets = self._take(self.inputs, order), self._take(self.targets, order)
        return self._copy(inputs), self._copy(targets)

    def example(self) -> Tensors:
        """Return inputs as `next` does, on the device, without drawing random numbers."""
        return tuple(tensor.to(self.device) for tensor in self.inputs)

    def _take(self, tensors: Tensors, order: torch.Tensor) -> Tensors:
        drawn = (tensor[order] for tensor in tensors)
        # torch's caching host allocator keeps a pinned block until the copy has read it
        return tuple(tensor.pin_memory() if self.pinned else tensor for tensor in drawn)

    def _copy(self, tensors: Tensors) -> Tensors:
        return tuple(tensor.to(self.device, non_blocking=self.pinned) for tensor in tensors)


@dataclass(frozen=True, kw_only=True)
class Offload:
    """Keep parameters or activations in host memory between uses, copied there and back in each step.

    Without a GPU, the copies go from host memory to host memory.
    """

    what: str  # one of `tracekit.workloads.base.OFFLOADS`
    device: torch.device  # device of the model
    # keep activations in page-locked memory; parameters always return to pageable memory
    pinned: bool = False

    def parameters(self, model: torch.nn.Module) -> AbstractContextManager[None]:
        """Keep the parameters on the device inside the block."""
        return _on_device(model, self.device) if self.what == "parameters" else nullcontext()

    def activations(self) -> AbstractContextManager[Any]:
        """Move tensors saved for the backward pass in the block, parameters too, to the host until used."""
        if self.what != "activations":
            return nullcontext()
        hooks: Any = torch.autograd.graph.saved_tensors_hooks
        block: AbstractContextManager[Any] = hooks(self._to_host, self._to_device)
        return block

    def _to_host(self, tensor: torch.Tensor) -> tuple[torch.device, torch.Tensor]:
        host = torch.empty_like(tensor, device=HOST, pin_memory=self.pinned)
        return tensor.device, host.copy_(tensor)

    def _to_device(self, saved: tuple[torch.device, torch.Tensor]) -> torch.Tensor:
        device, host = saved
        # torch's caching host allocator keeps a pinned block until the copy has read it
        return host.to(device, non_blocking=self.pinned, copy=True)


@contextmanager
def _on_device(model: torch.nn.Module, device: torch.device) -> Iterator[None]:
    _move(model, device)
    try:
        yield
    finally:
        _move(model, HOST)


def _move(model: torch.nn.Module, device: torch.device) -> None:
    for parameter in model.parameters():
        parameter.data = parameter.data.to(device, copy=True)


def _fill(optimizer: torch.optim.Optimizer, *, at_once: bool) -> None:
    """Set all gradients to 0, in the range of `Optimizer.zero_grad`, which trace readers recognize."""
    with record_function(f"Optimizer.zero_grad#{type(optimizer).__name__}.zero_grad"):
        parameters = [p for group in optimizer.param_groups for p in group["params"]]
        gradients = [p.grad for p in parameters if p.grad is not None]
        if at_once and gradients:
            torch._foreach_zero_(gradients)
        elif not at_once:
            for gradient in gradients:
                gradient.zero_()


ZERO_GRAD: dict[str, ZeroGrad] = {
    "default": lambda optimizer: optimizer.zero_grad(),
    "zero": partial(_fill, at_once=False),
    "foreach": partial(_fill, at_once=True),
}
"""Ways to clear gradients, by the value of `--zero-grad`."""
