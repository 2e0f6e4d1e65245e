from __future__ import annotations

import ast
import json
import shlex
import tomllib
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from tracekit.analyses.capture import LACKS, NOTHING, NSYS, frameworks
from tracekit.analyses.capture.frameworks import COLLECT, FRAMEWORKS, TORCH, Settings

from tests.builders import device, host, kernel, make_run, step
from tracekit.analysis import analyze
from tracekit.runs.meta import Collector
from tracekit.schema import C, DeviceKind, HostKind

if TYPE_CHECKING:
    from tracekit.runs.run import Run

SHAPES = {C.INPUT_SHAPES: "[[8]]"}
LAUNCH = host("cudaLaunchKernel", 1, 2, kind=HostKind.RUNTIME, parent_row=0)
STEPS = [step(number, 100 * number, 100 * number + 90) for number in range(1, 7)]
ALLOCATED = {C.T_NS: 3, C.DEVICE: 0, C.BYTES: 8}


def whole(path: Path, **changes: Any) -> Run:
    """A run that lacks nothing, with changes to its tables."""
    tables: dict[str, Any] = {
        "host_intervals": [
            host("aten::mm", 0, 9, **SHAPES),
            LAUNCH,
            host("train.py(3): main", 0, 80, kind=HostKind.PYTHON),
        ],
        "device_intervals": [kernel(5, 8, launch_row=1, op_row=0, stream=7)],
        "steps": STEPS,
        "allocations": [ALLOCATED],
    }
    return make_run(path, **{**tables, **changes})


def missing(run: Run) -> list[str]:
    table = analyze(run, "capture").tables.get("missing")
    names = {lack.missing: option for option, lack in LACKS.items()}
    return [] if table is None else [names[one] for one in table["missing"]]


def lines(run: Run) -> list[str]:
    return analyze(run, "capture").tables["lines"]["line"].tolist()


def test_a_run_that_lacks_nothing_is_advised_nothing(tmp_path: Path) -> None:
    result = analyze(whole(tmp_path), "capture")
    assert (result.tables, result.notes) == ({}, (NOTHING,))


OP = [host("aten::mm", 0, 9, **SHAPES), LAUNCH]
PYTHON = host("train.py(3): main", 0, 80, kind=HostKind.PYTHON)
REPLAY = host("cudaGraphLaunch", 1, 2, kind=HostKind.RUNTIME)
WAIT = host("cudaStreamSynchronize", 8, 9, kind=HostKind.SYNC)
TWO_STREAMS = [kernel(5, 8, launch_row=1, stream=7), kernel(5, 8, launch_row=1, stream=8)]
CASES: dict[str, tuple[dict[str, Any], list[str]]] = {
    "no stacks": ({"host_intervals": OP}, [frameworks.STACKS]),
    "stacks in the column": ({"host_intervals": [host("aten::mm", 0, 9, stack="a.py(1): f", **SHAPES)]}, []),
    "no shapes": ({"host_intervals": [host("aten::mm", 0, 9), LAUNCH, PYTHON]}, [frameworks.SHAPES]),
    "no allocator events": ({"allocations": []}, [frameworks.MEMORY]),
    "no steps": ({"steps": []}, [frameworks.STEPS]),
    "few steps": ({"steps": STEPS[:4]}, [frameworks.MORE_STEPS]),
    "a long first step": (
        {"steps": [step(0, 0, 99), *(step(one, 100 * one, 100 * one + 60) for one in range(1, 6))]},
        [frameworks.WARMUP],
    ),
    "a first step of usual length": (
        {"steps": [step(0, 0, 80), *(step(one, 100 * one, 100 * one + 60) for one in range(1, 6))]},
        [],
    ),
    "no ops": ({"host_intervals": [LAUNCH, PYTHON]}, [frameworks.CPU]),
    "no device work": ({"device_intervals": []}, [frameworks.DEVICE]),
    "a CPU run": ({"device_intervals": [], "host_intervals": [OP[0], PYTHON]}, []),
    "graph replays": ({"host_intervals": [OP[0], REPLAY, PYTHON]}, [frameworks.GRAPHS]),
    "waits for one of two streams": (
        {"host_intervals": [*OP, PYTHON, WAIT], "device_intervals": TWO_STREAMS},
        [frameworks.SYNC_EVENTS],
    ),
    "waits for the only stream": ({"host_intervals": [*OP, PYTHON, WAIT]}, []),
    "waits whose streams are recorded": (
        {
            "host_intervals": [*OP, PYTHON, WAIT],
            "device_intervals": [*TWO_STREAMS, device(DeviceKind.SYNC, 8, 9, stream=8)],
        },
        [],
    ),
}


