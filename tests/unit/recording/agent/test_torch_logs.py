"""Lines of torch about its profiler stay off standard error, and levels are afterwards as they were."""

from __future__ import annotations

import pytest

from tracekit.recording.agent.torch_logs import _KINETO, _KINETO_LEVEL, _TORCH, TorchLogs

torch = pytest.importorskip("torch")
LINES = ("USDT:", "Memory block of unknown size")


def profile(logs: TorchLogs) -> None:
    """Profile the end of tensors that were made before."""
    tensors = [torch.ones(1_000) for _ in range(10)]
    profiler = torch.profiler.profile(profile_memory=True)
    with logs.quiet_start():
        profiler.start()
    del tensors
    profiler.stop()
    logs.restore()


def test_a_profile_prints_nothing_and_restores_the_levels(
    capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv(_KINETO_LEVEL, raising=False)
    logs = TorchLogs(torch)
    if any(logs._find(level) is None for level in (_KINETO, _TORCH)):
        pytest.skip("this torch does not export its levels")
    for _ in range(2):  # Kineto reads its variable only once
        profile(logs)
    printed = capfd.readouterr().err
    assert not any(line in printed for line in LINES)
    levels = [logs._find(level) for level in (_KINETO, _TORCH)]
    assert [level.value for level in levels if level] == [_KINETO.usual, _TORCH.usual]


def test_levels_of_the_user_are_kept(
    capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(_KINETO_LEVEL, "4")
    profile(TorchLogs(torch))
    assert LINES[0] in capfd.readouterr().err
