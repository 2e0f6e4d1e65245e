"""`tracekit sample` copies traces that are those of the repository's samples and of its simulator."""

from __future__ import annotations

import gzip
import json
from pathlib import Path

from click.testing import CliRunner

from samples.simulator import write
from samples.simulator.planted import memory_ranks
from samples.simulator.planted.regressions import program, synchronizing_bound_checks
from samples.simulator.planted.serving import schedule, server, vllm
from tracekit.cli.main import cli
from tracekit.cli.sample import FOLDER, SAMPLES
from tracekit.errors import UnusableInputError

RECORDED = Path(__file__).parents[3] / "samples"


def test_samples_are_those_of_the_repository() -> None:
    recipe = "recorded/gpt-train-compile-cuda"
    twins = {
        "loader": "bounds/loader_without_workers.json.gz",
        "training": "simulated/training.json.gz",
        "compiled/trace": f"{recipe}/trace.json.gz",
    }
    for name, twin in twins.items():
        assert (FOLDER / f"{name}.json.gz").read_bytes() == (RECORDED / twin).read_bytes()
    log = gzip.decompress((RECORDED / recipe / "torch_trace.log.gz").read_bytes())
    assert (FOLDER / "compiled/torch_trace.log").read_bytes() == log


def test_simulated_samples_are_what_the_simulator_writes(tmp_path: Path) -> None:
    change = synchronizing_bound_checks()
    programs = {
        "before": program(change.base),
        "after": program(change.head),
        "server": server(schedule(400), vllm),
    }
    for rank, one in enumerate(memory_ranks.job(ranks=2, late=1)):
        programs[f"job/rank{rank}"] = one
    for name, one in programs.items():
        written = write(one, tmp_path / "trace.json").read_bytes()
        assert gzip.decompress((FOLDER / f"{name}.json.gz").read_bytes()) == written, name


def test_all_are_listed_and_can_be_copied(tmp_path: Path, monkeypatch) -> None:
    monkeypatch.chdir(tmp_path)
    listed = CliRunner().invoke(cli, ["sample", "--format", "json"])
    rows = json.loads(listed.stdout)["samples"]
    assert [row["name"] for row in rows] == list(SAMPLES)
    for row in rows:
        path = CliRunner().invoke(cli, ["sample", row["name"]]).stdout.strip()
        files = [Path(path)] if Path(path).is_file() else list(Path(path).iterdir())
        assert sum(file.stat().st_size for file in files) == row["size"]


def test_existing_files_are_kept(tmp_path: Path) -> None:
    target = tmp_path / "mine.json.gz"
    target.write_text("mine")
    refused = CliRunner().invoke(cli, ["sample", "training", str(target)])
    assert isinstance(refused.exception, UnusableInputError)
    assert target.read_text() == "mine"
