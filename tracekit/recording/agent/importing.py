"""Do something once a module has been imported, without importing it."""

from __future__ import annotations

import sys
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable
    from importlib.machinery import ModuleSpec


def after_import(name: str, then: Callable[[Any], None]) -> None:
    """Call `then` with a module as soon as its import is done; what `then` raises is told and dropped."""
    sys.meta_path.insert(0, _Watch(name, then))


class _Watch:
    """Finds nothing by itself; leaves the list of finders when its module is first asked for."""

    def __init__(self, name: str, then: Callable[[Any], None]) -> None:
        self._name, self._then = name, then

    def find_spec(self, name: str, path: Any = None, target: Any = None) -> ModuleSpec | None:
        """As the import system asks."""
        if name != self._name:
            return None
        sys.meta_path.remove(self)
        spec = find_spec(name)
        if spec is None or spec.loader is None:
            sys.meta_path.insert(0, self)
            return None
        self._extend(spec.loader)
        return spec

    def _extend(self, loader: Any) -> None:
        original = loader.exec_module

        def execute(module: Any) -> None:
            loader.exec_module = original
            original(module)
            try:
                self._then(module)
            except Exception as error:  # the program comes first
                sys.stderr.write(f"tracekit: cannot record this program: {error!r}\n")

        loader.exec_module = execute
