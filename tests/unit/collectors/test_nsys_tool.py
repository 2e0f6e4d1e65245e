"""Choice of nsys, its arguments, and the checks of `doctor`; a stand-in checks its arguments."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from tracekit.collectors.nsys import collector, tool
from tracekit.collectors.nsys.collector import NsysCollector, explain_ignored_stacks

from tests.nsys import calls, install
from tests.nsys_help import CURRENT, VERSIONS
from tracekit.errors import CollectionError, UnusableInputError
from tracekit.recording.collector import Program, Request, silent
from tracekit.runs import toolchain

OLDEST = VERSIONS[-1]


@pytest.fixture(autouse=True)
def _nothing_installed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("NSYS_HOME", raising=False)
    monkeypatch.setenv("PATH", "/nowhere")
    monkeypatch.setattr(toolchain, "NSYS_PATTERNS", ())


def test_nsys_home_precedes_path_which_precedes_default_folders(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    places = [
        install(tmp_path / "opt" / version / "bin") for version in ("2024.9.1", "2024.10.2", "2024.10.1")
    ]
    monkeypatch.setattr(toolchain, "NSYS_PATTERNS", (f"{tmp_path}/opt/*/bin/nsys",))
    assert toolchain.find_nsys() == str(places[1])
    monkeypatch.setenv("PATH", str(install(tmp_path / "path").parent))
    assert toolchain.find_nsys() == str(tmp_path / "path" / "nsys")
    install(tmp_path / "home" / "bin")
    monkeypatch.setenv("NSYS_HOME", str(tmp_path / "home"))
    assert toolchain.find_nsys() == str(tmp_path / "home" / "bin" / "nsys")


def test_without_nsys_the_error_says_what_to_do() -> None:
    with pytest.raises(CollectionError, match=r"nsys not found.*--collector torch"):
        tool.find()


def test_another_program_called_nsys_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    program = tmp_path / "nsys"
    program.write_text("#!/bin/sh\necho what is $1\n")
    program.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(CollectionError, match=r"is not nsys: .*printed 'what is --version'"):
        tool.find()


def test_an_nsys_that_does_not_respond_is_ended(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(install(tmp_path, outcome="silent").parent))
    monkeypatch.setattr(tool, "QUERY_SECONDS", 0.2)
    with pytest.raises(CollectionError, match=r"--version` did not respond"):
        tool.find()


def test_an_nsys_that_cannot_be_started_is_an_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    program = tmp_path / "nsys"
    program.write_text("#!/nowhere/interpreter\n")
    program.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(CollectionError, match=r"is not nsys: .*No such file"):
        tool.find()


def test_a_current_version_gets_all_options(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    program = install(tmp_path / "bin")
    monkeypatch.setenv("PATH", str(program.parent))
    nsys = tool.find()
    assert nsys.version == CURRENT
    assert tool.profile_command(nsys, tmp_path / "run", device="cuda") == [
        str(program),
        "profile",
        "--trace=cuda,nvtx,osrt,cudnn,cublas",
        "--capture-range=cudaProfilerApi",
        "--capture-range-end=stop",
        "--cuda-graph-trace=node",
        "--cuda-event-trace=false",
        "--wait=primary",
        "--sample=none",
        "--cpuctxsw=none",
        "--stats=false",
        "--discard-environment=true",
        "--force-overwrite=true",
        f"--output={tmp_path / 'run'}",
    ]
    assert tool.unsupported_settings(nsys) == []
    old = tool.Nsys(path="nsys", version="2021.1", profile={"capture-range": ""})
    assert tool.unsupported_settings(old)[0] == "the program may be ended with the recording"
    assert calls(program) == [["--version"], ["profile", "--help"], ["export", "--help"]]


def test_an_old_version_gets_its_own_options_and_a_warning(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    program = install(tmp_path, version=OLDEST)
    monkeypatch.setenv("PATH", str(tmp_path))
    nsys = tool.find()
    assert tool.profile_command(nsys, tmp_path / "run", device="cuda")[2:] == [
        "--trace=cuda,nvtx,osrt,cublas",
        "--capture-range=cudaProfilerApi",
        "--stop-on-range-end=true",
        "--kill=none",
        "--wait=primary",
        "--sample=none",
        "--stats=false",
        "--force-overwrite=true",
        f"--output={tmp_path / 'run'}",
    ]
    assert tool.export_command(nsys, tmp_path / "run.qdrep", tmp_path / "run.sqlite")[2:4] == [
        "--type=sqlite",
        "--force-overwrite=true",
    ]
    check = NsysCollector().check()
    assert check.status == "warn"
    assert check.detail == f"{OLDEST}, {program}; too old: a kept report contains the environment variables"


CHANGES = {
    "2025.6.3.541": set(),
    "2025.1.1.103": {"--discard-environment=true"},
    "2024.6.1.90": {"--discard-environment=true", "--cuda-event-trace=false"},
    "2023.4.4.54": {"--discard-environment=true", "--cuda-event-trace=false"},
    "2022.4.2.1": {"--discard-environment=true", "--cuda-event-trace=false"},
    "2022.1.1.61": {"--discard-environment=true", "--cuda-event-trace=false", "--cuda-graph-trace=node"},
}


@pytest.mark.slow_except(1)
@pytest.mark.parametrize("version", CHANGES)
def test_a_version_gets_all_options_but_those_it_lacks(
    version: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    commands = {}
    for one in (CURRENT, version):
        monkeypatch.setenv("PATH", str(install(tmp_path, version=one).parent))
        nsys = tool.find()
        commands[one] = tool.profile_command(nsys, tmp_path / "run", device="cuda")
        exporting = tool.export_command(nsys, tmp_path / "run.nsys-rep", tmp_path / "run.sqlite")
    assert set(commands[CURRENT]) - set(commands[version]) == CHANGES[version]
    assert set(commands[version]) <= set(commands[CURRENT])
    assert ("--lazy=false" in exporting) == (version != "2022.1.1.61")


def test_traces_are_those_that_the_help_quotes() -> None:
    text = "Possible values are 'cuda', 'nvtx' or 'none'. osrt and cudnn are not available on this target."
    nsys = tool.Nsys(path="nsys", version="2026.1", profile={"trace": text, "capture-range": ""})
    assert tool.profile_command(nsys, Path("run"), device="cuda")[2] == "--trace=cuda,nvtx"
    unknown = tool.Nsys(path="nsys", version="2026.1", profile={"trace": "See the documentation."})
    assert tool.profile_command(unknown, Path("run"), device="cpu")[2] == "--trace=nvtx,osrt"


def test_a_cpu_recording_has_no_capture_range(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(install(tmp_path).parent))
    words = tool.profile_command(tool.find(), tmp_path / "run", device="cpu")
    assert words[2] == "--trace=nvtx,osrt"
    assert not any(word.startswith("--capture-range") for word in words)


@pytest.mark.parametrize(
    ("visible", "gpus", "device"), [(None, 1, "cuda"), (None, 0, "cpu"), ("", 1, "cpu"), ("-1", 1, "cpu")]
)
def test_a_program_is_recorded_as_one_on_a_gpu_if_it_may_use_one(
    visible: str | None, gpus: int, device: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    if visible is not None:
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", visible)
    monkeypatch.setattr(collector.environment, "nvml_gpus", lambda: [{"index": 0}] * gpus)
    assert collector._guess_device() == device


@pytest.mark.parametrize("options", [{"level": "libtorch"}, {"compile_artifacts": True}])
def test_what_nsys_cannot_record_is_refused(options: dict[str, Any], tmp_path: Path) -> None:
    request = Request(workload="mnist_cnn", batch_size=4, resolution=28, **options)
    with pytest.raises(UnusableInputError, match=r"nsys cannot record .*use --collector torch"):
        NsysCollector().record(request, tmp_path, progress=silent)


def test_stacks_are_reported_as_ignored() -> None:
    assert explain_ignored_stacks(requested=False) == []
    assert [code for code, _ in explain_ignored_stacks(requested=True)] == ["stacks_ignored"]


def test_a_version_without_capture_ranges_is_refused_for_a_gpu(tmp_path: Path) -> None:
    ancient = tool.Nsys(path="nsys", version="2019.1", profile={"trace": ""})
    with pytest.raises(CollectionError, match=r"no --capture-range.*newer"):
        tool.profile_command(ancient, tmp_path, device="cuda")


def test_doctor_reports_the_nsys_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from tracekit.recording import doctor

    assert doctor._nsys().status == "missing"
    program = install(tmp_path)
    monkeypatch.setenv("PATH", str(tmp_path))
    assert doctor._nsys() == doctor.Check("nsys", doctor.Status.OK, f"{CURRENT}, {program}")


def test_a_help_page_is_split_by_options() -> None:
    text = "  -t, --trace=\n\n    Possible: 'cuda'. See --help.\n  --wait=\n    all\n"
    assert list(tool._help_by_option(text)) == ["trace", "wait"]


def test_windows_now_and_then_are_refused(tmp_path: Path) -> None:
    program = Program(command=("python", "train.py"), every=10)
    with pytest.raises(UnusableInputError, match="--every does not apply to --collector nsys"):
        NsysCollector().record_program(program, tmp_path, progress=silent)
