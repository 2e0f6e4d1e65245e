"""Times of steps on the device's own clock, by CUDA events around each.

An event is a mark in a stream: the device notes when it passes it. The host does not wait, so steps run as
they do when nobody times them. A step's time is that between its two events: it contains what the device
waited for the host, and where the host runs ahead of the device, steps do not overlap.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable


class EventTimer:
    """Times calls on the current stream of the current device.

    Example:
        >>> timer = EventTimer()  # doctest: +SKIP
        >>> for _ in range(5):  # doctest: +SKIP
        ...     timer.time(step)
        >>> timer.durations_ns()  # doctest: +SKIP
    """

    def __init__(self) -> None:
        import torch

        self._torch: Any = torch
        self._pairs: list[tuple[Any, Any]] = []
        torch.cuda.synchronize()  # what runs still belongs to no step

    def start(self) -> None:
        """Mark the beginning of a step."""
        pair = self._event(), self._event()
        pair[0].record()
        self._pairs.append(pair)

    def stop(self) -> None:
        """Mark the end of the step begun last."""
        self._pairs[-1][1].record()

    def time(self, step: Callable[[], object]) -> None:
        """Run one step between marks."""
        self.start()
        step()
        self.stop()

    def durations_ns(self) -> list[int]:
        """Time of each step, ns, once the device is done; events tell it to about half a microsecond."""
        self._torch.cuda.synchronize()
        return [round(start.elapsed_time(end) * 1e6) for start, end in self._pairs]

    def _event(self) -> Any:
        return self._torch.cuda.Event(enable_timing=True)
