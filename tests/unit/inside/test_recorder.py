"""Recording ends when gloo's threads write events no more."""

from __future__ import annotations

import hashlib
import sys
import threading
from pathlib import Path

import pytest

from tracekit.recording.agent import recorder


@pytest.mark.skipif(sys.platform != "linux", reason="threads are named under /proc")
def test_threads_of_gloo_that_run_are_found() -> None:
    named, end = threading.Event(), threading.Event()

    def collective() -> None:
        Path(f"/proc/self/task/{threading.get_native_id()}/comm").write_text("pt_gloo_runloop")
        named.set()
        while not end.is_set():
            hashlib.pbkdf2_hmac("sha256", b"", b"", 100_000)  # runs without the interpreter's lock

    thread = threading.Thread(target=collective)
    thread.start()
    named.wait()
    while not recorder._gloo_runs():
        pass
    end.set()
    thread.join()
    while recorder._gloo_runs():  # the system's thread ends after Python's
        pass


def test_waits_until_none_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    answers = [False, True, True]
    monkeypatch.setattr(recorder, "_gloo_runs", answers.pop)
    recorder._wait_for_gloo(60)
    assert answers == []


def test_waits_no_longer_than_the_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(recorder, "_gloo_runs", lambda: True)
    recorder._wait_for_gloo(0)
