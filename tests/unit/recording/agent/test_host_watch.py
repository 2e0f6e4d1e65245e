"""What watches a process ends with the recording, and is not in processes that it forks."""

from __future__ import annotations

import gc
import os

import pytest

from tracekit.recording.agent.host_watch import HostWatch


def test_a_forked_process_is_not_watched_and_neither_is_one_after_the_end() -> None:
    torch = pytest.importorskip("torch")
    former, watch = list(gc.callbacks), HostWatch(torch)
    watch.start()
    try:
        assert len(gc.callbacks) == len(former) + 1
        child = os.fork()
        if child == 0:
            os._exit(gc.callbacks != former)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    finally:
        watch.stop()
    assert gc.callbacks == former
    watch.stop()  # does nothing
