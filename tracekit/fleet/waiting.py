"""Tasks that no worker has yet, by the host that each should rather run on."""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence


class Waiting:
    """Numbers of tasks.

    Example:
        >>> waiting = Waiting(["a", "b", "", "gone"])
        >>> [waiting.take("a", {"a", "b"}, alone=True) for _ in range(4)]
        [0, 2, 3, None]
        >>> waiting.indices()
        [1]
    """

    def __init__(self, near: Sequence[str]) -> None:
        """All tasks wait.

        Args:
            near: For each task its host, "" for any.
        """
        self._near = near
        self._crowd: dict[str, deque[int]] = {}
        self._single: dict[str, deque[int]] = {}
        for index in range(len(near)):
            self.put_back(index, alone=False)

    def __bool__(self) -> bool:
        return bool(self._crowd or self._single)

    def indices(self) -> list[int]:
        """All that wait."""
        return [index for queues in (self._crowd, self._single) for each in queues.values() for index in each]

    def clear(self) -> None:
        """Let nothing wait."""
        self._crowd.clear()
        self._single.clear()

    def put_back(self, index: int, *, alone: bool) -> None:
        """Have a task wait, behind the others.

        Args:
            index: Its number.
            alone: Whether it must have a worker to itself.
        """
        queues = self._single if alone else self._crowd
        queues.setdefault(self._near[index], deque()).append(index)

    def take(self, host: str, hosts: Collection[str], *, alone: bool) -> int | None:
        """The next task for a worker.

        Args:
            host: The worker's host.
            hosts: Those of all workers; who should run elsewhere, where nobody is, may run here.
            alone: Whether the worker has nothing else to do.
        """
        for queues in (self._crowd, self._single) if alone else (self._crowd,):
            for near in (host, "", *(other for other in queues if other not in hosts)):
                if near in queues:
                    return _taken(queues, near)
        return None


def _taken(queues: dict[str, deque[int]], near: str) -> int:
    index = queues[near].popleft()
    if not queues[near]:
        del queues[near]
    return index
