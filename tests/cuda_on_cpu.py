"""Run a program on the CPU as if it had a GPU: `python -m tests.cuda_on_cpu PROGRAM ARGUMENTS...`.

Tensors for `cuda` are made on the CPU, streams and graphs run at once, events are times of the host, and
`torch.cuda._sleep` sleeps. What needs a real device, such as the kernels of a profile, is not there.
"""

from __future__ import annotations

import functools
import runpy
import sys
import time
from contextlib import contextmanager, nullcontext
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import torch
from torch.overrides import TorchFunctionMode
from torch.utils._pytree import tree_map

if TYPE_CHECKING:
    from collections.abc import Iterator

CLOCK_HZ = 1_000_000_000
MEMORY_BYTES = 80 << 30
PROPERTIES = SimpleNamespace(
    name="Simulated GPU",
    uuid="0" * 8,
    total_memory=MEMORY_BYTES,
    is_integrated=0,
    multi_processor_count=132,
    major=9,
    minor=0,
)


class OnHost(TorchFunctionMode):
    """Keeps on the CPU what a program puts on its GPU."""

    def __torch_function__(
        self, func: Any, _types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        if func in (torch.Tensor.cuda, torch.Tensor.pin_memory):
            return args[0]
        args, kwargs = tree_map(_host, (args, kwargs or {}))
        return func(*args, **kwargs)


def _host(value: Any) -> Any:
    named = isinstance(value, str) and value.startswith("cuda")
    return "cpu" if named or (isinstance(value, torch.device) and value.type == "cuda") else value


class Event:
    """An event that is recorded when the host comes to it."""

    def __init__(self, *, enable_timing: bool = False) -> None:
        self._timed, self._ns = enable_timing, 0

    def record(self, _stream: Any = None) -> None:
        self._ns = time.perf_counter_ns()

    def elapsed_time(self, end: Event) -> float:
        assert self._timed
        return (end._ns - self._ns) / 1e6


class Stream:
    """A stream whose work is done at once."""

    def wait_stream(self, _other: Stream) -> None:
        """Do nothing."""


class Graph:
    """A graph that counts its replays; they are allowed once it was captured."""

    captured, replays = False, 0

    def replay(self) -> None:
        assert self.captured
        self.replays += 1


@contextmanager
def capture(graph: Graph) -> Iterator[None]:
    yield
    graph.captured = True


def adam(*arguments: Any, capturable: bool, **options: Any) -> Any:
    """Adam for the CPU, which refuses `capturable`."""
    assert capturable
    return original_adam(*arguments, **options)


original_adam = torch.optim.Adam


def install() -> None:
    """Replace the parts of torch."""
    OnHost().__enter__()
    one = Stream()
    replaced = {
        "is_available": lambda: True,
        "device_count": lambda: 1,
        "set_device": lambda _index: None,
        "synchronize": lambda: None,
        "get_device_capability": lambda: (9, 0),
        "get_device_properties": lambda _index: PROPERTIES,
        "current_stream": lambda: one,
        "stream": lambda _stream: nullcontext(),
        "_sleep": lambda cycles: time.sleep(cycles / CLOCK_HZ),
        "Event": Event,
        "Stream": Stream,
        "CUDAGraph": Graph,
        "graph": capture,
    }
    for name, value in replaced.items():
        setattr(torch.cuda, name, value)
    torch.optim.Adam = functools.wraps(original_adam)(adam)  # type: ignore[misc, assignment]


if __name__ == "__main__":
    install()
    sys.argv = sys.argv[1:]
    runpy.run_path(sys.argv[0], run_name="__main__")
