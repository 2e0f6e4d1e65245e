"""A compiled sample: its kernels are joined to source lines, and match however they are named."""

from __future__ import annotations

import gzip
import json
import re
from typing import TYPE_CHECKING

import pytest
from tracekit.analyses.compile import kernels

from tests.golden.test_truth import TRACES
from tests.shared_runs import analyze
from tests.unit.test_samples import SAMPLES
from tracekit.cli.main import run as tracekit
from tracekit.diff import diff
from tracekit.ingest import artifacts
from tracekit.ingest.importer import import_each
from tracekit.runs import kernel_sources
from tracekit.runs.run import Run
from tracekit.runs.store import Store
from tracekit.schema import SEPARATOR, C

if TYPE_CHECKING:
    from pathlib import Path

    from tests.shared_runs import SharedRuns
    from tracekit.diff import Diff

SAMPLE = SAMPLES / "recorded" / "gpt-train-compile-cpu"


def imported(folder: Path, trace: Path, kernels_of: Path | None) -> Run:
    known = artifacts.read(kernels_of) if kernels_of else []
    (run,) = import_each(Store(folder / "store"), [trace], kernels=known)
    assert isinstance(run, Run)
    return run


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Run:
    return imported(tmp_path_factory.mktemp("compiled"), SAMPLE / "trace.json.gz", SAMPLE)


def renamed(folder: Path) -> Path:
    """The sample, had Inductor numbered its kernels and named them otherwise."""
    folder.mkdir()
    texts = {
        name: gzip.decompress((SAMPLE / name).read_bytes()).decode()
        for name in ("trace.json.gz", "torch_trace.log.gz")
    }
    names = sorted(set(re.findall(r"(cpp_fused_\w+) = async_compile", texts["torch_trace.log.gz"])))
    assert names
    for name, text in texts.items():
        for number, one in enumerate(names):
            text = re.sub(rf"graph_\d+_{one}\b", f"graph_9_cpp_fused_x{number}_{number + 7}", text)
            text = re.sub(rf"graph_\d+_{one}_\b", f"graph_9_cpp_fused_x{number}_{number + 7}_", text)
            text = re.sub(rf"\b{one}\b", f"cpp_fused_x{number}_{number + 7}", text)
        (folder / name).write_bytes(gzip.compress(text.encode(), mtime=0))
    return folder


def levels(found: Diff) -> set[str]:
    """The rules by which work was matched."""
    assert found.match is not None
    return {one.name for one in found.match.by_level}


def test_at_least_95_percent_of_compiled_time_is_joined_to_lines(run: Run) -> None:
    rows = kernels.read_calls(run)
    share = kernels.share_with_lines(rows)
    assert share is not None
    assert share >= 0.95
    result = analyze(run, "compile")
    assert kernels.JOINED.format(share=share) in result.notes
    lines = result.tables["lines"]
    assert lines["sum_ns"].sum() == rows[C.DUR_NS].sum()
    assert lines["count"].sum() == len(rows)
    assert lines["share"].sum() == pytest.approx(1)


def test_each_call_of_a_graph_has_the_ops_of_its_code_in_order(run: Run) -> None:
    known = {graph: [*own[C.NAME]] for graph, own in kernel_sources.kernels(run).groupby(C.GRAPH)}
    calls = kernels.read_calls(run).sort_values(C.START_NS).groupby(kernels.CALL)
    assert len(calls) == 4  # forward and backward, in two steps
    for _, own in calls:
        assert [*own[C.NAME]] == known[own[C.GRAPH].iloc[0]]


def test_lines_are_those_of_the_model(run: Run) -> None:
    lines = analyze(run, "compile").tables["lines"]
    files = {
        line.rpartition(":")[0] for text in lines[C.SOURCE_LINES] for line in text.split(SEPARATOR) if line
    }
    assert files == {"tracekit/workloads/gpt.py"}
    source = (SAMPLES.parent / "tracekit/workloads/gpt.py").read_text().splitlines()
    numbers = {
        int(line.rpartition(":")[2])
        for text in lines[C.SOURCE_LINES]
        for line in text.split(SEPARATOR)
        if line
    }
    assert max(numbers) <= len(source)
    assert set(lines[C.KERNEL_BACKEND]) == {"cpp", "extern"}
    assert (lines[C.FUSED_OPS] != "").all()


