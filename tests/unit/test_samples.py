"""The samples in the repository are what they claim to be."""

from __future__ import annotations

import gzip
import hashlib
import json
import re
import sqlite3
from contextlib import closing
from dataclasses import fields, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from samples.record import MAX_BYTES, RECIPES
from samples.simulator import trace
from samples.simulator.examples import training
from tests import tiers
from tracekit import registry
from tracekit.analysis import Bottleneck, analyze, available
from tracekit.analysis.verdict import judge
from tracekit.cli.collect import command
from tracekit.recording.collect import decide
from tracekit.recording.collector import Request
from tracekit.schema import C, Phase
from tracekit.workloads.base import DOMAINS

if TYPE_CHECKING:
    from tests.shared_runs import SharedRuns
    from tracekit.runs.run import Run

SAMPLES = Path(__file__).parents[2] / "samples"
RECORDED = sorted(path.parent for path in SAMPLES.glob("recorded/*/trace.json.gz"))
REPRESENTATIVE = [
    folder for folder in RECORDED if folder.name in ("mnist_cnn-infer-cpu", "mnist_cnn-train-libtorch-cpu")
]
every_sample = pytest.mark.parametrize("folder", RECORDED, ids=lambda folder: folder.name)

ABSOLUTE = re.compile(r'"(/[\w.-]+/[^"]*|file://[^"]*|[A-Za-z]:\\\\[^"]*)"|/(?:home|root|Users|tmp|work)/')
NAMES = re.compile(r'"(host_?name|user_?name|user|login|node)":', re.IGNORECASE)


def provenance(folder: Path) -> dict[str, Any]:
    reported: dict[str, Any] = json.loads((folder / "provenance.json").read_text())
    return reported


def content(folder: Path) -> str:
    return gzip.decompress((folder / "trace.json.gz").read_bytes()).decode()


def recipe(folder: Path) -> Request:
    """What the folder's name says it was recorded from: NAME-DEVICE."""
    name, _, device = folder.name.rpartition("-")
    return replace(RECIPES[name], device=device)


def request_of(words: list[str]) -> Request:
    """What `tracekit collect` makes of a command line."""
    options = command.make_context("collect", words).params
    asked = {field.name for field in fields(Request)}
    return Request(**{name: value for name, value in options.items() if name in asked})


@pytest.mark.parametrize("domain", DOMAINS)
def test_every_domain_has_a_sample(domain: str) -> None:
    recorded = {provenance(folder)["workload"]["name"] for folder in RECORDED}
    assert domain in {registry.load(registry.WORKLOADS, name).domain for name in recorded}


@every_sample
def test_a_recorded_sample_has_its_provenance(folder: Path) -> None:
    reported, data = provenance(folder), (folder / "trace.json.gz").read_bytes()
    assert len(data) == reported["bytes"] < MAX_BYTES
    assert hashlib.sha256(data).hexdigest() == reported["sha256"]
    assert re.fullmatch("[0-9a-f]{40}", reported["commit"])
    assert reported["dirty"] is False
    assert reported["collector"]["name"] == "torch"
    environment = reported["environment"]
    assert environment["os"]
    assert environment["cpu"]
    assert environment["torch"] == reported["collector"]["version"]
    assert environment["torch"].startswith(environment["packages"]["torch"])
    assert bool(environment["gpus"]) == (reported["workload"]["device"] == "cuda")
    assert all("uuid" not in gpu for gpu in environment["gpus"])
    assert len(reported["step_ns_without_profiler"]) >= reported["workload"]["steps"]


@every_sample
def test_a_sample_is_recorded_again_by_its_command(folder: Path) -> None:
    words = provenance(folder)["command"]
    assert words[:2] == ["tracekit", "collect"]
    assert decide(request_of(words[2:])) == decide(recipe(folder))


@every_sample
def test_a_sample_was_recorded_here_and_names_no_path_host_or_user(folder: Path) -> None:
    logs = [gzip.decompress(path.read_bytes()).decode() for path in folder.glob("*.log.gz")]
    for text in (content(folder), (folder / "provenance.json").read_text(), *logs):
        assert "tracekit_simulated" not in text
        assert not ABSOLUTE.search(text)
        assert not NAMES.search(text)


@pytest.mark.parametrize(
    "text", ['"name": "/srv/me/train.py(3)"', '"a": "x at /home/me"', '"a": "file:///x/y"']
)
def test_a_path_would_be_seen(text: str) -> None:
    assert ABSOLUTE.search(text)


def test_a_host_would_be_seen() -> None:
    assert NAMES.search('"host_name": "box"')


