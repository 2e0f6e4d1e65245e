"""The description of GPUs and of torch's build and settings, with fakes that fail as the real ones may."""

from __future__ import annotations

import sys
import warnings
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pynvml
import pytest

from tests.unit.collectors.fake_nvml import Gpu, Library, installed, instance
from tracekit.runs import environment
from tracekit.runs.meta import fingerprint

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

OTHER = "GPU-bbbbbbbb-0000-0000-0000-000000000000"
LOST = int(pynvml.NVML_ERROR_GPU_IS_LOST)


class Cuda:
    """`torch.cuda` of a build for a GPU; only `init` and what needs it initialize CUDA."""

    def __init__(
        self, *devices: Any, initialized: bool = False, init_error: str = "", warning: str = ""
    ) -> None:
        self.devices, self.initialized = devices, initialized
        self._error, self._warning = init_error, warning

    def is_initialized(self) -> bool:
        return self.initialized

    def is_available(self) -> bool:
        self.initialized = True  # cudaGetDeviceCount calls cuInit, after which a program must not fork
        if self._warning:
            warnings.warn(self._warning, stacklevel=2)
        return bool(self.devices) and not self._error

    def init(self) -> None:
        self.initialized = True
        if self._error:
            raise RuntimeError(self._error)

    def device_count(self) -> int:
        self.initialized = True
        return len(self.devices)

    def get_device_name(self, index: int) -> str:
        return str(self.get_device_properties(index).name)

    def get_device_properties(self, index: int) -> Any:
        self.initialized = True
        if self.devices[index] is None:
            raise RuntimeError("CUDA error: device is lost\nCUDA kernel errors might be reported later")
        return self.devices[index]


def torch_of(cuda: Cuda | None = None, *, built: str | None = "13.0", hip: str | None = None) -> Any:
    version = SimpleNamespace(cuda=built, hip=hip)
    cudnn = SimpleNamespace(
        version=lambda: 91400, enabled=True, benchmark=True, deterministic=False, allow_tf32=True
    )
    matmul = SimpleNamespace(allow_tf32=True)
    backends = SimpleNamespace(cudnn=cudnn, cuda=SimpleNamespace(matmul=matmul))
    return SimpleNamespace(
        __version__="2.13.0",
        version=version,
        cuda=cuda or Cuda(),
        backends=backends,
        get_float32_matmul_precision=lambda: "high",
    )


def device(uuid: str, name: str = "NVIDIA H100") -> Any:
    return SimpleNamespace(
        name=name, uuid=uuid, total_memory=80 << 30, multi_processor_count=132, major=9, minor=0
    )


@pytest.fixture
def use(monkeypatch: pytest.MonkeyPatch) -> Callable[[Any], Any]:
    """Replace the torch of this process."""

    def use(torch: Any) -> Any:
        monkeypatch.setitem(sys.modules, "torch", torch)
        return torch

    return use


def test_the_environment_has_the_current_and_maximum_pcie_link(monkeypatch: pytest.MonkeyPatch) -> None:
    with installed(monkeypatch, Library(Gpu())):
        (gpu,) = environment.nvml_gpus()
    assert gpu["pcie"] == {"generation": 4, "width": 8, "max_generation": 5, "max_width": 16}
    assert (gpu["power_limit_w"], gpu["ecc"], gpu["compute_capability"]) == (650, True, "9.0")


@pytest.mark.parametrize("code", [pynvml.NVML_ERROR_NO_PERMISSION, LOST, pynvml.NVML_ERROR_UNKNOWN])
def test_a_gpu_that_cannot_be_opened_is_left_out(code: int, monkeypatch: pytest.MonkeyPatch) -> None:
    with installed(monkeypatch, Library(Gpu(fails={"open": int(code)}), Gpu(uuid=OTHER))):
        assert [gpu["uuid"] for gpu in environment.nvml_gpus()] == [OTHER]


FUNCTIONS = (
    "nvmlDeviceGetName",
    "nvmlDeviceGetUUID",
    "nvmlDeviceGetMemoryInfo",
    "nvmlDeviceGetCudaComputeCapability",
    "nvmlDeviceGetPowerManagementLimit",
    "nvmlDeviceGetEccMode",
    "nvmlDeviceGetMigMode",
    *environment.PCIE.values(),
)


