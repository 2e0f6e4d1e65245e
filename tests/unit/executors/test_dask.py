"""What a worker of a Dask cluster does around a task."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any

import pytest

from tests.environment import HANG_SECONDS

distributed = pytest.importorskip("distributed")
from tracekit.executors import dask as executor  # noqa: E402 (it needs distributed)


class _Worker:
    """What is asked of a worker, whose event loop is the running one."""

    def __init__(self, nanny: str, rpc: Any = None) -> None:
        self.nanny, self.rpc = nanny, rpc
        self.loop = SimpleNamespace(asyncio_loop=asyncio.get_running_loop())


def test_no_task_runs_before_the_nanny_of_its_worker_has_started() -> None:
    """A nanny that has not would not restart a worker that the task ends."""
    events: list[str] = []

    class LateNanny(distributed.core.Server):  # type: ignore[misc,name-defined]
        async def start_unsafe(self) -> LateNanny:
            await self.listen("tcp://127.0.0.1:0")
            listening.set()
            await asked.wait()
            events.append("nanny started")
            return self

        async def _handle_comm(self, comm: Any) -> None:
            asked.set()
            await super()._handle_comm(comm)

    async def run() -> None:
        nanny = LateNanny({})
        starting = asyncio.ensure_future(nanny.start())
        await listening.wait()
        rpc = await distributed.core.ConnectionPool()
        await asyncio.to_thread(executor._wait_for_nanny, _Worker(nanny.address, rpc))
        events.append("task runs")
        asked.set()
        await starting
        await rpc.close()
        await nanny.close()

    listening, asked = asyncio.Event(), asyncio.Event()
    asyncio.run(asyncio.wait_for(run(), HANG_SECONDS))
    assert events == ["nanny started", "task runs"]


def test_a_nanny_that_is_gone_is_not_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    async def run() -> None:
        async def refuse(_worker: Any) -> None:
            raise OSError("no such address")

        monkeypatch.setattr(executor, "_identify_nanny", refuse)
        await asyncio.to_thread(executor._wait_for_nanny, _Worker("tcp://127.0.0.1:1"))

    asyncio.run(asyncio.wait_for(run(), HANG_SECONDS))
