"""Limits of processors by control groups of both versions, and modes of torch."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tracekit.recording.agent.settings import read_cgroup_limit, read_settings

if TYPE_CHECKING:
    from pathlib import Path


@pytest.mark.parametrize(
    ("groups", "files", "limit"),
    [
        ("0::/job/step\n", {"job/cpu.max": "150000 100000", "job/step/cpu.max": "max 100000"}, 1.5),
        ("0::/host/path\n", {"cpu.max": "200000 100000"}, 2.0),
        ("4:memory:/job\n1:cpu,cpuacct:/\n0::/\n", {"cpu/cpu.cfs_quota_us": "50000"}, 0.5),
        ("1:cpu,cpuacct:/\n", {"cpu/cpu.cfs_quota_us": "-1"}, None),
        ("0::/\n", {"cpu.max": "max 100000"}, None),
    ],
    ids=["version 2", "container", "version 1", "unlimited by 1", "unlimited by 2"],
)
def test_the_lowest_limit_of_the_groups_counts(
    tmp_path: Path, groups: str, files: dict[str, str], limit: float | None
) -> None:
    for name, text in {**files, "cpu/cpu.cfs_period_us": "100000"}.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    (tmp_path / "cgroup").write_text(groups)
    assert read_cgroup_limit(tmp_path, tmp_path / "cgroup") == limit


def test_modes_of_the_calling_thread_are_read() -> None:
    torch = pytest.importorskip("torch")
    with torch.inference_mode(), torch.autocast("cpu"):
        modes = read_settings(torch)["modes"]
    assert modes["autocast"] == ["cpu bfloat16"]
    assert (modes["grad"], modes["inference"]) == (False, True)
    with torch.autograd.set_detect_anomaly(True):
        assert read_settings(torch)["modes"]["anomaly_detection"]
    assert "autocast" not in read_settings(torch)["modes"]
