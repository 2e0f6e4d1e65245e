"""The nsys collector against a stand-in that plays every outcome, each in real processes."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import psutil
import pytest
from tracekit.collectors.nsys import collector

from tests.nsys import HELP, KIND, calls, install, write_export
from tracekit.errors import CollectionError
from tracekit.recording.collector import Request, silent

if TYPE_CHECKING:
    from collections.abc import Callable

    from tracekit.recording.collector import Recording
    from tracekit.runs.store import Store

NEW, OLD = HELP
PLAYED = Path(__file__).with_name("nsys_measured.py")
HOST = {"NVTX_EVENTS": 4}
REQUEST = Request(workload="mnist_cnn", batch_size=4, resolution=28, steps=2, warmup=1)


@dataclass(frozen=True)
class Setup:
    """A stand-in on PATH, and a folder of a store to record into."""

    nsys: Path
    directory: Path
    record: Callable[[], Recording]


@pytest.fixture
def setup(
    request: pytest.FixtureRequest, store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Setup:
    """Made from the options of `plays`: `version`, `outcome`, `rows`, `said`, and how the `program` ends."""
    plays = {"version": NEW, "outcome": "fine", "program": "ends well", "rows": HOST, "said": None}
    plays["folder"] = ".tmp-1-recording"
    for mark in request.node.iter_markers("plays"):
        plays |= mark.kwargs
    export = write_export(tmp_path / "made.sqlite", rows=plays["rows"], said=plays["said"])
    nsys = install(tmp_path / "bin", version=plays["version"], outcome=plays["outcome"], export=export)
    monkeypatch.delenv("NSYS_HOME", raising=False)
    monkeypatch.setenv("PATH", f"{nsys.parent}:/usr/bin:/bin")
    monkeypatch.setattr(collector, "_MEASURED", (sys.executable, str(PLAYED), plays["program"]))
    directory = store.path / plays["folder"]
    directory.mkdir(parents=True)

    def record() -> Recording:
        return collector.NsysCollector().record(REQUEST, directory, progress=silent)

    return Setup(nsys, directory, record)


def words(setup: Setup, command: str) -> list[str]:
    [found] = [call for call in calls(setup.nsys) if call[0] == command and "--help" not in call]
    return found


@pytest.mark.parametrize(
    "version",
    [
        pytest.param(NEW, marks=pytest.mark.plays(version=NEW)),
        pytest.param(OLD, marks=pytest.mark.plays(version=OLD)),
    ],
)
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
    assert words(setup, "export")[-1].endswith(".nsys-rep" if version == NEW else ".qdrep")


@pytest.mark.plays(outcome="permission")
def test_no_permission_is_told_apart(setup: Setup) -> None:
    with pytest.raises(
        CollectionError, match=r"lacks the permission to record.*ERR_NVGPUCTRPERM.*run as root"
    ):
        setup.record()


@pytest.mark.plays(outcome="no_report")
def test_no_report_is_an_error_with_the_word_of_nsys(setup: Setup) -> None:
    with pytest.raises(CollectionError, match=r"wrote no report \(exit code 0\): No reports were generated"):
        setup.record()


@pytest.mark.plays(
    rows={}, said=[(1, "Profiling has started."), (2, "No NVTX events.\nMore"), (1, "stopped")]
)
def test_an_empty_report_is_an_error_with_the_reason_of_nsys(setup: Setup) -> None:
    with pytest.raises(CollectionError, match=r"recorded no activity: nsys says 'No NVTX events'"):
        setup.record()


@pytest.mark.plays(rows={KIND + "RUNTIME": 3}, program="on cuda", said=[(3, "CUPTI is busy.")])
def test_a_gpu_without_work_is_an_error(setup: Setup) -> None:
    with pytest.raises(CollectionError, match=r"no GPU activity: nsys says 'CUPTI is busy'"):
        setup.record()
    assert "--capture-range=cudaProfilerApi" in words(setup, "profile")


@pytest.mark.plays(rows={KIND + "KERNEL": 3}, program="on cuda")
def test_a_gpu_with_work_is_a_recording(setup: Setup) -> None:
    assert setup.record().device == "cuda"


@pytest.mark.plays(program="fails", folder="my failures/.tmp-1-recording")
def test_a_program_that_fails_says_why(setup: Setup) -> None:
    with pytest.raises(CollectionError, match=r"exit code 1: RuntimeError: no kernel image is available"):
        setup.record()


@pytest.mark.plays(program="is killed")
def test_a_program_that_is_killed_is_said_to_be(setup: Setup) -> None:
    with pytest.raises(CollectionError, match=r"killed by SIGKILL"):
        setup.record()


@pytest.mark.plays(program="lacks memory")
def test_an_error_that_the_program_tells_is_raised(setup: Setup) -> None:
    with pytest.raises(CollectionError, match=r"^out of memory \(lower it\)$"):
        setup.record()


@pytest.mark.parametrize(
    "outcome",
    [
        pytest.param("export_fails", marks=pytest.mark.plays(outcome="export_fails")),
        pytest.param("damaged", marks=pytest.mark.plays(outcome="export_damaged")),
    ],
)
def test_a_report_that_cannot_be_exported_is_kept(outcome: str, setup: Setup, store: Store) -> None:
    with pytest.raises(
        CollectionError, match=r"could not export its report \((exit code 1|no readable output)"
    ) as error:
        setup.record()
    kept = store.path / ".reports" / "tmp-1-recording.nsys-rep"
    assert kept.read_text() == "report"
    assert str(kept) in error.value.message
    assert ("newer version" in error.value.message) == (outcome == "export_fails")
    assert store.runs() == []


@pytest.mark.plays(folder="100% %p")
def test_a_place_with_a_percent_sign_is_one(setup: Setup) -> None:
    assert setup.record().traces[0].parent.name == "100% %p"


@pytest.mark.plays(outcome="daemon")
def test_what_nsys_leaves_behind_is_ended(setup: Setup) -> None:
    setup.record()
    assert [
        one
        for one in psutil.process_iter(["cmdline"])
        if str(setup.nsys.parent) in (one.info["cmdline"] or [])
    ] == []