@pytest.mark.slow_except(5)
@pytest.mark.parametrize("case", CASES)
def test_what_is_missing_is_what_the_tables_lack(tmp_path: Path, case: str) -> None:
    changes, expected = CASES[case]
    assert missing(whole(tmp_path, **changes)) == expected


def test_a_setting_that_was_on_is_not_advised_again(tmp_path: Path) -> None:
    on = {f"profiler_{name}": True for name in ("with_stack", "record_shapes", "profile_memory")}
    bare = {"host_intervals": [host("aten::mm", 0, 9), LAUNCH], "allocations": []}
    assert missing(whole(tmp_path / "a", meta={"fingerprint": on}, **bare)) == []
    assert missing(whole(tmp_path / "b", **bare)) == [frameworks.STACKS, frameworks.SHAPES, frameworks.MEMORY]


def test_ranks_are_missed_unless_some_were_chosen(tmp_path: Path) -> None:
    run = whole(tmp_path, meta={"fingerprint": {"world_size": 8}})
    assert missing(run) == [frameworks.RANKS]
    assert "get_rank()" in "".join(lines(run))
    assert missing(run.of_ranks(0)) == []


def test_the_capture_of_a_graph_needs_an_execution(tmp_path: Path) -> None:
    calls = ["cudaStreamBeginCapture", "cudaLaunchKernel", "cudaStreamEndCapture"]
    rows = [host(name, at, at + 1, kind=HostKind.RUNTIME) for at, name in enumerate(calls)]
    assert missing(whole(tmp_path, host_intervals=[*rows, OP[0]])) == [frameworks.EXECUTION]


def test_the_lines_keep_what_the_run_has(tmp_path: Path) -> None:
    text = "\n".join(lines(whole(tmp_path, allocations=[])))
    assert all(f"{name}=True" in text for name in ("with_stack", "record_shapes", "profile_memory"))
    assert "schedule" not in text


def test_a_recording_of_tracekit_is_told_options_of_collect(tmp_path: Path) -> None:
    command = ["tracekit", "collect", "--steps", "2", "--", "python", "a b.py"]
    meta = {"collector": Collector("torch"), "command": command}
    run = whole(tmp_path, host_intervals=OP, steps=STEPS[:2], meta=meta)
    assert lines(run) == ["tracekit collect --steps 2 --stacks --steps 10 -- python 'a b.py'"]
    other = Settings({frameworks.STACKS}, ("python", "train.py"))
    assert COLLECT.lines(other) == ["tracekit collect --stacks -- python train.py"]


def test_recordings_of_nsys_are_not_told_options_of_torch(tmp_path: Path) -> None:
    run = whole(
        tmp_path, host_intervals=OP, meta={"collector": Collector("import", options={"tool": "nsys 2025"})}
    )
    result = analyze(run, "capture")
    assert (result.tables, result.notes) == ({}, (NSYS,))


