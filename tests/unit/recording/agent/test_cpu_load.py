"""Limits of processors by control groups of both versions, and the use of the CPU beside real processes."""

from __future__ import annotations

import json
import subprocess
import sys
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from tracekit.recording.agent import cpu_load
from tracekit.recording.agent.cpu_load import CpuLoad, control_groups, describe_cpus, read_cgroup_limit

if TYPE_CHECKING:
    from collections.abc import Iterator

needs_scheduler = pytest.mark.skipif(
    not Path("/proc/self/schedstat").exists(), reason="the system counts no waits for the CPU"
)
SPIN = "import sys; print(flush=True)\nwhile True: pass"
MEASURE = """
import json, subprocess, sys, time
from tracekit.recording.agent.cpu_load import CpuLoad
children = [subprocess.Popen([sys.executable, "-c", SPIN], stdout=-1) for _ in range(int(sys.argv[1]))]
for child in children:
    child.stdout.readline()
load = CpuLoad()
load.begin()
end = time.perf_counter() + 0.3
while time.perf_counter() < end:
    pass
load.step_ended()
load.end()
for child in children:
    child.kill()
    child.wait()
print(json.dumps(load.facts()))
""".replace("SPIN", repr(SPIN))


@contextmanager
def spinning() -> Iterator[None]:
    with subprocess.Popen([sys.executable, "-c", SPIN], stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        process.stdout.readline()
        try:
            yield
        finally:
            process.kill()


def measure(children: int = 0) -> dict[str, Any]:
    command = [sys.executable, "-c", MEASURE, str(children)]
    facts: dict[str, Any] = json.loads(subprocess.check_output(command))
    return facts


@needs_scheduler
def test_processes_of_others_count_apart_from_those_of_the_program() -> None:
    cores = describe_cpus()["affinity"]
    with ExitStack() as others:
        for _ in range(cores + 1):
            others.enter_context(spinning())
        beside = measure()
    capacity = beside["wall_ns"] * cores
    assert beside["others_ns"] > 0.4 * capacity
    assert beside["step_thread_wait_ns"] > 0.1 * beside["wall_ns"]
    assert beside["switches"] > 0
    parent = measure(children=cores)
    assert parent["program_ns"] - parent["cpu_ns"] > 0.05 * parent["wall_ns"]
    assert beside["program_ns"] == beside["cpu_ns"]


ENDS = """
import json, subprocess, sys, time
from tracekit.recording.agent.cpu_load import CpuLoad
WORK = "import time\\nprint(flush=True)\\nwhile time.process_time() < {}: pass"
def start(seconds):
    child = subprocess.Popen([sys.executable, "-c", WORK.format(seconds)], stdout=-1)
    child.stdout.readline()
    return child
early = start(9)
while int(open(f"/proc/{early.pid}/stat").read().split()[13]) < 20:
    pass
load = CpuLoad()
load.begin()
early.kill()
early.wait()
start(0.3).wait()
load.step_ended()
load.end()
print(json.dumps(load.facts()))
"""


@needs_scheduler
def test_processes_of_the_program_that_end_meanwhile_count_as_its_own() -> None:
    facts = json.loads(subprocess.check_output([sys.executable, "-c", ENDS]))
    # of the first child only what it used meanwhile, which is less than it had used before
    assert 250_000_000 < facts["program_ns"] - facts["cpu_ns"] < 480_000_000


def test_the_time_after_the_last_step_does_not_count(monkeypatch: pytest.MonkeyPatch) -> None:
    now_ns = 0
    monkeypatch.setattr(cpu_load.time, "perf_counter_ns", lambda: now_ns)
    load = CpuLoad()
    load.begin()
    now_ns = 10
    load.step_ended()
    now_ns = 100
    load.end()
    assert load.facts() == {}
    load.begin()
    now_ns = 200
    load.step_ended()
    now_ns = 201
    load.end()
    assert load.facts()["wall_ns"] == 101


def test_ticks_of_a_short_time_tell_nothing_of_others(monkeypatch: pytest.MonkeyPatch) -> None:
    now_ns = 0
    monkeypatch.setattr(cpu_load.time, "perf_counter_ns", lambda: now_ns)
    monkeypatch.setattr(cpu_load, "read_cores", lambda: (now_ns * 2, 0))
    for length_ns, are_known in ((50_000_000, False), (5_000_000_000, True)):
        load = CpuLoad()
        load.begin()
        now_ns += length_ns
        load.step_ended()
        load.end()
        facts = load.facts()
        assert [facts[name] is not None for name in ("others_ns", "steal_ns")] == [are_known] * 2


def test_without_proc_times_of_threads_and_others_are_unknown(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(cpu_load, "PROC", tmp_path / "proc")
    load = CpuLoad()
    load.begin()
    load.step_ended()
    load.end()
    facts = load.facts()
    unknown = {name for name, value in facts.items() if value is None}
    assert {"step_thread_wait_ns", "thread_wait_ns", "switches", "others_ns", "steal_ns"} <= unknown
    assert facts["wall_ns"] > 0


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


def test_the_groups_of_another_controller_are_found(tmp_path: Path) -> None:
    (tmp_path / "cgroup").write_text("4:memory:/job/step\n3:cpu,cpuacct:/other\n0::/\n")
    groups = [*control_groups(tmp_path, tmp_path / "cgroup", "memory")]
    assert groups == [tmp_path / "memory/job/step", tmp_path / "memory/job", tmp_path / "memory", tmp_path]
