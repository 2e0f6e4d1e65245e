"""An option of `tracekit collect` is declared in one place; everything else follows from it."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from dataclasses import fields
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from samples.simulator import Program as Trace
from samples.simulator import write
from tracekit import registry
from tracekit.cli.main import run as tracekit
from tracekit.recording.agent.agent import AgentRequest, ProgramOptions
from tracekit.recording.collect import collect, collect_program
from tracekit.recording.collector import Program, Recording, Request
from tracekit.workloads.options import WORKLOAD_FIELDS, RecordingOptions, Scope, WorkloadOptions, list_options

if TYPE_CHECKING:
    from tracekit.runs.store import Store

PANELS = {
    "Options": RecordingOptions,
    "Your program": ProgramOptions,
    "Built-in workload": WorkloadOptions,
}
ADDED = Path(__file__).with_name("added_option.py")
OTHER = {bool: True, int: 7, str: "other"}


@pytest.fixture
def panels(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> dict[str, list[str]]:
    """Options on the help page, by panel."""
    monkeypatch.setenv("COLUMNS", "150")
    assert tracekit(["collect", "--help"]) == 0
    found: dict[str, list[str]] = {}
    for line in capsys.readouterr().out.splitlines():
        if title := re.match(r"╭─ ([-\w ]+) ─", line):
            flags = found.setdefault(title[1], [])
        elif option := re.match(r"│ +(--[a-z-]+)", line):
            flags.append(option[1])
    return found


@pytest.mark.parametrize("title", PANELS)
def test_every_option_is_on_the_help_page_in_the_order_of_the_declarations(
    title: str, panels: dict[str, list[str]]
) -> None:
    flags = [one.flag for one in list_options(PANELS[title])]
    assert panels[title][: len(flags)] == flags


class Recorder:
    """A collector that records one op, and keeps what it was asked for."""

    asked: Any = None

    def record(self, asked: Any, directory: Path, **_: Any) -> Recording:
        Recorder.asked = asked
        trace = Trace()
        with trace.op("aten::relu"):
            pass
        return Recording(
            traces=(write(trace, directory / "trace.json"),),
            device="cuda",
            threads=7,
            version="1",
            timings=None,
        )

    record_program = record


@pytest.fixture
def recorder(monkeypatch: pytest.MonkeyPatch) -> type[Recorder]:
    load = registry.load
    monkeypatch.setattr(
        registry, "load", lambda group, name: Recorder if group == registry.COLLECTORS else load(group, name)
    )
    return Recorder


WORKLOAD = {
    "workload": "resnet50", "device": "cuda", "mode": "infer", "level": "compile", "backend": "aot_eager",
    "size": "test", "dataset_shape": "stl10", "dtype": "float64", "zero_grad": "zero",
    "offload": "parameters",
}  # fmt: skip
"""Values of text that a workload takes, none of them the default."""


def test_every_value_reaches_the_collector_and_the_run(store: Store, recorder: type[Recorder]) -> None:
    given = {one.name: OTHER[one.kind] for one in list_options(Request)} | WORKLOAD
    given |= {"resolution": 96, "label": "mine", "no_profile": False, "keep_trace": False}
    meta = collect(store, Request(**given)).meta
    assert {name: getattr(recorder.asked, name) for name in given} == given
    scopes = {one.name: one.scope for one in list_options(Request)}
    work = {name: value for name, value in given.items() if scopes[name] is Scope.WORK}
    assert meta.workload == {"name": work.pop("workload"), **work}
    in_command = {word for word in meta.command if word.startswith("--")}
    assert in_command == {
        one.flag
        for one in list_options(Request)
        if one.scope is not Scope.RUN and given[one.name] is not False
    }
    assert {name: meta.fingerprint[name] for name in WORKLOAD_FIELDS} == {
        name: given[name] for name in WORKLOAD_FIELDS
    }


def test_every_value_of_a_program_reaches_the_collector_and_the_run(
    store: Store, recorder: type[Recorder]
) -> None:
    given = {one.name: OTHER[one.kind] for one in list_options(Program)} | {"keep_trace": False}
    [run] = collect_program(store, Program(command=("true",), **given))
    meta = run.meta
    assert {name: getattr(recorder.asked, name) for name in given} == given
    work = {one.name: given[one.name] for one in list_options(Program) if one.scope is Scope.WORK}
    assert meta.workload is not None
    assert meta.workload.items() >= work.items()
    assert meta.command == []  # as asked by --no-command


def test_what_the_agent_reads_is_declared() -> None:
    declared = {option.name: option.kind.__name__ for option in list_options(Program)}
    own = {field.name: field.type for field in fields(AgentRequest)}
    assert own.pop("directory") == own.pop("profiler") == "str"
    assert own.pop("collector_pid") == "int"
    assert own.pop("changes") == "list[dict[str, str]]"  # the files of the option `change`
    assert own.items() <= declared.items()


@pytest.mark.parametrize(
    ("kind", "other"), [(WorkloadOptions, ["--", "true"]), (ProgramOptions, ["--workload", "mnist_cnn"])]
)
def test_options_of_one_kind_are_refused_by_the_other(
    kind: type, other: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    for one in list_options(kind):
        value = [] if one.kind is bool else [str(one.default or 1)]
        assert tracekit(["collect", one.flag, *value, *other]) == 2
        assert one.flag in capsys.readouterr().err


@pytest.mark.slow
def test_a_declaration_alone_adds_an_option(tmp_path: Path) -> None:
    root = Path(__file__).parents[2]
    done = subprocess.run(
        [sys.executable, str(ADDED)],
        env={**os.environ, "PYTHONPATH": str(root), "COLUMNS": "150"},
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=True,
    )
    reported = json.loads(done.stdout)
    assert reported["codes"] == [0, 2, 0, 0]
    assert re.search(r"--dummy-level +INTEGER +Level of the dummy\. \[default: 1\]", reported["shown"])
    assert "--dummy-level -1 is too low; use --dummy-level 0 or more" in done.stderr
    assert reported["handed"] == [2, 3]
    assert sorted(one["workload"]["dummy_level"] for one in reported["runs"]) == [2, 3]
    assert [one["command"] for one in reported["runs"] if "--dummy-level" in one["command"]]
