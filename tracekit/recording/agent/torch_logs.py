"""Keep lines that torch writes about the profiler off the program's standard error, while it runs.

Kineto reports `USDT:` at its start and stop, and torch's allocator that it frees memory which was allocated
before. Both follow levels that the libraries export; where they do not, the lines remain.
"""

from __future__ import annotations

import ctypes
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

_SUFFIX = "dylib" if sys.platform == "darwin" else "so"
_KINETO_LEVEL = "KINETO_LOG_LEVEL"  # variable that Kineto reads when it is first used


@dataclass(frozen=True)
class _Level:
    """Level of a library's log: the one that is usual, and one that leaves out the lines."""

    library: str
    symbol: str
    usual: int
    quiet: int


_KINETO = _Level("torch_cpu", "_ZN9libkineto6Logger14severityLevel_E", 4, 6)
_TORCH = _Level("c10", "FLAGS_caffe2_log_level", 1, 2)
"""Leaves out all C++ warnings of torch; those in Python remain."""


class TorchLogs:
    """Levels of the logs of torch's libraries; those that the user chose are kept.

    Args:
        torch: The program's torch.
    """

    def __init__(self, torch: Any) -> None:
        self._folder = Path(torch.__file__).parent / "lib" if getattr(torch, "__file__", None) else None
        self._changed: dict[_Level, ctypes.c_int] = {}

    @contextmanager
    def quiet_start(self) -> Iterator[None]:
        """Leave out the lines from now on until `restore`; the block starts the profiler."""
        if self._folder is None or _KINETO_LEVEL in os.environ:
            yield
            return
        self._change(_TORCH)
        self._change(_KINETO)
        os.environ[_KINETO_LEVEL] = str(_KINETO.quiet)  # read if this process has not used Kineto
        try:
            yield
        finally:
            os.environ.pop(_KINETO_LEVEL, None)
            level = self._find(_KINETO)
            if level is not None and level.value == _KINETO.quiet:
                self._changed[_KINETO] = level

    def restore(self) -> None:
        """Restore the levels."""
        for changed, level in self._changed.items():
            level.value = changed.usual
        self._changed.clear()

    def _change(self, wanted: _Level) -> None:
        level = self._find(wanted)
        if level is not None and level.value == wanted.usual:
            level.value = wanted.quiet
            self._changed[wanted] = level

    def _find(self, wanted: _Level) -> ctypes.c_int | None:
        if self._folder is None:
            return None
        with suppress(OSError, ValueError):  # there is no such library or symbol
            library = ctypes.CDLL(str(self._folder / f"lib{wanted.library}.{_SUFFIX}"))
            return ctypes.c_int.in_dll(library, wanted.symbol)
        return None
