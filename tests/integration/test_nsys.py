"""The nsys collector against a stand-in that plays every outcome, each in real processes."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING

import psutil
import pytest
from tracekit.collectors import program, workload_process
from tracekit.collectors.nsys import collector, tool

from tests.nsys import KIND, calls, install, recorded, write_export
from tests.nsys_help import CURRENT, VERSIONS, profile_help
from tests.tiers import thinned
from tracekit.errors import CollectionError
from tracekit.recording.collector import Request, silent

if TYPE_CHECKING:
    from collections.abc import Callable

    from tracekit.recording.collector import Recording
    from tracekit.runs.store import Store

    Query = Callable[..., str]

OLDEST = VERSIONS[-1]
PLAYED = Path(__file__).with_name("nsys_measured.py")
NO_PARAMETERS = SimpleNamespace(params={})
REQUEST = Request(workload="mnist_cnn", batch_size=4, resolution=28, steps=2, warmup=1)


@dataclass(frozen=True)
class Setup:
    """A stand-in on PATH, and a folder of a store to record into."""

    nsys: Path
    directory: Path
    record: Callable[[], Recording]


_ANSWERS: dict[tuple[str, ...], str] = {}


def _asked_once(version: str, query: Query) -> Query:
    """What a version answers to `--version` and `--help` is asked in a process once, for all tests."""

    def ask(path: str, *arguments: str) -> str:
        key = (version, *arguments)
        if key not in _ANSWERS:
            _ANSWERS[key] = query(path, *arguments)
        return _ANSWERS[key]

    return ask


@pytest.fixture
def setup(
    request: pytest.FixtureRequest, store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Setup:
    """Made from the parameters and the options of `plays`: `version`, `outcome`, how the `program` ends.

    An export has what was recorded, or `rows` and what nsys `said`.
    """
    plays = {"version": CURRENT, "outcome": "fine", "program": "ends well", "rows": None, "said": None}
    plays["folder"] = ".tmp-1-recording"
    for mark in request.node.iter_markers("plays"):
        plays |= mark.kwargs
    plays |= getattr(request.node, "callspec", NO_PARAMETERS).params
    export = None
    if plays["rows"] is not None:
        export = write_export(tmp_path / "made.sqlite", rows=plays["rows"], said=plays["said"])
    nsys = install(tmp_path / "bin", version=plays["version"], outcome=plays["outcome"], export=export)
    monkeypatch.setattr(tool, "_query", _asked_once(plays["version"], tool._query))
    monkeypatch.delenv("NSYS_HOME", raising=False)
    monkeypatch.setenv("PATH", f"{nsys.parent}:/usr/bin:/bin")
    command = (sys.executable, str(PLAYED), plays["program"])
    monkeypatch.setattr(collector, "_MEASURED", command)
    monkeypatch.setattr(workload_process, "COMMAND", command)
    directory = store.path / plays["folder"]
    directory.mkdir(parents=True)

    def record() -> Recording:
        return collector.NsysCollector().record(REQUEST, directory, progress=silent)

    return Setup(nsys, directory, record)


def words(setup: Setup, command: str) -> list[str]:
    [found] = [call for call in calls(setup.nsys) if call[0] == command and "--help" not in call]
    return found


@pytest.mark.parametrize("version", thinned(VERSIONS, default=[CURRENT, OLDEST]))
def test_a_recording_is_an_export_with_the_times_of_a_process_without_nsys(
    version: str, setup: Setup
) -> None:
    before = psutil.Process().children()  # of other tests
    recording = setup.record()
    assert set(psutil.Process().children()) <= set(before)
    assert recording.traces == (setup.directory / "run.sqlite",)
    assert recording.version == version
    assert recording.timings is not None
    assert recording.timings.step_ns == [5, 7]
    assert recording.options["arguments"][0] == "--trace=nvtx,osrt"
    assert not any(str(setup.directory) in option for option in recording.options["arguments"])
    assert ("no_nvtx_ops", "nsys saw no ops") in [(one.code, one.message) for one in recording.diagnostics]
    assert words(setup, "profile")[-4:] == [
        sys.executable,
        str(PLAYED),
        "ends well",
        str(setup.directory / "request.json"),
    ]
    assert words(setup, "export")[-1].endswith(".qdrep" if version == OLDEST else ".nsys-rep")
    assert recorded(recording.traces[0]) == {
        "NVTX_EVENTS": ["warm-up", "ProfilerStep#1", "after the steps"]  # the entire program
    }


@pytest.mark.parametrize("version", thinned(VERSIONS, default=[CURRENT, OLDEST]))
@pytest.mark.plays(program="on cuda")
def test_on_a_gpu_only_the_steps_are_recorded(version: str, setup: Setup) -> None:
    recording = setup.record()
    assert recording.device == "cuda"
    assert recorded(recording.traces[0]) == {KIND + "KERNEL": ["gemm"], "NVTX_EVENTS": ["ProfilerStep#1"]}
    passed = {word.partition("=")[0] for word in words(setup, "profile") if word.startswith("--")}
    assert {word for word in passed if f"{word}=" not in profile_help(version)} == set()


@pytest.mark.plays(program="leaves a process")
def test_a_process_that_the_program_leaves_is_not_waited_for(setup: Setup) -> None:
    assert setup.record().device == "cpu"


@pytest.mark.plays(outcome="permission")
def test_no_permission_is_told_apart(setup: Setup) -> None:
    with pytest.raises(
        CollectionError, match=r"lacks the permission to record.*ERR_NVGPUCTRPERM.*run as root"
    ):
        setup.record()


@pytest.mark.plays(outcome="no_range", program="on cuda")
def test_a_capture_range_that_nsys_misses_is_an_error(setup: Setup) -> None:
    with pytest.raises(
        CollectionError,
        match=r"no report \(exit code 0\): it did not notice cudaProfilerStart.*\(No reports were",
    ):
        setup.record()


@pytest.mark.plays(outcome="not_imported", program="on cuda")
def test_data_that_nsys_does_not_process_are_kept(setup: Setup, store: Store) -> None:
    with pytest.raises(CollectionError, match=r"could not process its data; .* host folder"):
        setup.record()
    assert (store.path / ".reports" / "tmp-1-recording.qdstrm").is_file()


@pytest.mark.plays(program="lacks access")
def test_a_file_that_the_program_may_not_read_is_no_lack_of_permission_to_record(setup: Setup) -> None:
    with pytest.raises(CollectionError, match=r"mnist_cnn failed .*Permission denied: 'train.bin'"):
        setup.record()


@pytest.mark.plays(
    rows={}, said=[(1, "Profiling has started."), (2, "No NVTX events.\nMore"), (1, "stopped")]
)
def test_of_an_empty_report_on_the_cpu_the_times_are_kept_with_the_reason_of_nsys(setup: Setup) -> None:
    recording = setup.record()
    assert recording.traces == ()
    assert recording.timings is not None
    codes = {one.code: one.message for one in recording.diagnostics}
    assert codes["nothing_recorded"].startswith("nsys recorded no activity: nsys says 'No NVTX events'")


@pytest.mark.plays(rows={KIND + "RUNTIME": 3}, program="on cuda", said=[(3, "CUPTI is busy.")])
def test_a_gpu_without_work_is_an_error(setup: Setup) -> None:
    with pytest.raises(CollectionError, match=r"no GPU activity: nsys says 'CUPTI is busy'"):
        setup.record()
    assert "--capture-range=cudaProfilerApi" in words(setup, "profile")


@pytest.mark.plays(program="fails", folder="my failures/.tmp-1-recording")
def test_a_program_that_fails_says_why(setup: Setup) -> None:
    with pytest.raises(CollectionError, match=r"exit code 1: RuntimeError: no kernel image is available"):
        setup.record()


@pytest.mark.plays(program="ends with 3")
def test_an_exit_code_after_the_recording_is_a_warning(setup: Setup) -> None:
    codes = {one.code: one.message for one in setup.record().diagnostics}
    assert "exit code 3" in codes["nsys_exit_code"]


@pytest.mark.plays(program="is killed")
def test_a_program_that_is_killed_is_said_to_be(setup: Setup) -> None:
    with pytest.raises(CollectionError, match=r"killed by SIGKILL"):
        setup.record()


@pytest.mark.plays(program="lacks memory")
def test_an_error_that_the_program_tells_is_raised(setup: Setup) -> None:
    with pytest.raises(CollectionError, match=r"^out of memory \(lower it\)$"):
        setup.record()


@pytest.mark.slow_except("export_fails")
@pytest.mark.parametrize("outcome", ["export_fails", "export_damaged"])
def test_a_report_that_cannot_be_exported_is_kept(outcome: str, setup: Setup, store: Store) -> None:
    with pytest.raises(
        CollectionError, match=r"could not export its report \((exit code 1|no readable output)"
    ) as error:
        setup.record()
    kept = store.path / ".reports" / "tmp-1-recording.nsys-rep"
    assert "ProfilerStep#1" in kept.read_text()
    assert str(kept) in error.value.message
    assert ("newer version" in error.value.message) == (outcome == "export_fails")
    assert store.runs() == []


@pytest.mark.slow
@pytest.mark.plays(folder="100% %p")
def test_a_place_with_a_percent_sign_is_one(setup: Setup) -> None:
    assert setup.record().traces[0].parent.name == "100% %p"


@pytest.mark.plays(outcome="never_ends")
def test_nsys_that_does_not_end_is_ended(setup: Setup, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(program, "PROFILER_END_S", 0.2)
    with pytest.raises(CollectionError, match=r"the program ended, and its profiler did not within"):
        setup.record()


@pytest.mark.plays(outcome="daemon")
def test_what_nsys_leaves_behind_is_ended(setup: Setup) -> None:
    setup.record()
    assert [
        one
        for one in psutil.process_iter(["cmdline"])
        if str(setup.nsys.parent) in (one.info["cmdline"] or [])
    ] == []