def test_all_time_of_ops_belongs_to_one_part(run: Run) -> None:
    parts = analyze(run, "compile").tables["producers"].set_index("part")
    assert set(parts.index) == {"compiled", "library", "eager", "wrapper"}
    assert parts["share"].sum() == pytest.approx(1)
    assert parts["compiled_share"].sum() == pytest.approx(1)
    generated = analyze(run, "compile").tables["lines"]
    own = generated.loc[generated[C.KERNEL_BACKEND] == "cpp", "sum_ns"].sum()
    assert parts.loc["compiled", "sum_ns"] == parts.loc["compiled", "in_compiled_ns"] == own


def test_without_artifacts_lines_are_unknown_and_said_to_be(tmp_path: Path) -> None:
    found = analyze(imported(tmp_path, SAMPLE / "trace.json.gz", None), "compile")
    assert set(found.tables["lines"][C.SOURCE_LINES]) == {""}
    assert kernels.UNJOINED in found.notes


@pytest.mark.slow
def test_kernels_of_other_names_and_equal_source_are_no_difference(run: Run, tmp_path: Path) -> None:
    folder = renamed(tmp_path / "renamed")
    other = imported(tmp_path, folder / "trace.json.gz", folder)
    found = diff([run], [other])
    assert found.groups == ()
    assert found.work is not None
    assert found.work.a_ns == found.work.b_ns
    assert levels(found) == {"hash"}


@pytest.mark.slow
def test_without_sources_kernels_of_other_names_are_not_matched_by_them(tmp_path: Path) -> None:
    folder = renamed(tmp_path / "renamed")
    plain = imported(tmp_path / "plain", SAMPLE / "trace.json.gz", None)
    unknown = diff([plain], [imported(tmp_path / "other", folder / "trace.json.gz", None)])
    assert levels(unknown) > {"hash"}


def test_the_command_imports_artifacts_or_says_what_is_missing(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    command = [
        "import",
        str(SAMPLE / "trace.json.gz"),
        "--store",
        str(tmp_path / "store"),
        "--compile-artifacts",
    ]
    assert tracekit([*command, str(SAMPLE)]) == 0
    (found,) = Store(tmp_path / "store").runs()
    assert found.rows("compiled_kernels") == 53
    capsys.readouterr()
    assert tracekit([*command, str(tmp_path)]) == 2
    assert "holds no code generated by Inductor" in capsys.readouterr().err
    assert len([*Store(tmp_path / "store").runs()]) == 1


@pytest.mark.skipif(not TRACES.is_dir(), reason=f"no recorded traces at {TRACES}")
def test_kernels_of_a_gpu_are_those_of_the_events(shared_runs: SharedRuns) -> None:
    path = TRACES / "KellerJordan__modded-nanogpt/h100_h2dprefetch_rank0.json.gz"
    events = [
        one for one in json.loads(gzip.decompress(path.read_bytes()))["traceEvents"] if one["ph"] == "X"
    ]
    triton = {one["args"]["External id"] for one in events if "kernel_backend" in one.get("args", {})}
    ran = [one for one in events if one.get("cat") == "kernel"]
    generated = [one for one in ran if one["args"].get("External id") in triton]
    assert generated
    run = shared_runs.of(path)
    result = analyze(run, "compile")
    parts = result.tables["producers"].set_index("part")["count"]
    assert parts["compiled"] == len(generated)
    device = run.table("device_intervals", columns=[C.KIND, C.NAME, C.STEP])
    stepped = device[(device[C.KIND] == "kernel") & device[C.STEP].notna()]
    assert parts["communication"] == sum("nccl" in name.lower() for name in stepped[C.NAME].astype(str))
    assert parts.sum() == len(stepped)
    hashes = {one["args"]["kernel_hash"] for one in events if "kernel_hash" in one.get("args", {})}
    known = result.tables["lines"]["source"]
    assert set(known[known != ""]) == hashes
    tuned = {one["args"].get("kernel_kwargs", "") for one in events if "kernel_hash" in one.get("args", {})}
    assert set(result.tables["lines"][C.KERNEL_KWARGS]) == tuned


@pytest.mark.skipif(not TRACES.is_dir(), reason=f"no recorded traces at {TRACES}")
def test_artifacts_of_another_program_are_joined_to_nothing(tmp_path: Path) -> None:
    path = TRACES / "KellerJordan__modded-nanogpt/h100_h2dprefetch_rank0.json.gz"
    run = imported(tmp_path, path, SAMPLE)
    assert kernels.share_with_lines(kernels.read_calls(run)) == 0
