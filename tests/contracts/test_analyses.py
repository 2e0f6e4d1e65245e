"""Every analysis says what it answers, and its results are what its metadata says, on any run."""

from __future__ import annotations

import json
import random
import re
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from pandas.testing import assert_frame_equal

from samples.simulator import Kind, Program, trace, write
from samples.simulator.examples import training
from tests.builders import host, make_run
from tracekit import registry
from tracekit.analysis import analyze, available, compare, get
from tracekit.ingest.importer import import_traces
from tracekit.runs.store import Store

if TYPE_CHECKING:
    from tracekit.runs.run import Run

ANALYSES = Path(__file__).parents[2] / "analyses"
NAMES = registry.names(registry.ANALYSES)
PHYSICAL = {"W", "J", "MHz", "°C"}
UNITS = {
    "",
    "id",
    "ns",
    "bytes",
    "count",
    "share",
    "prose",
    "GB/s",
    "TFLOP/s",
    "FLOP",
    "tokens/s",
    "×",
} | PHYSICAL
each = pytest.mark.parametrize("name", NAMES)


@pytest.fixture(scope="module")
def simulated(tmp_path_factory: pytest.TempPathFactory) -> Run:
    directory = tmp_path_factory.mktemp("simulated")
    program = Program()
    for _ in range(3):
        with program.step(), program.annotation("execute_context_1(64)_generation_2(2)"):
            with program.op("aten::copy_", shapes=[[4], [4]], dtypes=["float", "float"]):
                program.copy("H2D", 4096)
                program.copy("D2H", 4)
            module = program.span(Kind.PYTHON, "nn.Module: ReLU_0")
            with module, program.op("aten::relu", shapes=[[4]], dtypes=["float"]):
                program.allocate(512)
                program.kernel("void relu<4>(float*)", 2_000)
            with program.op("record_param_comms", **{"Collective name": "allreduce", "Group size": 2}):
                program.kernel("ncclDevKernel_AllReduce_Sum_f32_RING_LL", 2_000)
            program.graph([("inside", 1_000), ("inside", 3_000)])
            with program.annotation("Optimizer.zero_grad#SGD.zero_grad"), program.op("aten::zero_"):
                program.kernel("fill", 1_000)
    (run,) = import_traces(Store(directory / "store"), [write(program, directory / "trace.json")])
    return run


def test_all_of_them_load() -> None:
    assert [one.name for one in available()] == sorted(NAMES, key=lambda name: (get(name).order, name))


@each
def test_metadata_is_complete(name: str) -> None:
    one = get(name)
    assert one.name == name
    assert all((one.title, one.question, one.definition, one.sources, one.tables))
    assert (one.compare is None) == (not one.comparison)
    assert set(re.findall(r"\{(\w+)", one.answer)) <= {column.name for column in one.tables[0].columns}
    for rule in one.rules:
        assert all((rule.states, rule.why))
    for spec in (*one.tables, *one.comparison):
        assert spec.title
        assert len({column.name for column in spec.columns}) == len(spec.columns)
        for column in spec.columns:
            assert column.meaning
            assert column.unit in UNITS
            assert (column.unit == "ns") == column.name.endswith("_ns")


@each
def test_module_docstring_gives_definition_and_example(name: str) -> None:
    doc = __import__(f"tracekit.analyses.{name}", fromlist=["x"]).__doc__
    assert "Source" in doc
    assert "Example:" in doc


@pytest.mark.slow_except("h2d_copies", "gpu_breakdown", "idle_gaps", "kernels", "memory", "steps")
@each
def test_results_match_metadata_and_repeat(name: str, simulated: Run) -> None:
    first, second = analyze(simulated, name), analyze(simulated, name)
    assert first.tables
    for table, frame in first.tables.items():
        assert frame.equals(second.tables[table])
        for column in next(spec for spec in get(name).tables if spec.name == table).columns:
            if column.unit in {"ns", "bytes", "count"}:
                assert frame[column.name].dtype.kind in "iu", column.name


def test_no_rule_is_in_two_analyses() -> None:
    codes = [rule.code for name in NAMES for rule in get(name).rules]
    assert len(set(codes)) == len(codes)


@each
def test_a_run_does_not_differ_from_itself(name: str, simulated: Run) -> None:
    if get(name).compare:
        assert compare(simulated, simulated, name).findings == ()


@pytest.fixture(scope="module")
def orders(tmp_path_factory: pytest.TempPathFactory) -> list[Run]:
    """One program whose trace is written in three orders."""
    directory = tmp_path_factory.mktemp("orders")
    document = json.loads(trace(training()))
    runs = []
    for seed in range(3):
        path = directory / str(seed) / "trace.json"
        path.parent.mkdir()
        path.write_text(json.dumps(document))
        runs += import_traces(Store(directory / "store"), [path])
        random.Random(seed).shuffle(document["traceEvents"])
    return runs


@pytest.mark.slow_except("gpu_breakdown", "kernels")
@each
def test_the_order_of_the_events_does_not_matter(name: str, orders: list[Run]) -> None:
    first, *others = (analyze(run, name) for run in orders)
    for other in others:
        assert (other.findings, other.notes) == (first.findings, first.notes)
        assert list(other.tables) == list(first.tables)
        for table, frame in first.tables.items():
            assert_frame_equal(other.tables[table], frame)


@each
def test_an_empty_run_says_what_is_missing(name: str, tmp_path: Path) -> None:
    result = analyze(make_run(tmp_path), name)
    assert result.notes or result.tables


@each
def test_a_run_without_what_an_analysis_reads_gives_it_no_rows(
    name: str, simulated: Run, tmp_path: Path
) -> None:
    assert get(name).finds_input(simulated)
    of_host = make_run(tmp_path, host_intervals=[host("aten::mm", 0, 100)])
    if not get(name).finds_input(of_host):
        assert not any(map(len, analyze(of_host, name).tables.values()))
