"""Modes of torch."""

from __future__ import annotations

import pytest

from tracekit.recording.agent.settings import read_settings


def test_modes_of_the_calling_thread_are_read() -> None:
    torch = pytest.importorskip("torch")
    with torch.inference_mode(), torch.autocast("cpu"):
        modes = read_settings(torch)["modes"]
    assert modes["autocast"] == ["cpu bfloat16"]
    assert (modes["grad"], modes["inference"]) == (False, True)
    with torch.autograd.set_detect_anomaly(True):
        assert read_settings(torch)["modes"]["anomaly_detection"]
    assert "autocast" not in read_settings(torch)["modes"]