@pytest.mark.slow_except(3)
@pytest.mark.parametrize(
    ("name", "kind", "framework"),
    [
        ("/x/sglang/srt/managers/scheduler.py(9): run", HostKind.PYTHON, "SGLang"),
        ("sgl_kernel::rmsnorm", HostKind.OP, "SGLang"),
        ("vllm/v1/worker/gpu_model_runner.py(9): execute_model", HostKind.PYTHON, "vLLM"),
        ("vllm::all_reduce", HostKind.OP, "vLLM"),
        ("torchtitan/train.py(9): train_step", HostKind.PYTHON, "torchtitan"),
        ("[pl][profile]run_training_batch", HostKind.ANNOTATION, "Lightning"),
        ("transformers/trainer.py(9): training_step", HostKind.PYTHON, "Hugging Face Trainer"),
        ("transformers/models/owlv2.py(9): forward", HostKind.PYTHON, "torch.profiler"),
        ("my_vllm/run.py(9): main", HostKind.PYTHON, "torch.profiler"),
    ],
)
def test_the_framework_is_detected_by_names(tmp_path: Path, name: str, kind: str, framework: str) -> None:
    rows = [host(name, 0, 9, kind=kind), host("aten::mm", 0, 9)]
    run = whole(tmp_path, host_intervals=rows, steps=STEPS[:2])
    found = analyze(run, "capture").tables["lines"]
    assert set(found["framework"]) == {framework}


def test_frameworks_are_not_told_what_they_do_not_offer(tmp_path: Path) -> None:
    rows = [host("sgl_kernel::rmsnorm", 0, 9, **SHAPES), LAUNCH]
    assert missing(whole(tmp_path, host_intervals=rows, steps=[], allocations=[])) == [frameworks.STACKS]


EVERYTHING = Settings(frozenset(LACKS))
PYTHON_LINES = {"torch.profiler", "Lightning", "Hugging Face Trainer"}


@pytest.mark.parametrize("framework", [TORCH, *FRAMEWORKS], ids=lambda one: one.name)
@pytest.mark.parametrize(
    "settings", [EVERYTHING, Settings(frozenset({frameworks.STACKS}))], ids=["all", "one"]
)
def test_lines_can_be_parsed(framework: frameworks.Framework, settings: Settings) -> None:
    found = framework.lines(settings)
    if framework.name in PYTHON_LINES:
        ast.parse("\n".join(found))
    elif framework.name == "torchtitan":
        assert tomllib.loads("\n".join(found))["profiling"]["with_stack"]
    else:
        commands = [shlex.split(line, comments=True) for line in found]
        sent = next(word for command in commands for word in command if word.startswith("{"))
        assert json.loads(sent)[{"vLLM": "torch_profiler_with_stack", "SGLang": "with_stack"}[framework.name]]


@pytest.mark.slow
def test_lines_of_torch_record_and_are_read(tmp_path: Path) -> None:
    torch = pytest.importorskip("torch")
    asked = Settings({frameworks.STACKS, frameworks.SHAPES, frameworks.MEMORY, frameworks.STEPS})
    text = "\n".join(TORCH.lines(asked)).replace("trace.json.gz", str(tmp_path / "trace.json.gz"))
    layer = torch.nn.Linear(4, 4)
    scope = {"batches": range(14), "train_step": lambda _: layer(torch.ones(2, 4)).sum().backward()}
    exec(text, scope)  # noqa: S102 (the lines that are advised)
    from tracekit.ingest.importer import import_traces
    from tracekit.runs.store import Store

    (run,) = import_traces(Store(tmp_path / "store"), [tmp_path / "trace.json.gz"])
    assert missing(run) in ([], [frameworks.WARMUP])
    assert run.table("steps")[C.STEP].nunique() == 10
    assert analyze(run, "modules").tables["types"]["type"].tolist() == ["Linear"]


@pytest.mark.parametrize("framework", [TORCH, *FRAMEWORKS], ids=lambda one: one.name)
def test_the_document_has_the_lines(framework: frameworks.Framework) -> None:
    page = "serving.md" if framework.name in {"vLLM", "SGLang"} else "importing.md"
    text = (Path(__file__).parents[3] / "docs" / page).read_text()
    options = {frameworks.STACKS, frameworks.SHAPES, frameworks.MEMORY, frameworks.STEPS}
    if framework.name in {"vLLM", "SGLang"}:
        options.add(frameworks.GRAPHS)
    assert "\n".join(framework.lines(Settings(options))) in text