@pytest.mark.parametrize("function", FUNCTIONS)
@pytest.mark.parametrize("missing", [False, True])
def test_each_field_is_tried_by_itself(function: str, missing: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    gpu = Gpu() if missing else Gpu(fails={function: int(pynvml.NVML_ERROR_NOT_SUPPORTED)})
    with installed(monkeypatch, Library(gpu, missing=(function,) if missing else ())):
        (found,) = environment.nvml_gpus()
    unknown = [name for name, value in found.items() if value is None or value == ""]
    assert len(unknown) == 1 + (function not in {"nvmlDeviceGetMigMode", *environment.PCIE.values()})
    assert len([one for one in found["pcie"].values() if one is None]) == (
        function in environment.PCIE.values()
    )


def test_a_lost_gpu_has_no_fields_and_raises_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    gpu = Gpu(name=b"\xff\xfe")
    with installed(monkeypatch, Library(gpu)):
        assert environment.nvml_gpus()[0]["name"] == ""
        gpu.fails["*"] = LOST
        assert environment.capture()["gpus"] == []


@pytest.mark.parametrize(
    "function", ["nvmlDeviceGetCount_v2", "nvmlSystemGetDriverVersion", "nvmlShutdown", "nvmlInitWithFlags"]
)
def test_describing_never_raises_where_the_library_fails(
    function: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    with installed(monkeypatch, Library(Gpu(), fails={function: int(pynvml.NVML_ERROR_UNKNOWN)})):
        found = environment.capture()
    failed = function in {"nvmlDeviceGetCount_v2", "nvmlInitWithFlags"}
    assert (found["gpus"] == []) == failed
    assert (found["driver"] is None) == (function in {"nvmlSystemGetDriverVersion", "nvmlInitWithFlags"})


def test_a_partitioned_gpu_is_replaced_by_its_instances(monkeypatch: pytest.MonkeyPatch) -> None:
    parts = [instance("MIG-c", profile="3g.40gb", memory=40 << 30), None, instance("MIG-d")]
    with installed(monkeypatch, Library(Gpu(instances=parts), Gpu(uuid=OTHER))):
        found = environment.nvml_gpus()
    assert [(gpu["index"], gpu["name"], gpu["memory_bytes"]) for gpu in found] == [
        (0, "Simulated GPU MIG 3g.40gb", 40 << 30),
        (1, "Simulated GPU MIG 1g.10gb", 10 << 30),
        (2, "Simulated GPU", 80 << 30),
    ]


def test_describing_does_not_initialize_cuda(
    use: Callable[[Any], Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    torch = use(torch_of(Cuda(device("aaaaaaaa"))))
    with installed(monkeypatch, Library(Gpu(), Gpu(uuid=OTHER))):
        found = environment.capture()
    assert not torch.cuda.initialized
    assert [gpu["uuid"] for gpu in found["gpus"]] == [Gpu().uuid, OTHER]
    assert environment.device_indices(found) == {}
    assert environment.GPU_PROBLEM not in found


def test_the_devices_of_an_initialized_torch_are_completed_by_nvml(
    use: Callable[[Any], Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    mig = "99999999-1111-0000-0000-000000000000"
    devices = [device(OTHER[4:]), None, device(mig, "NVIDIA H100 MIG 1g.10gb"), device("eeee")]
    use(torch_of(Cuda(*devices, initialized=True)))
    with installed(monkeypatch, Library(Gpu(instances=[instance(f"MIG-{mig}")]), Gpu(uuid=OTHER))):
        found = environment.capture()
    gpus = found["gpus"]
    assert [(gpu["index"], gpu["uuid"]) for gpu in gpus] == [(0, OTHER), (2, f"MIG-{mig}"), (3, "GPU-eeee")]
    assert (gpus[0]["power_limit_w"], gpus[0]["sm_count"], gpus[1]["power_limit_w"]) == (650, 132, None)
    assert environment.device_indices(found) == {OTHER[4:]: 0, mig: 2, "eeee": 3}


def test_an_older_torch_has_no_uuids(use: Callable[[Any], Any]) -> None:
    old = SimpleNamespace(name="NVIDIA V100", total_memory=1, multi_processor_count=80, major=7, minor=0)
    use(torch_of(Cuda(old, initialized=True)))
    found = environment.capture()
    assert (found["gpus"][0]["uuid"], environment.device_indices(found)) == ("", {})


def test_a_build_for_rocm_is_named_by_its_hip_version() -> None:
    versions = environment.torch_versions(torch_of(built=None, hip="7.0.51831"))
    assert (versions["cuda"], versions["hip"], versions["cudnn"]) == (None, "7.0.51831", None)
    assert environment.gpu_build(torch_of(built=None, hip="7.0.51831")) == "ROCm 7.0.51831"
    assert environment.gpu_build(torch_of()) == "CUDA 13.0"
    assert environment.gpu_build(torch_of(built=None)) == ""


@pytest.mark.parametrize(
    "torch", [torch_of(Cuda(device("a"))), torch_of(Cuda(device("a")), built=None, hip="7.0")]
)
def test_a_usable_gpu_is_no_problem(torch: Any) -> None:
    assert environment.gpu_problem(torch) == ""


@pytest.mark.parametrize(
    ("torch", "problem"),
    [
        (torch_of(built=None), "torch 2.13.0 was built without CUDA"),
        (torch_of(Cuda()), "torch finds no GPU"),
        (
            torch_of(Cuda(init_error="Found no NVIDIA driver on your system.\nPlease check")),
            "Found no NVIDIA driver on your system.",
        ),
        (
            torch_of(
                Cuda(warning="CUDA initialization: The NVIDIA driver is too old", init_error="No CUDA GPUs")
            ),
            "CUDA initialization: The NVIDIA driver is too old",
        ),
        (torch_of(Cuda(init_error="\n"), built=None, hip="7.0"), "RuntimeError"),
    ],
)
def test_torch_tells_why_it_can_use_no_gpu(torch: Any, problem: str) -> None:
    assert environment.gpu_problem(torch) == problem


def test_a_torch_without_cuda_on_a_machine_with_a_gpu_is_a_problem(
    use: Callable[[Any], Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    use(torch_of(built=None))
    with installed(monkeypatch, Library(Gpu())):
        assert environment.capture()[environment.GPU_PROBLEM] == "torch 2.13.0 was built without CUDA"


def test_gpus_of_amd_are_counted(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for node, number in enumerate(["0\n", "54213\n", "1111\n"]):
        (tmp_path / str(node)).mkdir()
        (tmp_path / str(node) / "gpu_id").write_text(number)
    (tmp_path / "3" / "gpu_id").mkdir(parents=True)  # cannot be read
    monkeypatch.setattr(environment, "KFD", tmp_path)
    with installed(monkeypatch, Library(Gpu())):
        assert environment.machine_gpus() == 3


class Mixed:
    """A setting that was set by its newer name, which torch then refuses to read by the older one."""

    fp32_precision = "tf32"

    @property
    def allow_tf32(self) -> bool:
        raise RuntimeError("you have used mix of the legacy and new APIs")


def test_settings_are_read_by_their_newer_names_too() -> None:
    torch = torch_of()
    assert environment.torch_settings(torch) == {
        "float32_matmul_precision": "high",
        "matmul_tf32": True,
        "cudnn_tf32": True,
        "cudnn_enabled": True,
        "cudnn_benchmark": True,
        "cudnn_deterministic": False,
    }
    torch.backends.cuda.matmul = Mixed()
    del torch.backends.cudnn.allow_tf32, torch.get_float32_matmul_precision
    found = environment.torch_settings(torch)
    assert (found["matmul_tf32"], found["cudnn_tf32"], found["float32_matmul_precision"]) == (
        True,
        None,
        None,
    )
    assert environment.torch_settings(None) == {}


def test_the_fingerprint_has_settings_of_the_gpu_for_runs_on_it() -> None:
    known: dict[str, Any] = {
        "hip": "7.0",
        "gpus": [{"name": "H100", "power_limit_w": 650, "ecc": True}],
        "settings": environment.torch_settings(torch_of()),
    }
    on_gpu, on_cpu = (fingerprint({"device": one}, known, {}, collector="torch") for one in ("cuda", "cpu"))
    names = ("hip", "power_limit_w", "ecc", "float32_matmul_precision", "matmul_tf32", "cudnn_benchmark")
    assert [on_gpu[name] for name in names] == ["7.0", 650, True, "high", True, True]
    assert [on_cpu[name] for name in names] == ["7.0", None, None, "high", None, None]


def test_a_package_without_metadata_is_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(environment, "PACKAGES", ("numpy", "tracekit-none"))
    assert environment.packages().keys() == {"numpy"}
