from __future__ import annotations

import errno
import json
import os
import shutil
import subprocess
import sys
from importlib.metadata import EntryPoint
from types import SimpleNamespace
from typing import TYPE_CHECKING

import llvmlite.binding as llvm
import pynvml
import pytest

from tests.unit.collectors.fake_nvml import ANSWERS, Gpu, Library, installed, instance
from tests.unit.runs.test_gpus import Cuda, device, torch_of
from tracekit import registry, storage
from tracekit.cli.main import run
from tracekit.errors import MissingDependencyError, TracekitError
from tracekit.ingest.kineto.scan import native
from tracekit.recording import doctor
from tracekit.recording.doctor import Check, Status
from tracekit.runs.toolchain import find_toolchain

if TYPE_CHECKING:
    from pathlib import Path

    from tracekit.runs.store import Store

OTHERS = ("nvmlDeviceGetUtilizationRates", "nvmlDeviceGetMemoryInfo")
WITHOUT_TORCH = """
import sys
sys.modules["torch"] = None
from tracekit.cli.main import main
main(["doctor", "--format", "json"])
"""


@pytest.mark.slow
def test_without_torch_doctor_exits_with_5() -> None:
    done = subprocess.run([sys.executable, "-c", WITHOUT_TORCH], capture_output=True, text=True)
    assert done.returncode == 5
    assert "Traceback" not in done.stderr
    checks = {check["name"]: check for check in json.loads(done.stdout)["checks"]}
    assert checks["torch"]["status"] == "missing"
    assert checks["torch"]["next_step"] == "pip install 'tracekit-torch[torch]'"


