from __future__ import annotations

import json
import subprocess
import sys
from typing import TYPE_CHECKING

import llvmlite.binding as llvm
import pytest

from tracekit.cli.main import run
from tracekit.errors import MissingDependencyError
from tracekit.ingest.kineto.scan import native
from tracekit.recording import doctor
from tracekit.recording.doctor import Check, Status
from tracekit.runs.toolchain import find_toolchain

if TYPE_CHECKING:
    from pathlib import Path

WITHOUT_TORCH = """
import sys
sys.modules["torch"] = None
from tracekit.cli.main import main
main(["doctor", "--format", "json"])
"""


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


@pytest.mark.parametrize(("value", "user", "status"), [(1, 1000, "warn"), (1, 0, "ok"), (0, 1000, "ok")])
def test_a_driver_can_restrict_profiling_to_administrators(
    value: int, user: int, status: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("os.geteuid", lambda: user)
    parameters = tmp_path / "params"
    parameters.write_text(f"ResmanDebugLevel: 4294967295\nRmProfilingAdminOnly: {value}\n")
    assert doctor._cupti(parameters).status == status


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


def scanner_check(store: Path) -> Check:
    return next(check for check in doctor.examine(store) if check.name == "scanner")
