"""Hears of optimizers: that one is made, and that the first of them has stepped.

The end of a step lies behind torch's own annotation of it, so `step` is wrapped around its hooks: from
inside a hook, a profiler's step would end in the middle of that annotation.
"""

from __future__ import annotations

import functools
import weakref
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable

ADOPT_AFTER = 100
"""Steps of others after which the first optimizer counts as no longer used."""


def watch_optimizers(torch: Any, *, made: Callable[[], None], stepped: Callable[[], None]) -> None:
    """Be told of every optimizer that is made from now on, and of every round of them.

    Args:
        torch: The program's torch.
        made: Called when an optimizer is made.
        stepped: Called after each step of the first optimizer, which with several (as in a GAN) is a round.
    """
    kind, rounds = torch.optim.Optimizer, _Rounds(stepped)
    original = kind._patch_step_function

    @functools.wraps(original)
    def patch(self: Any) -> None:
        original(self)
        if not getattr(type(self).step, "tracekit", False):
            type(self).step = rounds.around(type(self).step)
        made()

    kind._patch_step_function = patch


class _Rounds:
    """Tells rounds of the first optimizer from steps of the others."""

    def __init__(self, stepped: Callable[[], None]) -> None:
        self._stepped = stepped
        self._first: Callable[[], Any] = lambda: None
        self._inside = False
        self._others = 0

    def around(self, step: Any) -> Any:
        """A `step` that is heard of when it has ended well; one inside of another is part of it."""

        @functools.wraps(step)
        def heard(optimizer: Any, *arguments: Any, **options: Any) -> Any:
            if self._inside:
                return step(optimizer, *arguments, **options)
            self._inside = True
            try:
                result = step(optimizer, *arguments, **options)
            finally:
                self._inside = False
            self._hear(optimizer)
            return result

        heard.tracekit = True  # type: ignore[attr-defined]
        return heard

    def _hear(self, optimizer: Any) -> None:
        first = self._first()
        if first is not optimizer and (first is None or self._others >= ADOPT_AFTER):
            self._first = weakref.ref(optimizer)
            first = optimizer
        self._others = 0 if first is optimizer else self._others + 1
        if first is optimizer:
            self._stepped()
