"""Samples of NVML through the real binding and a fake library."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pynvml
import pytest
from tracekit.collectors import nvml
from tracekit.collectors.nvml import NvmlSampler
from tracekit.collectors.sampling import sample_counters

from tests.unit.collectors.fake_nvml import Gpu, Library, installed, instance
from tracekit.recording import doctor
from tracekit.runs.nvml import QUERIES, SOURCE, M

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from tracekit.ingest.write import Sample

NO_SUCH_PROCESS = 2**22 + 1
OTHER = "GPU-bbbbbbbb-0000-0000-0000-000000000000"


def sampler(pid: int | None = None) -> NvmlSampler:
    found = NvmlSampler.of(os.getpid() if pid is None else pid)
    assert found
    return found


def values(samples: Sequence[Sample]) -> dict[str, float]:
    return {one.metric: one.value for one in samples}


@pytest.fixture(autouse=True)
def _all_visible(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("CUDA_VISIBLE_DEVICES", "CUDA_DEVICE_ORDER"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr("tracekit.collectors.nvml._sees_all_processes", lambda: True)


def codes(own: NvmlSampler) -> list[str]:
    return [one.code for one in own.diagnostics()]


def power(samples: Sequence[Sample]) -> dict[int | None, float]:
    return {one.device: one.value for one in samples if one.metric == M.POWER}


def gpus_of(*watts: int) -> list[Gpu]:
    """GPUs told apart by their power."""
    uuids = (Gpu().uuid, OTHER, "GPU-cccccccc-0000-0000-0000-000000000000")
    gpus = [Gpu(uuid=uuid) for uuid in uuids[: len(watts)]]
    for gpu, own in zip(gpus, watts, strict=True):
        gpu.answers["nvmlDeviceGetPowerUsage"] = own * 1_000
    return gpus


@pytest.mark.parametrize(
    ("code", "level"), [(pynvml.NVML_ERROR_NO_PERMISSION, "info"), (pynvml.NVML_ERROR_GPU_IS_LOST, "warn")]
)
@pytest.mark.parametrize(
    ("listed", "expected"), [(None, {0: 500, 1: 700}), ("1", {0: 700}), ("GPU-bbbb", None)]
)
def test_a_gpu_that_cannot_be_opened_does_not_affect_the_others(
    listed: str | None,
    expected: dict[int, float] | None,
    code: int,
    level: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    gpus = gpus_of(500, 600, 700)
    gpus[1].fails["open"] = code
    if listed is not None:
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", listed)
    with installed(monkeypatch, Library(*gpus)):
        own = NvmlSampler.of(os.getpid())
        if expected is None:
            assert own is None
            return
        assert own
        assert power(own.read()) == expected, "CUDA numbers the GPUs that can be opened"
    [closed] = own.diagnostics()
    assert (closed.code, closed.level) == ("nvml_device_closed", level)
    assert closed.message.startswith("NVML cannot open GPU 1: ")


@pytest.mark.parametrize(
    ("listed", "expected"), [("1,2,0", {0: 600}), ("1,0,2", {0: 600, 1: 500}), ("2", {})]
)
def test_a_list_of_visible_gpus_ends_at_the_first_that_there_is_not(
    listed: str, expected: dict[int, float], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", listed)
    with installed(monkeypatch, Library(*gpus_of(500, 600))):
        own = NvmlSampler.of(os.getpid())
        assert (power(own.read()) if own else {}) == expected


def test_without_a_count_of_gpus_there_is_no_sampler(monkeypatch: pytest.MonkeyPatch) -> None:
    library = Library(Gpu(), fails={"nvmlDeviceGetCount_v2": int(pynvml.NVML_ERROR_UNKNOWN)})
    with installed(monkeypatch, library):
        assert NvmlSampler.of(os.getpid()) is None
    assert library.started == 0


def test_a_sampler_that_cannot_be_made_releases_the_library(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tracekit.collectors.nvml._order_is_ambiguous", lambda *_: 1 // 0)
    with installed(monkeypatch, Library(Gpu())) as library, pytest.raises(ZeroDivisionError):
        sampler()
    assert library.started == 0


MIG = "MIG-cccccccc-1111-0000-0000-000000000000"
PLAIN = instance("MIG-dddddddd-1111-0000-0000-000000000000")


@pytest.mark.parametrize(
    ("listed", "expected"),
    [(None, [MIG, PLAIN.uuid, OTHER]), ("0", [MIG]), (PLAIN.uuid, [PLAIN.uuid]), ("MIG-none", [])],
)
def test_of_a_partitioned_gpu_its_instances_are_sampled(
    listed: str | None, expected: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    parts = [None, instance(MIG, profile="3g.40gb", memory=40 << 30), PLAIN]
    if listed is not None:
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", listed)
    with installed(monkeypatch, Library(Gpu(instances=parts), Gpu(uuid=OTHER))):
        monkeypatch.setenv("CUDA_DEVICE_ORDER", "PCI_BUS_ID")
        own = NvmlSampler.of(os.getpid())
        taken = own.read() if own else []
    total = {one.device: one.gpu for one in taken if one.metric == M.MEMORY_TOTAL}
    assert total == dict(enumerate(expected))
    if expected[:1] == [MIG]:
        assert own
        first = own.diagnostics()[0].message
        assert first.startswith("device 0 (Simulated GPU MIG 3g.40gb) gives no gpu_utilization_pct, ")
        assert first.endswith(
            "power_w, power_limit_w, energy_j, temperature_c, throttle_reasons, pcie_generation, "
            "pcie_generation_max, pcie_width, pcie_width_max, pcie_rx_gb_per_s, pcie_tx_gb_per_s: "
            "Not Supported"
        )


@pytest.mark.parametrize("seen", [MIG, Gpu().uuid])
def test_torch_may_have_the_uuid_of_an_instance_or_of_its_gpu(
    seen: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", PLAIN.uuid if seen == Gpu().uuid else MIG)
    monkeypatch.setitem(sys.modules, "torch", Torch(seen.partition("-")[2]))
    with installed(monkeypatch, Library(Gpu(instances=[PLAIN, instance(MIG)]))):
        taken = sampler().read()
    assert {one.gpu for one in taken} == {PLAIN.uuid if seen == Gpu().uuid else MIG}


def test_a_slow_answer_has_the_time_at_which_it_came(monkeypatch: pytest.MonkeyPatch) -> None:
    answered: list[int] = []

    def answer() -> None:
        time.sleep(0.02)
        answered.append(time.time_ns())

    gpu = Gpu(slow={"nvmlDeviceGetPowerUsage": lambda: (time.sleep(0.02), answered.append(time.time_ns()))})
    with installed(monkeypatch, Library(gpu, Gpu(uuid=OTHER))):
        taken = sampler().read()
    times = {(one.device, one.metric): one.t_unix_ns for one in taken}
    assert times[0, M.TEMPERATURE] >= times[0, M.POWER] >= answered[0] > times[0, M.SM_CLOCK]
    assert times[1, M.SM_CLOCK] > answered[0]


def test_every_metric_in_its_unit(monkeypatch: pytest.MonkeyPatch) -> None:
    gpu = Gpu(users={os.getpid(): 3 << 30})
    with installed(monkeypatch, Library(gpu)) as library:
        own = sampler()
        taken = own.read()
        own.close()
    assert library.started == 0
    assert values(taken) == {
        M.GPU_UTILIZATION: 97,
        M.MEMORY_UTILIZATION: 40,
        M.MEMORY_USED: 12 << 30,
        M.MEMORY_TOTAL: 80 << 30,
        M.SM_CLOCK: 1_500,
        M.SM_CLOCK_MAX: 1_980,
        M.MEMORY_CLOCK: 3_201,
        M.MEMORY_CLOCK_MAX: 3_201,
        M.POWER: pytest.approx(345.6),
        M.POWER_LIMIT: 700,
        M.ENERGY: pytest.approx(123_456),
        M.TEMPERATURE: 61,
        M.THROTTLE: 4,
        M.PCIE_GENERATION: 4,
        M.PCIE_GENERATION_MAX: 5,
        M.PCIE_WIDTH: 8,
        M.PCIE_WIDTH_MAX: 16,
        M.PCIE_RX: 12.5,
        M.PCIE_TX: 0.25,
        M.PROCESS_MEMORY: 3 << 30,
        M.OTHERS: 0,
    }
    assert {(one.source, one.device) for one in taken} == {(SOURCE, 0)}
    assert own.diagnostics() == []


def test_constant_metrics_are_queried_once(monkeypatch: pytest.MonkeyPatch) -> None:
    with installed(monkeypatch, Library(Gpu())):
        own = sampler()
        own.read()
        again = values(own.read())
    once = {name for one in QUERIES if one.once for name in one.names}
    assert once
    assert not once & again.keys()
    assert {M.SM_CLOCK, M.POWER} <= again.keys()


def test_an_unsupported_metric_is_reported_once(monkeypatch: pytest.MonkeyPatch) -> None:
    fails = {
        "nvmlDeviceGetPowerUsage": pynvml.NVML_ERROR_NOT_SUPPORTED,
        "nvmlDeviceGetUtilizationRates": pynvml.NVML_ERROR_NOT_SUPPORTED,
        "nvmlDeviceGetTemperature": pynvml.NVML_ERROR_NO_PERMISSION,
    }
    gpu = Gpu(fails=fails)
    with installed(monkeypatch, Library(gpu)):
        own = sampler()
        taken = values([*own.read(), *own.read()])
    assert not taken.keys() & {M.POWER, M.GPU_UTILIZATION, M.MEMORY_UTILIZATION, M.TEMPERATURE}
    assert taken[M.SM_CLOCK] == 1_500
    assert [one.message for one in own.diagnostics()] == [
        "device 0 gives no gpu_utilization_pct, memory_utilization_pct, power_w: Not Supported",
        "device 0 gives no temperature_c: Insufficient Permissions",
    ]
    assert gpu.calls.count("nvmlDeviceGetPowerUsage") == 1


def test_a_failed_query_is_repeated(monkeypatch: pytest.MonkeyPatch) -> None:
    gpu = Gpu(fails={"nvmlDeviceGetPowerUsage": pynvml.NVML_ERROR_UNKNOWN})
    with installed(monkeypatch, Library(gpu)):
        own = sampler()
        assert M.POWER not in values(own.read())
        gpu.fails.clear()
        assert M.POWER in values(own.read())


def test_a_lost_device_does_not_affect_the_others(monkeypatch: pytest.MonkeyPatch) -> None:
    lost = Gpu()
    with installed(monkeypatch, Library(lost, Gpu(uuid=OTHER))):
        own = sampler()
        assert {one.device for one in own.read()} == {0, 1}
        lost.fails["*"] = pynvml.NVML_ERROR_GPU_IS_LOST
        assert {one.device for one in own.read()} == {1}
        asked = len(lost.calls)
        own.read()
    assert len(lost.calls) == asked
    assert [one.message for one in own.diagnostics()] == ["device 0 stopped answering NVML: GPU is lost"]


def test_slow_queries_alternate_between_devices(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with installed(monkeypatch, Library(Gpu(), Gpu(uuid=OTHER))):
        own = sampler()
        asked = [{one.device for one in own.read() if one.metric == M.PCIE_RX} for _ in range(5)]
    assert asked == [{0}, set(), {1}, set(), {0}]


class Torch:
    """A torch that has started CUDA, as far as it is asked."""

    def __init__(self, *uuids: str) -> None:
        self.uuids, self.cuda = uuids, self

    def is_initialized(self) -> bool:
        return True

    def device_count(self) -> int:
        return len(self.uuids)

    def get_device_properties(self, index: int) -> Any:
        return SimpleNamespace(uuid=self.uuids[index])


@pytest.mark.parametrize(
    ("uuids", "expected"),
    [
        ((OTHER.removeprefix("GPU-"), Gpu().uuid.removeprefix("GPU-")), {0: 600, 1: 500}),
        (("an instance that NVML knows by another name",), {0: 500, 1: 600}),
    ],
)
def test_uuids_of_torch_precede_the_environment(
    uuids: tuple[str, ...], expected: dict[int, float], monkeypatch: pytest.MonkeyPatch
) -> None:
    gpus = [Gpu(), Gpu(uuid=OTHER)]
    for gpu, watts in zip(gpus, (500, 600), strict=True):
        gpu.answers["nvmlDeviceGetPowerUsage"] = watts * 1_000
    monkeypatch.setitem(sys.modules, "torch", Torch(*uuids))
    with installed(monkeypatch, Library(*gpus)):
        taken = sampler().read()
    assert {one.device: one.value for one in taken if one.metric == M.POWER} == expected


def test_different_gpus_have_an_ambiguous_order(monkeypatch: pytest.MonkeyPatch) -> None:
    gpus = Gpu(), Gpu(uuid=OTHER, name="Another GPU")
    with installed(monkeypatch, Library(*gpus)):
        assert "nvml_device_order" in [one.code for one in sampler().diagnostics()]
        monkeypatch.setenv("CUDA_DEVICE_ORDER", "PCI_BUS_ID")
        assert sampler().diagnostics() == []


def test_older_drivers_have_older_names_of_throttle_reasons(monkeypatch: pytest.MonkeyPatch) -> None:
    gpu = Gpu()
    gpu.answers["nvmlDeviceGetCurrentClocksThrottleReasons"] = 0x20
    with installed(monkeypatch, Library(gpu, missing=("nvmlDeviceGetCurrentClocksEventReasons",))):
        assert values(sampler().read())[M.THROTTLE] == 0x20


@pytest.mark.parametrize(
    ("listed", "expected"),
    [
        (None, {0: 500, 1: 600}),
        ("1,0", {0: 600, 1: 500}),
        ("1", {0: 600}),
        ("GPU-bbbb", {0: 600}),
        (OTHER + ",GPU-aaaaaaaa-0000-0000-0000-000000000000", {0: 600, 1: 500}),
        ("1,7,0", {0: 600}),
        ("0,-1,1", {0: 500}),
        ("MIG-1", {0: 70}),
    ],
)
def test_devices_have_the_indices_of_the_program(
    listed: str | None, expected: dict[int, float], monkeypatch: pytest.MonkeyPatch
) -> None:
    gpus = [Gpu(), Gpu(uuid=OTHER), Gpu(uuid="MIG-1")]
    for gpu, watts in zip(gpus, (500, 600, 70), strict=True):
        gpu.answers["nvmlDeviceGetPowerUsage"] = watts * 1_000
    library = Library(*gpus)
    monkeypatch.setattr(
        Library, "nvmlDeviceGetCount_v2", lambda _, count: setattr(count._obj, "value", 2) or 0
    )
    if listed is not None:
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", listed)
    with installed(monkeypatch, library):
        taken = sampler().read()
    assert {one.device: one.value for one in taken if one.metric == M.POWER} == expected


@pytest.mark.parametrize("listed", ["", "-1", "GPU-cccc", "GPU-"])
def test_no_visible_device_needs_no_sampler(listed: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", listed)
    with installed(monkeypatch, Library(Gpu(), Gpu(uuid=OTHER))) as library:
        assert NvmlSampler.of(os.getpid()) is None
    assert library.started == 0


def test_other_processes_exclude_the_process_tree(monkeypatch: pytest.MonkeyPatch) -> None:
    command = [sys.executable, "-c", "import sys; sys.stdin.read()"]
    with subprocess.Popen(command, stdin=subprocess.PIPE) as child:
        users = {os.getpid(): 1 << 30, child.pid: 2 << 30, os.getppid(): 4 << 30}
        with installed(monkeypatch, Library(Gpu(users=users))):
            taken = values(sampler().read())
            of_child = NvmlSampler.of(child.pid)
            child.kill()
            child.wait()
            assert of_child
            after = values(of_child.read())
    assert (taken[M.OTHERS], taken[M.PROCESS_MEMORY]) == (1, 3 << 30)
    assert after[M.OTHERS] == 2  # of a process that has ended, nothing more is found


@pytest.mark.parametrize(
    ("users", "others"),
    [
        ({}, None),  # in a container, the driver hides the processes outside of it
        ({NO_SUCH_PROCESS: 1 << 30}, None),  # or lists them by their numbers outside of it
        ({os.getppid(): 1 << 30}, None),  # which may be numbers of other processes inside
        ({os.getpid(): 1 << 30}, None),
        ({os.getpid(): 1 << 30, os.getppid(): 1 << 30}, 1),  # of the same container
    ],
)
def test_in_a_container_processes_that_are_not_listed_are_unknown(
    users: dict[int, int | None], others: int | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tracekit.collectors.nvml._sees_all_processes", lambda: False)
    with installed(monkeypatch, Library(Gpu(users=users))):
        own = sampler()
        taken = values([*own.read(), *own.read()])
    assert taken.get(M.OTHERS) == others
    assert taken.get(M.PROCESS_MEMORY) == users.get(os.getpid())
    assert codes(own) == ([] if others else ["nvml_processes_unknown"])


def test_outside_of_containers_an_empty_list_has_no_other_process(monkeypatch: pytest.MonkeyPatch) -> None:
    with installed(monkeypatch, Library(Gpu(users={}))):
        own = sampler()
        assert values(own.read())[M.OTHERS] == 0
    assert codes(own) == []


def test_processes_of_unknown_memory_are_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    with installed(monkeypatch, Library(Gpu(users={os.getpid(): None, os.getppid(): None}))):
        taken = values(sampler().read())
    assert (taken[M.OTHERS], taken.get(M.PROCESS_MEMORY)) == (1, None)


def test_a_driver_that_lists_no_processes_is_asked_once(monkeypatch: pytest.MonkeyPatch) -> None:
    function = "nvmlDeviceGetComputeRunningProcesses_v3"
    gpu = Gpu(fails={function: pynvml.NVML_ERROR_NOT_SUPPORTED})
    with installed(monkeypatch, Library(gpu)):
        own = sampler()
        assert M.OTHERS not in values([*own.read(), *own.read()])
    assert gpu.calls.count(function) == 1
    assert [one.message for one in own.diagnostics()] == [
        "device 0 gives no process_memory_bytes, other_processes: Not Supported"
    ]


@pytest.mark.parametrize(
    ("inode", "release", "expected"),
    [
        (0xEFFFFFFC, "6.8.0-generic", True),
        (0xEFFFFFFC, "5.15.153.1-microsoft-standard-WSL2", False),
        (4026532999, "6.8.0-generic", False),
        (None, "6.8.0-generic", False),
    ],
)
def test_containers_have_a_pid_namespace_of_their_own(
    inode: int | None, release: str, expected: bool, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.undo()  # of what all tests here replace
    known = SimpleNamespace(stat=lambda: SimpleNamespace(st_ino=inode))
    monkeypatch.setattr(nvml, "_NAMESPACE", known if inode else tmp_path / "none")
    monkeypatch.setattr("platform.release", lambda: release)
    assert nvml._sees_all_processes() is expected


def test_without_a_driver_only_the_process_is_sampled(monkeypatch: pytest.MonkeyPatch) -> None:
    library = Library()
    monkeypatch.setattr(library, "nvmlInitWithFlags", lambda _: int(pynvml.NVML_ERROR_DRIVER_NOT_LOADED))
    with installed(monkeypatch, library), sample_counters() as taken:
        pass
    assert {one.source for one in taken.samples()} == {"process"}
    assert taken.diagnostics() == ()


@pytest.mark.parametrize(
    ("fails", "status", "detail"),
    [
        ({}, "ok", "Simulated GPU: 19 of 19 NVML metrics"),
        (
            {"nvmlDeviceGetPowerUsage": pynvml.NVML_ERROR_NOT_SUPPORTED},
            "ok",
            "Simulated GPU: 18 of 19 NVML metrics, without power_w",
        ),
    ],
)
def test_doctor_reports_the_metrics_of_each_gpu(
    fails: dict[str, Any], status: str, detail: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    with installed(monkeypatch, Library(Gpu(fails=fails))):
        found, gpu = doctor._nvml()
    assert (found.detail, gpu.name, gpu.status, gpu.detail) == (
        "driver 580.00, 1 GPU",
        "gpu 0",
        status,
        detail,
    )


def test_a_real_gpu_is_sampled() -> None:
    own = NvmlSampler.of(os.getpid())
    if own is None:
        pytest.skip("no NVIDIA driver here")
    taken = values(own.read())
    own.close()
    assert taken[M.MEMORY_TOTAL] >= taken[M.MEMORY_USED] > 0
