"""Hears of the calls of the first module that a program calls: the steps of one that does not train."""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable

CALL = "__call__"


class Calls:
    """Watches for the first call of any module, and then the calls of that module.

    torch's own hooks would not do: those of all modules break a first call that is being compiled, and one on
    the module would be saved with it. So `__call__` is replaced, until the first call begins on the base
    class, then on the class of that module alone, until `stop`. Code that is compiled sees the original.

    Args:
        torch: The program's torch.
        begun: Called when the first call begins; whether it and the next are to be heard.
        ended: Called after each call that ends well.
    """

    def __init__(self, torch: Any, *, begun: Callable[[], bool], ended: Callable[[], None]) -> None:
        self._begun, self._ended, self._compiling = begun, ended, torch.compiler.is_compiling
        self._replaced: tuple[Any, Any, Any] | None = None
        self._replace(torch.nn.Module, self._waiting)

    def stop(self) -> None:
        """Hear no more."""
        if self._replaced is None:
            return
        (kind, own, ours), self._replaced = self._replaced, None
        if kind.__dict__.get(CALL) is not ours:  # someone has replaced it too, and will put ours back
            return
        if own is None:
            delattr(kind, CALL)
        else:
            setattr(kind, CALL, own)

    def _replace(self, kind: Any, make: Callable[[Any], Any]) -> None:
        own, ours = kind.__dict__.get(CALL), make(getattr(kind, CALL))
        setattr(kind, CALL, ours)
        self._replaced = kind, own, ours

    def _waiting(self, original: Any) -> Any:
        compiling, state = self._compiling, {"first": True}

        @functools.wraps(original)
        def called(module: Any, *arguments: Any, **options: Any) -> Any:
            if compiling() or not state["first"]:
                return original(module, *arguments, **options)
            state["first"] = False
            self.stop()
            if not self._begun():
                return original(module, *arguments, **options)
            self._replace(type(module), lambda call: self._following(call, module))
            result = original(module, *arguments, **options)
            self._ended()
            return result

        return called

    def _following(self, original: Any, first: Any) -> Any:
        compiling = self._compiling

        @functools.wraps(original)
        def called(module: Any, *arguments: Any, **options: Any) -> Any:
            result = original(module, *arguments, **options)
            if module is first and not compiling():
                self._ended()
            return result

        return called
