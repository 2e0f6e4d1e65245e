"""The user's own program under nsys: the stand-in runs it, tracekit marks its steps from inside."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from tracekit.collectors import program as programs
from tracekit.collectors.nsys import collector as own
from tracekit.collectors.nsys.collector import NsysCollector

from tests.nsys import KIND, calls, install, recorded, write_export
from tracekit.errors import CollectionError, ProgramFailedError
from tracekit.recording.collect import collect_program
from tracekit.recording.collector import Program, silent

if TYPE_CHECKING:
    from collections.abc import Callable

    from tracekit.recording.collector import Recording
    from tracekit.runs.store import Store

    Record = Callable[..., Recording]

pytest.importorskip("torch")
RUNTIME = Path(__file__).parents[1] / "nsys_runtime.py"
STEPS = """
import sys, torch, types
# nothing is compiled here, and importing the compiler takes as long as importing torch
sys.modules["torch._dynamo"] = types.SimpleNamespace(disable=lambda of, *_, **__: of, graph_break=int)
said = open("said.txt", "a", buffering=1)
model = torch.nn.Linear(2, 2)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for number in range(6):
    report(f"kernel of step {number}")
    optimizer.zero_grad()
    model(torch.ones(1, 2)).sum().backward()
    optimizer.step()
    print("step", number, file=said)
sys.exit(int(sys.argv[1]))
"""
ON_CPU = """
import torch
nvtx, said = torch.cuda.nvtx, open("said.txt", "a", buffering=1)
nvtx.range_push = lambda name: print("push", name, file=said)
nvtx.range_pop = lambda: print("pop", file=said)
report = lambda _line: None
"""
ON_CUDA = f"""
import runpy, torch
runtime = runpy.run_path({str(RUNTIME)!r})
runtime["use_in"](torch)
report = runtime["report"]
"""
TRAIN = ON_CPU + STEPS


@pytest.fixture
def record(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Record:
    """Records a Python program from an empty current folder.

    `outcome` is the stand-in's, `guessed` the device that the program is expected to use, and an export has
    what was recorded if not `made`.
    """
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("NSYS_HOME", raising=False)
    monkeypatch.setenv("PATH", f"{tmp_path / 'bin'}:/usr/bin:/bin")
    export = write_export(tmp_path / "made.sqlite", rows={KIND + "KERNEL": 2})
    (tmp_path / ".tmp-1-draft").mkdir()

    def run(
        code: str, *arguments: str, outcome: str = "fine", guessed: str = "cpu", made: bool = True
    ) -> Recording:
        install(tmp_path / "bin", outcome=outcome, export=export if made else None)
        monkeypatch.setattr(own, "_guess_device", lambda: guessed)
        Path("train.py").write_text(code)
        program = Program(command=(sys.executable, "train.py", *arguments), start_step=2, steps=2)
        return NsysCollector().record_program(program, tmp_path / ".tmp-1-draft", progress=silent)

    return run


@pytest.mark.usefixtures("record")
def test_the_steps_of_the_window_are_marked_though_nsys_records_nothing_of_them(
    store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    install(tmp_path / "bin")
    monkeypatch.setattr(own, "_guess_device", lambda: "cpu")
    Path("train.py").write_text(TRAIN)
    command = (sys.executable, "train.py", "3")
    (run,) = collect_program(store, Program(command=command, start_step=2, steps=2, collector="nsys"))
    assert Path("said.txt").read_text().split("\n")[:-1] == [
        *("step 0", "push ProfilerStep#2", "step 1"),
        *("pop", "push ProfilerStep#3", "step 2"),
        *("pop", "step 3", "step 4", "step 5"),
    ]
    reported = calls(tmp_path / "bin" / "nsys")
    [profile] = [words for words in reported if words[0] == "profile" and "--help" not in words]
    assert profile[-3:] == [*command]
    codes = {one.code for one in run.meta.diagnostics}
    assert {"nothing_recorded", "not_profiled", "program_failed"} <= codes
    assert (run.meta.workload or {})["exit_code"] == 3
    assert run.meta.timings is not None
    assert len(run.meta.timings.step_ns) == 1
    assert not run.rows("host_intervals")


@pytest.mark.slow
def test_what_was_recorded_of_a_program_that_fails_is_kept(record: Record, tmp_path: Path) -> None:
    recording = record(TRAIN, "3")
    assert recording.exit_code == 3
    assert recording.traces == (tmp_path / ".tmp-1-draft" / "run.sqlite",)
    assert recording.timings is not None
    assert len(recording.timings.step_ns) == 1
    assert "program_failed" in [one.code for one in recording.diagnostics]


def test_a_program_that_fails_before_its_window_passes_its_exit_code_on(record: Record) -> None:
    with pytest.raises(ProgramFailedError, match=r"failed with exit code 7") as error:
        record("import sys; sys.exit(7)")
    assert error.value.program_code == 7


@pytest.mark.slow
def test_on_a_gpu_the_recording_has_the_steps_of_the_window(record: Record) -> None:
    recording = record(ON_CUDA + STEPS, "0", guessed="cuda", made=False)
    assert recorded(recording.traces[0]) == {
        KIND + "KERNEL": ["of step 2", "of step 3"],
        "NVTX_EVENTS": ["ProfilerStep#2", "ProfilerStep#3"],
    }


@pytest.mark.slow
def test_a_capture_range_that_nsys_misses_is_an_error(record: Record) -> None:
    with pytest.raises(CollectionError, match=r"wrote no report .* did not notice cudaProfilerStart"):
        record(ON_CUDA + STEPS, "0", guessed="cuda", outcome="no_range")


@pytest.mark.slow
def test_a_program_that_does_not_use_the_gpu_is_told_apart(record: Record) -> None:
    with pytest.raises(CollectionError, match=r"the program used none.*CUDA_VISIBLE_DEVICES= "):
        record(TRAIN, "0", guessed="cuda")


@pytest.mark.slow
def test_a_gpu_that_nvml_does_not_list_is_not_recorded(record: Record) -> None:
    with pytest.raises(CollectionError, match=r"not asked to record the GPU: NVML listed none"):
        record(ON_CUDA + STEPS, "0", guessed="cpu")


def test_nsys_that_does_not_end_is_ended(record: Record, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(programs, "PROFILER_END_S", 0.2)
    with pytest.raises(CollectionError, match=r"the program ended, and its profiler did not within"):
        record("pass", outcome="never_ends")


@pytest.mark.slow
def test_data_that_nsys_does_not_process_are_kept(record: Record) -> None:
    with pytest.raises(CollectionError, match=r"could not process its data; they are saved as"):
        record(TRAIN, "0", outcome="not_imported")


@pytest.mark.slow
def test_a_report_that_cannot_be_exported_is_kept(record: Record, tmp_path: Path) -> None:
    with pytest.raises(CollectionError, match=r"is saved as .*tmp-1-draft.nsys-rep"):
        record(TRAIN, "0", outcome="export_fails")
    assert (tmp_path / ".reports" / "tmp-1-draft.nsys-rep").is_file()