def test_with_torch_doctor_succeeds(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    pytest.importorskip("torch")
    assert run(["doctor", "--format", "json", "--store", str(tmp_path / "none" / "yet")]) == 0
    report = json.loads(capsys.readouterr().out)
    assert report["schema"] == "tracekit.doctor/1"
    assert {"python", "torch", "cuda", "profiler", "cupti", "nvml", "nsys", "libtorch", "disk"} <= {
        check["name"] for check in report["checks"]
    }
    assert all(check["next_step"] for check in report["checks"] if check["status"] != "ok")


HIP = torch_of(Cuda(device("a", "AMD Instinct MI300X"), device("b")), built=None, hip="7.0.1")
BROKEN = torch_of(Cuda(device("a"), init_error="Error 802: system not yet initialized"))


def test_a_build_for_rocm_is_one_for_a_gpu() -> None:
    assert doctor._torch(HIP, "")[0].detail == "2.13.0, built for ROCm 7.0.1"
    found = doctor._gpu_use(HIP)
    assert (found.status, found.detail) == ("ok", "2 GPUs: AMD Instinct MI300X, NVIDIA H100")


@pytest.mark.parametrize(
    ("torch", "detail"),
    [
        (
            BROKEN,
            "torch can use no GPU: Error 802: system not yet initialized, although the machine has 2 GPUs",
        ),
        (torch_of(built=None), "this torch was built without CUDA, although the machine has 2 GPUs"),
    ],
)
def test_gpus_that_torch_cannot_use_are_explained(
    torch: object, detail: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    with installed(monkeypatch, Library(Gpu(), Gpu(uuid="GPU-b"))):
        found = doctor._gpu_use(torch)
    assert (found.status, found.detail) == ("missing", detail)


def test_a_missing_extra_is_one_check(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for module in ("torch", "dash", "plotly", "dash_ag_grid", "dash_mantine_components", "waitress"):
        monkeypatch.setitem(sys.modules, module, None)
    for page in [name for name in sys.modules if name.startswith("tracekit.dashboards")]:
        folder, _, name = page.rpartition(".")  # of which importing it again makes the new one an attribute
        monkeypatch.setattr(sys.modules[folder], name, sys.modules[page], raising=False)
    for page in [name for name in sys.modules if name.startswith("tracekit.dashboards")]:
        monkeypatch.delitem(sys.modules, page)
    found = {check.name: check for check in doctor.examine(tmp_path)}
    assert {"cuda", "profiler", "cupti"} & found.keys() == set()
    assert not doctor.can_collect(list(found.values()))
    for extra in ("torch", "dashboard"):
        assert found[extra].status == "missing"
        assert found[extra].detail.startswith("not installed: ")
        assert found[extra].next_step == f"pip install 'tracekit-torch[{extra}]'"
    assert found["plug-ins"].status == "ok"


def test_without_activities_of_the_gpu_a_check_says_so() -> None:
    cpu = SimpleNamespace(name="CPU")
    profiler = SimpleNamespace(kineto_available=lambda: True, supported_activities=lambda: [cpu])
    HIP.profiler = profiler
    assert doctor._profiler(HIP).detail == "cannot record GPU activity"
    profiler.kineto_available = lambda: False
    assert doctor._profiler(HIP).detail == "torch lacks Kineto"
    profiler.kineto_available = lambda: 1 // 0
    assert doctor._profiler(HIP).detail.startswith("ZeroDivisionError")


def test_a_lost_gpu_is_a_warning() -> None:
    found = doctor._gpu_use(torch_of(Cuda(device("a"), None)))
    assert (found.status, found.detail) == ("warn", "CUDA error: device is lost")


def test_each_gpu_and_instance_is_checked_by_itself(monkeypatch: pytest.MonkeyPatch) -> None:
    lost, closed = (int(code) for code in (pynvml.NVML_ERROR_GPU_IS_LOST, pynvml.NVML_ERROR_NO_PERMISSION))
    gpus = [Gpu(instances=[instance("MIG-c")]), Gpu(fails={"*": lost}), Gpu(fails={"open": closed})]
    with installed(monkeypatch, Library(*gpus)):
        found = {one.name: (one.status, one.detail) for one in doctor._nvml()}
    assert found["nvml"] == ("ok", "driver 580.00, 1 GPU")
    assert found["gpu 0 instance 0"][1].startswith("Simulated GPU MIG 1g.10gb: 2 of 19 NVML metrics, without")
    assert found["gpu 1"] == ("warn", "NVML cannot open it: GPU is lost")
    assert found["gpu 2"] == ("warn", "NVML cannot open it: Insufficient Permissions")


def test_a_gpu_without_metrics_and_a_driver_without_gpus_are_warnings(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    gpu = Gpu()
    with installed(monkeypatch, Library(gpu)):
        gpu.slow["open"] = lambda: gpu.fails.update({"nvmlDeviceGetName": 0})
        gpu.fails = dict.fromkeys((*ANSWERS, *OTHERS), int(pynvml.NVML_ERROR_GPU_IS_LOST))
        assert [one.detail for one in doctor._nvml()][1] == "Simulated GPU: no NVML metric"
    with installed(monkeypatch, Library()):
        assert [one.detail for one in doctor._nvml()] == ["NVML lists no GPU"]
    with installed(monkeypatch, Library(fails={"nvmlInitWithFlags": 9})):
        assert [one.detail for one in doctor._nvml()] == ["NVML not available"]


def test_only_torch_and_its_profiler_are_required() -> None:
    fine = Check("torch", Status.OK, "")
    assert doctor.can_collect([fine, Check("cuda", Status.MISSING, "")])
    assert not doctor.can_collect([fine, Check("profiler", Status.MISSING, "")])


def test_missing_tools_of_libtorch_are_named(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.delenv("CXX", raising=False)
    for name in ("cmake", "make"):
        tool = tmp_path / name
        tool.write_text("#!/bin/sh\n")
        tool.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    found = doctor._libtorch(find_toolchain())
    assert (found.status, found.detail) == ("missing", "--level libtorch: no C++ compiler found")
    assert "apt-get install" in found.next_step
    monkeypatch.setenv("CXX", str(tmp_path / "make"))
    found = doctor._libtorch(find_toolchain())
    assert (found.status, found.next_step) == ("ok", "")


@pytest.mark.parametrize("whole", [False, pytest.param(True, marks=pytest.mark.slow)])
def test_the_scanner_is_compiled_on_request(
    whole: bool, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    if not whole:  # an empty module is compiled and kept as the scanner is, in no time
        monkeypatch.setattr(native, "generated", lambda: llvm.parse_assembly(""))
    assert "not compiled yet" in scanner_check(tmp_path).detail
    native.compiled()
    assert scanner_check(tmp_path).detail == f"compiled: {native.place()}"


def test_a_missing_compiler_is_reported(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setitem(sys.modules, "numba", None)
    monkeypatch.setattr(native, "load", native.load.__wrapped__)  # as in a process that has not loaded it
    with pytest.raises(MissingDependencyError, match=r"Numba is not installed.*tracekit-torch\[fast\]"):
        doctor.compile_scanner()


def test_a_missing_extra_is_one_line(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setitem(sys.modules, "llvmlite", None)
    monkeypatch.delitem(sys.modules, "tracekit.ingest.kineto.scan.native")
    monkeypatch.delattr("tracekit.ingest.kineto.scan.native")
    check = scanner_check(tmp_path)
    assert (check.status, check.next_step) == ("missing", "pip install 'tracekit-torch[fast]'")
    assert "Numba is not installed" in check.detail


def test_a_fast_decoder_that_cannot_be_kept_or_loaded_is_a_warning(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / "file").touch()
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "file"))
    monkeypatch.setattr(native, "load", native.load.__wrapped__)
    found = doctor._scanner()
    assert (found.status, found.next_step) == ("warn", "set XDG_CACHE_HOME to a writable folder")
    monkeypatch.setattr(native, "_fingerprint", lambda _: 1 // 0)  # LLVM can fail in many ways
    reason = "imports are slower without the fast trace decoder: ZeroDivisionError"
    assert doctor._scanner().detail.startswith(reason)
    with pytest.raises(TracekitError, match=reason):
        doctor.compile_scanner()


@pytest.mark.parametrize(
    ("free", "writable", "status", "detail"),
    [
        (6 << 30, True, "ok", "6.0 GiB free at the store"),
        (4 << 30, True, "warn", "4.0 GiB free at the store"),
        (6 << 30, False, "missing", "the store is not writable"),
        (None, True, "warn", "unknown: Input/output error"),
    ],
)
def test_the_disk_of_a_store_has_space_and_can_be_written(
    free: int | None,
    writable: bool,
    status: str,
    detail: str,
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
) -> None:
    def usage(folder: Path) -> SimpleNamespace:
        assert folder == tmp_path  # the part of the path that exists
        if free is None:
            raise OSError(errno.EIO, os.strerror(errno.EIO))
        return SimpleNamespace(free=free)

    monkeypatch.setattr(shutil, "disk_usage", usage)
    monkeypatch.setattr(os, "access", lambda *_: writable)
    [found] = doctor._store(tmp_path / "no" / "store")
    assert (found.name, found.status, found.detail) == ("disk", status, detail)
    assert bool(found.next_step) == (status != "ok")


def test_a_store_on_object_storage_is_read(remote: Store) -> None:
    found, disk = doctor._store(remote.path)
    assert (found.name, found.status, found.detail) == ("store", "ok", f"{remote.path} has 0 runs")
    assert disk.name == "disk"
    found, _ = doctor._store(storage.parse("s3://no-such-bucket/runs"))
    assert found.status == "missing"
    assert "no-such-bucket" in found.detail


def test_plug_ins_that_do_not_load_are_grouped_by_reason(monkeypatch: pytest.MonkeyPatch) -> None:
    missing = EntryPoint("nsys", "no_such_module:thing", registry.COLLECTORS)
    monkeypatch.setattr(registry, "_points", lambda _: [missing])
    found = doctor._nsys()
    assert (found.status, found.detail) == ("warn", "'nsys' needs the package 'no_such_module'")
    assert found.next_step == "pip install no_such_module"
    others = [
        registry.Broken(registry.WORKLOADS, name, "x:y", "x cannot be imported", "") for name in ("a", "b")
    ]
    own = registry.Broken(registry.COLLECTORS, "nsys", missing.value, found.detail, found.next_step)
    monkeypatch.setattr(registry, "find_broken", lambda: [*others, own])
    assert [(one.detail, one.next_step) for one in doctor._plugins()] == [
        ("tracekit.workloads a, b: x cannot be imported", "reinstall its package"),
        ("tracekit.collectors nsys: 'nsys' needs the package 'no_such_module'", "pip install no_such_module"),
    ]


def scanner_check(store: Path) -> Check:
    return next(check for check in doctor.examine(store) if check.name == "scanner")
