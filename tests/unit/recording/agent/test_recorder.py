"""Recording ends after gloo's threads have stopped writing events."""

from __future__ import annotations

import hashlib
import sys
import threading
from pathlib import Path

import pytest

from tracekit.recording.agent import device, recorder


@pytest.mark.skipif(sys.platform != "linux", reason="threads are named under /proc")
def test_running_gloo_threads_are_found() -> None:
    named, end = threading.Event(), threading.Event()

    def collective() -> None:
        Path(f"/proc/self/task/{threading.get_native_id()}/comm").write_text("pt_gloo_runloop")
        named.set()
        while not end.is_set():
            hashlib.pbkdf2_hmac("sha256", b"", b"", 100_000)  # releases the GIL

    thread = threading.Thread(target=collective)
    thread.start()
    named.wait()
    while not recorder._gloo_is_running():
        pass
    end.set()
    thread.join()
    while recorder._gloo_is_running():  # the OS thread ends after Python's
        pass


def test_waits_until_no_gloo_thread_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    answers = [False, True, True]
    monkeypatch.setattr(recorder, "_gloo_is_running", answers.pop)
    recorder._wait_for_gloo(60)
    assert answers == []


def test_waits_no_longer_than_the_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(recorder, "_gloo_is_running", lambda: True)
    recorder._wait_for_gloo(0)


def test_a_thread_that_ends_while_threads_are_read_is_not_running(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(Path, "glob", lambda *_: [tmp_path / "ended"])
    assert not recorder._gloo_is_running()


def test_a_system_without_proc_has_no_peak_of_the_process(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    torch = pytest.importorskip("torch")
    status = tmp_path / "status"
    monkeypatch.setattr(device, "open", lambda *_, **__: status.open(), raising=False)
    assert device.peaks(torch) == ([], "")  # without the file
    status.write_text("VmRSS:\t12 kB\n")
    assert device.peaks(torch) == ([], "")
    status.write_text("VmRSS:\t12 kB\nVmHWM:\t34 kB\n")
    assert device.peaks(torch) == ([("process", None, "host_peak_bytes", 34.0 * 1024)], "")
