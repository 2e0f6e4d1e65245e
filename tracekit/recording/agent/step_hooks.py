"""Detect steps of a program: steps of its first optimizer, or calls of the first module that it calls."""

from __future__ import annotations

import functools
import weakref
from collections.abc import Callable
from typing import Any

from .device import is_capturing

MAX_OTHER_STEPS = 100
"""Steps of other optimizers after which the first one counts as no longer used."""
_CALL = "__call__"


def watch_optimizers(torch: Any, *, made: Callable[[], None], stepped: Callable[[], None]) -> None:
    """Report optimizers that are made from now on, and the steps of the first.

    With several optimizers, as in a GAN, a step of the first one is a round of all. `step` is wrapped outside
    its hooks: a profiler step that ended in a hook would split torch's own annotation of the optimizer step.

    Args:
        torch: The program's torch.
        made: Called when an optimizer is made.
        stepped: Called after each step of the first optimizer.
    """
    optimizer_class, rounds = torch.optim.Optimizer, _Rounds(stepped)
    original = optimizer_class._patch_step_function

    @functools.wraps(original)
    def patch(self: Any) -> None:
        original(self)
        if not getattr(type(self).step, "tracekit", False):
            type(self).step = rounds.wrap(type(self).step)
        made()

    optimizer_class._patch_step_function = patch


class _Rounds:
    """Separate steps of the first optimizer from those of others."""

    def __init__(self, stepped: Callable[[], None]) -> None:
        self._stepped = stepped
        self._first: Callable[[], Any] = lambda: None
        self._inside = False
        self._others = 0

    def wrap(self, step: Any) -> Any:
        """Return a `step` that is reported if it succeeds; a nested one is part of the outer one."""

        @functools.wraps(step)
        def wrapped(optimizer: Any, *arguments: Any, **options: Any) -> Any:
            if self._inside:
                return step(optimizer, *arguments, **options)
            self._inside = True
            try:
                result = step(optimizer, *arguments, **options)
            finally:
                self._inside = False
            self._report(optimizer)
            return result

        wrapped.tracekit = True  # type: ignore[attr-defined]
        return wrapped

    def _report(self, optimizer: Any) -> None:
        first = self._first()
        if first is not optimizer and (first is None or self._others >= MAX_OTHER_STEPS):
            self._first = weakref.ref(optimizer)
            first = optimizer
        self._others = 0 if first is optimizer else self._others + 1
        if first is optimizer:
            self._stepped()


class ModuleCalls:
    """Report the first call of any module, and then the calls of that module.

    torch's own hooks cannot be used: global hooks break a first call that is being compiled, and a hook on
    the module would be saved with it. So `__call__` is replaced: on the base class until the first call
    begins, then on the class of that module, until `stop`. Compiled code uses the original. Calls that are
    captured into a CUDA graph are not executed, and are not reported.

    Args:
        torch: The program's torch.
        begun: Called when the first call begins; returns whether to report this and later calls.
        ended: Called after each call that succeeds.
    """

    def __init__(self, torch: Any, *, begun: Callable[[], bool], ended: Callable[[], None]) -> None:
        self._begun, self._ended, compiling = begun, ended, torch.compiler.is_compiling
        # in this order: Dynamo evaluates only the first while it compiles
        self._unseen: Callable[[], bool] = lambda: compiling() or is_capturing(torch)
        self._replaced: tuple[Any, Any, Any] | None = None
        self._replace(torch.nn.Module, self._first_call)

    def stop(self) -> None:
        """Restore the original call."""
        if self._replaced is None:
            return
        (owner, original, replacement), self._replaced = self._replaced, None
        if owner.__dict__.get(_CALL) is not replacement:  # replaced by others too, who will restore ours
            return
        if original is None:
            delattr(owner, _CALL)
        else:
            setattr(owner, _CALL, original)

    def _replace(self, owner: Any, wrap: Callable[[Any], Any]) -> None:
        original, replacement = owner.__dict__.get(_CALL), wrap(getattr(owner, _CALL))
        setattr(owner, _CALL, replacement)
        self._replaced = owner, original, replacement

    def _first_call(self, original: Any) -> Any:
        unseen, state = self._unseen, {"first": True}

        @functools.wraps(original)
        def wrapped(module: Any, *arguments: Any, **options: Any) -> Any:
            if unseen() or not state["first"]:
                return original(module, *arguments, **options)
            state["first"] = False
            self.stop()
            if not self._begun():
                return original(module, *arguments, **options)
            self._replace(type(module), lambda call: self._later_calls(call, module))
            result = original(module, *arguments, **options)
            self._ended()
            return result

        return wrapped

    def _later_calls(self, original: Any, first: Any) -> Any:
        unseen = self._unseen

        @functools.wraps(original)
        def wrapped(module: Any, *arguments: Any, **options: Any) -> Any:
            result = original(module, *arguments, **options)
            if module is first and not unseen():
                self._ended()
            return result

        return wrapped