@pytest.mark.parametrize(
    "folder", tiers.thinned(RECORDED, default=REPRESENTATIVE), ids=lambda folder: folder.name
)
def test_a_recorded_sample_answers_every_analysis(folder: Path, shared_runs: SharedRuns) -> None:
    run = shared_runs.of(folder / "trace.json.gz")
    assert not [d for d in run.meta.diagnostics if d.level != "info"]
    for analysis in available():
        result = analyze(run, analysis.name)
        assert result.tables or result.notes
    workload = provenance(folder)["workload"]
    assert run.rows("steps") == workload["steps"]
    _times_are_sane(run)
    assert _phases(run) >= {"train": {Phase.BACKWARD, Phase.OPTIMIZER}, "infer": set()}[workload["mode"]]
    assert (Phase.BACKWARD in _phases(run)) == (workload["mode"] == "train")


BOUNDS = {
    "gemm_fp32": Bottleneck.COMPUTE,
    "elementwise_chain": Bottleneck.COMPUTE,
    "second_stream": Bottleneck.COMPUTE,
    "graph_replay": Bottleneck.COMPUTE,
    "pageable_copy": Bottleneck.COPIES,
    "host_random": Bottleneck.HOST,
    "loader_without_workers": Bottleneck.INPUT,
    "zero_grad_each": Bottleneck.LAUNCH,
    "start_up": Bottleneck.START_UP,
}
"""What each program of `samples.bounds` was built to be bound by."""


@pytest.mark.parametrize("name", tiers.thinned(BOUNDS, default=("host_random", "pageable_copy")))
def test_the_verdict_is_the_bound_that_a_program_was_built_with(name: str, shared_runs: SharedRuns) -> None:
    verdict = judge(shared_runs.of(SAMPLES / "bounds" / f"{name}.json.gz"))
    assert verdict.bound is BOUNDS[name]
    assert ("mostly CPU busy outside launches in aten::normal_" in verdict.sentence) == (
        name == "host_random"
    )


def test_every_program_has_its_recording_and_its_steps() -> None:
    recorded = {path.name.partition(".")[0] for path in (SAMPLES / "bounds").glob("*.json.gz")}
    steps = json.loads((SAMPLES / "bounds" / "steps.json").read_text())
    assert recorded == set(BOUNDS)
    assert set(steps) == recorded - {"start_up"}


EXPORTS = {
    "mnist_cnn-train": {"memcpys": 6, "memsets": 12},
    "graph_replays": {"memcpys": 0, "memsets": 0},
}


@pytest.mark.parametrize("name", EXPORTS)
def test_an_export_of_nsys_is_read_as_recorded(name: str, tmp_path: Path, shared_runs: SharedRuns) -> None:
    export = tmp_path / f"{name}.sqlite"
    export.write_bytes(gzip.decompress((SAMPLES / "nsys" / f"{name}.sqlite.gz").read_bytes()))
    with closing(sqlite3.connect(export)) as database:
        [(kernels, total)] = database.execute(
            'SELECT count(*), sum("end" - start) FROM CUPTI_ACTIVITY_KIND_KERNEL'
        )
    run = shared_runs.of(export)
    whole = analyze(run, "gpu_breakdown").tables["whole"].iloc[0]
    assert (whole["kernels"], whole["kernel_sum_ns"]) == (kernels, total)
    assert {name: whole[name] for name in ("memcpys", "memsets")} == EXPORTS[name]
    assert (judge(run).bound is Bottleneck.UNKNOWN) == (name == "graph_replays")  # whose kernels are missing


def _phases(run: Run) -> set[str]:
    return set(run.arrow("host_intervals", columns=[C.PHASE])[C.PHASE].to_pylist()) - {None}


def _times_are_sane(run: Run) -> None:
    """No op has less time with its children than without; together, on one thread, none has too much."""
    ops = analyze(run, "ops").tables["ops"]
    assert (ops["host_total_ns"] >= ops["host_self_ns"]).all()
    assert (ops["host_self_ns"] > 0).any()
    steps = analyze(run, "steps").tables["steps"]
    assert ops["host_self_ns"].sum() <= (steps["start_ns"] + steps["host_ns"]).max()
    assert ops["host_self_share"].sum() <= 1 + 1e-9
    assert analyze(run, "memory").tables["summary"]["peak_allocated"].max() > 0


def test_the_simulated_sample_is_what_the_simulator_writes() -> None:
    packed = (SAMPLES / "simulated" / "training.json.gz").read_bytes()
    assert gzip.decompress(packed) == trace(training())
