"""Hears of the calls of the first module that a program calls: the steps of one that does not train."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable


class Calls:
    """Watches for the first call of any module, and then the calls of that module.

    Hooks of all modules slow all calls, so they last until the end of the first call only; one on the
    module itself would be saved with it. What stays is on its class, until `stop`.

    Args:
        torch: The program's torch.
        begun: Called when the first call begins; whether it and the next are to be heard.
        ended: Called after each call that ends well.
    """

    def __init__(self, torch: Any, *, begun: Callable[[], bool], ended: Callable[[], None]) -> None:
        self._torch, self._begun, self._ended = torch, begun, ended
        self._module: Any = None
        self._unpatch: Callable[[], None] | None = None
        hooks = torch.nn.modules.module
        self._handles = [hooks.register_module_forward_pre_hook(self._first)]

    def stop(self) -> None:
        """Hear no more."""
        while self._handles:
            self._handles.pop().remove()
        if self._unpatch:
            self._unpatch()
            self._unpatch = None

    def _first(self, module: Any, _inputs: Any) -> None:
        if self._torch.compiler.is_compiling():
            return
        self.stop()
        if self._begun():
            self._module = module
            hooks = self._torch.nn.modules.module
            self._handles.append(hooks.register_module_forward_hook(self._first_done))
            self._patch(type(module))

    def _first_done(self, module: Any, _inputs: Any, _output: Any) -> None:
        if module is self._module:
            self._handles.pop().remove()
            self._ended()

    def _patch(self, kind: Any) -> None:
        original, own = kind.__call__, "__call__" in kind.__dict__

        def called(module: Any, *arguments: Any, **options: Any) -> Any:
            if module is not self._module or self._torch.compiler.is_compiling():
                return original(module, *arguments, **options)
            while self._handles:  # the first call has failed
                self._handles.pop().remove()
            result = original(module, *arguments, **options)
            self._ended()
            return result

        def restore() -> None:
            if own:
                kind.__call__ = original
            else:
                del kind.__call__

        kind.__call__, self._unpatch = called, restore
