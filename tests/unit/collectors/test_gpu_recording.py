"""Recordings on a GPU: a child that reports one as torch would, sampled through the fake NVML."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from typing import TYPE_CHECKING, Any

import pytest
from tracekit.collectors import torch_profiler, workload_process
from tracekit.collectors.libtorch import prepare

from tests.cpp import needs_toolchain
from tests.unit.collectors.fake_nvml import Gpu, Library, installed
from tracekit.recording.collect import decide
from tracekit.recording.collector import Program, Request, silent
from tracekit.runs.nvml import M
from tracekit.runs.toolchain import find_toolchain

if TYPE_CHECKING:
    from pathlib import Path

    from tracekit.recording.collector import Recording

A, B = Gpu().uuid, "GPU-bbbbbbbb-0000-0000-0000-000000000000"
BUSY = "init.cpp:155] failed with error CUPTI_ERROR_HARDWARE_BUSY (26)"
WAIT = """
import json, sys, time
from pathlib import Path
def wait_for(path):
    while not Path(path).exists():
        time.sleep(0.001)
"""
WORKLOAD = (
    WAIT
    + """
def send(**event):
    print(json.dumps(event), flush=True)
print(sys.argv[2], file=sys.stderr, flush=True)
send(event="progress", part="measure", done=0, total=1)
wait_for(sys.argv[1])
send(event="progress", part="profile", done=1, total=1)
send(event="result", **json.loads(sys.argv[3]))
"""
)
RANKS = (
    WAIT
    + """
folder, facts = Path(sys.argv[1]), json.loads(sys.argv[2])
for rank in facts:
    (folder / f"rank-{rank}.claim").touch()
wait_for(folder / "sampled")
for rank, content in facts.items():
    (folder / f"rank-{rank}.json").touch()
    (folder / f"rank-{rank}.facts").write_text(json.dumps(content))
"""
)


def described(*uuids: str) -> dict[str, Any]:
    return {"gpus": [{"index": index, "uuid": one, "sm_count": 132} for index, one in enumerate(uuids)]}


def powers(recording: Recording) -> set[tuple[int | None, int | None, float]]:
    return {(one.rank, one.device, one.value) for one in recording.samples if one.metric == M.POWER}


def two_gpus(marker: Path) -> Library:
    """GPUs of 500 W and 600 W; the file is made once both have been asked for their power."""
    gpus = Gpu(), Gpu(uuid=B, slow={"nvmlDeviceGetTemperature": marker.touch})
    for gpu, watts in zip(gpus, (500, 600), strict=True):
        gpu.answers["nvmlDeviceGetPowerUsage"] = watts * 1_000
    return Library(*gpus)


@pytest.fixture(autouse=True)
def _all_visible(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)


def test_a_workload_keeps_the_messages_of_cupti_and_the_numbers_of_torch(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    peak = [0, "torch", 0, "device_peak_allocated_bytes", "bytes", 5.0]
    names = ("t_unix_ns", "source", "device", "metric", "unit", "value")
    result = {
        "trace": "trace.json",
        "device": "cuda",
        "threads": 1,
        "version": "2.13",
        "step_ns": [1],
        "warmup_ns": [],
        "clock": "cuda_event",
        "compilation": None,
        "options": {},
        "batch_size": 4,
        "notes": [],
        "samples": [dict(zip(names, peak, strict=True))],
        "environment": described(B, A),  # the fastest first
    }
    marker = tmp_path / "sampled"
    arguments = ("-c", WORKLOAD, str(marker), BUSY, json.dumps(result))
    monkeypatch.setattr(workload_process, "COMMAND", (sys.executable, *arguments))
    with installed(monkeypatch, two_gpus(marker)):
        request = decide(Request(workload="mnist_cnn"))
        found = torch_profiler.TorchProfilerCollector().record(request, tmp_path, progress=silent)
    assert powers(found) == {(0, 0, 600.0), (0, 1, 500.0)}
    [said] = [one.message for one in found.diagnostics if one.code == "cupti"]
    assert said.startswith("failed with error CUPTI_ERROR_HARDWARE_BUSY (26): another profiler")


def test_ranks_that_choose_their_devices_have_their_own_samples(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    facts = {
        rank: {
            "world_size": 2,
            "source": "marked",
            "requested_steps": 1,
            "recorded_steps": 1,
            "step_ns": [],
            "device": "cuda",
            "threads": 1,
            "version": "2.13",
            "options": {},
            "peaks": [["torch", 0, "device_peak_allocated_bytes", 5.0]],
            "program": {},
            "host_samples": {"samples": [], "stacks": []},
            "began_unix_ns": 0,
            "notes": [],
            "job": "j",
            "window": 1,
            "environment": described(uuid),
        }
        for rank, uuid in enumerate((B, A))
    }
    program = Program(command=(sys.executable, "-c", RANKS, str(tmp_path), json.dumps(facts)))
    with installed(monkeypatch, two_gpus(tmp_path / "sampled")):
        found = torch_profiler.TorchProfilerCollector().record_program(program, tmp_path, progress=silent)
    assert powers(found) == {(0, 0, 600.0), (1, 0, 500.0)}


@pytest.mark.parametrize("backend", ["cuda", "hip"])
def test_the_libraries_of_the_build_are_linked(backend: str, tmp_path: Path) -> None:
    needs_toolchain()
    tools, root = find_toolchain(), tmp_path / "torch"
    names = ["torch", "torch_cpu", "c10", f"torch_{backend}", f"c10_{backend}"]
    (root / "lib").mkdir(parents=True)
    for name in names:
        (root / "lib" / f"lib{name}.so").touch()
    prefix = root / "share" / "cmake"
    settings = [f"-DCMAKE_PREFIX_PATH={prefix}", "-DTORCH_CXX11_ABI=1"]
    command = [str(tools.cmake), "-S", str(prepare.SOURCE), "-B", str(tmp_path / "build"), *settings]
    subprocess.run([*command, "-G", "Unix Makefiles"], check=True, capture_output=True)
    line = (tmp_path / "build/CMakeFiles/tracekit_libtorch.dir/link.txt").read_text()
    linked = re.findall(r"-l(\w*(?:torch|c10)\w*)", line)  # CMake names a file without a soname so
    assert linked == names
