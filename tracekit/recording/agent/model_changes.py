"""Changes of the model of a recorded program: of the first module with parameters that it calls.

`changes` describes the functions. Imports nothing of tracekit, as the other modules of the agent.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from functools import partial
from typing import Any

from .alternation import Applied

_CLASS: Any = vars(object)["__class__"]
_changes: list[Callable[[Any], None]] = []
"""What is called with the model, in this order, before its first call."""


def forget_changes() -> None:
    """Begin with no changes of a model."""
    _changes.clear()


def change_model(torch: Any, change: Callable[[Any], None], *, first: bool = False) -> None:
    """Call `change` with the first module with parameters that the program calls, before that call.

    `__call__` is replaced until then: a global hook of torch would break a first call that is compiled.

    Args:
        torch: The program's torch.
        change: Function of the module.
        first: Before the other changes.
    """
    _changes.insert(0 if first else len(_changes), change)
    if len(_changes) > 1:
        return
    owner = torch.nn.Module
    original = owner.__call__

    @functools.wraps(original)
    def call(self: Any, *arguments: Any, **options: Any) -> Any:
        if owner.__call__ is call and next(self.parameters(), None) is not None:
            owner.__call__ = original
            for change in _changes:
                change(self)
        return original(self, *arguments, **options)

    owner.__call__ = call


def compile_model(torch: Any, applied: Applied) -> None:
    """Compile the outermost module that is called first, unless the program has compiled it."""
    _compile(torch, applied)


def replay_compiled_model(torch: Any, applied: Applied) -> None:
    """Compile the outermost module, and launch its kernels as CUDA graphs."""
    _compile(torch, applied, mode="reduce-overhead")


def _compile(torch: Any, applied: Applied, **options: str) -> None:
    def compile_module(module: Any) -> None:
        if hasattr(module, "_orig_mod") or getattr(module, "_compiled_call_impl", None):
            return
        applied()
        plain, compiled = module.forward, torch.compile(module.forward, **options)

        def either(*arguments: Any, **named: Any) -> Any:
            return (compiled if applied.is_on else plain)(*arguments, **named)

        _replace_forward(module, compiled if applied.is_on else either)

    change_model(torch, compile_module, first=True)  # others, which count, are not to be compiled


def evaluate_model(torch: Any, applied: Applied) -> None:
    """Put the outermost module that is called first into evaluation mode, if gradients are off."""

    def evaluate(module: Any) -> None:
        if module.training and not torch.is_grad_enabled():
            applied()
            applied.follow(partial(_evaluate, module, []))

    change_model(torch, evaluate)


def _evaluate(module: Any, training: list[Any], on: bool) -> None:  # noqa: FBT001
    """Put a module into evaluation mode, or the layers back into training mode that were in it."""
    for layer in training:
        layer.training = True
    training.clear()
    if on:
        training += [layer for layer in module.modules() if layer.training]
        module.eval()


def compute_in_bfloat16(torch: Any, applied: Applied) -> None:
    """Run the outermost module that is called first under autocast to bfloat16, unless autocast is on."""
    _cast(torch, torch.bfloat16, applied, fits=lambda: True)


def infer_in_float16(torch: Any, applied: Applied) -> None:
    """Run it under autocast to float16 where gradients are off: those would need to be scaled."""
    _cast(torch, torch.float16, applied, fits=lambda: not torch.is_grad_enabled())


def _cast(torch: Any, dtype: Any, applied: Applied, *, fits: Callable[[], bool]) -> None:
    def wrap(module: Any) -> None:
        device = next(module.parameters()).device.type
        _surround(
            module,
            lambda: torch.autocast(device, dtype=dtype),
            applied,
            fits=lambda: fits() and not torch.is_autocast_enabled(device),
        )

    change_model(torch, wrap)


def infer_without_gradients(torch: Any, applied: Applied) -> None:
    """Run the outermost module that is called first in inference mode, in calls that do not train it."""

    def wrap(module: Any) -> None:
        _surround(
            module,
            torch.inference_mode,
            applied,
            fits=lambda: not module.training and torch.is_grad_enabled(),
        )

    change_model(torch, wrap)


def use_channels_last(torch: Any, applied: Applied) -> None:
    """Store the weights of the outermost module that is called first with channels last."""

    def convert(module: Any) -> None:
        convolutions = [layer for layer in module.modules() if isinstance(layer, torch.nn.Conv2d)]
        for layer in convolutions:  # weights of other ranks have no such order
            layer.to(memory_format=torch.channels_last)
        if convolutions:
            applied()

    change_model(torch, convert)


def _surround(
    module: Any, make_context: Callable[[], Any], applied: Applied, *, fits: Callable[[], bool]
) -> None:
    """Run each call of a module for which `fits` returns true in a context, while the change is on."""
    forward = module.forward

    @functools.wraps(forward)
    def surrounded(*arguments: Any, **options: Any) -> Any:
        if not applied.is_on or not fits():
            return forward(*arguments, **options)
        applied()
        with make_context():
            return forward(*arguments, **options)

    _replace_forward(module, surrounded)


def _replace_forward(module: Any, forward: Callable[..., Any]) -> None:
    """Let a module run another function, by a class of its own: copies and files of it are as before.

    What `torch.compile(model)` returns has a function of its own instead, which copies and files leave out.
    """
    if hasattr(module, "_orig_mod"):
        module.forward = forward
        return
    original: Any = type(module)
    plain = getattr(original, "_unchanged", original)

    class Changed(original):  # type: ignore[misc]
        __class__ = property(lambda _: plain)  # pickle compares it with the class that it stores
        _unchanged = plain

        def __reduce_ex__(self, protocol: Any) -> Any:
            function, arguments, *state = original.__reduce_ex__(self, protocol)
            return (function, tuple(plain if part is type(self) else part for part in arguments), *state)

    @functools.wraps(forward)
    def run(_: Any, *arguments: Any, **options: Any) -> Any:
        return forward(*arguments, **options)

    Changed.forward = run
    for name in ("__name__", "__qualname__", "__module__"):
        setattr(Changed, name, getattr(plain, name))
    _CLASS.__set__(module, Changed)
