"""`tracekit bisect --signature` over commits of a workload that is a plug-in of the repository."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tracekit.cli.main import run
from tracekit.runs.store import Store

if TYPE_CHECKING:
    from tests.conftest import Git

WORKLOAD = """
import time

from tracekit.workloads.base import Workload

FILLS, SECONDS = {fills}, {seconds}


class Program:
    def __init__(self):
        import torch

        self.tensor = torch.ones(8)

    def step(self):
        for _ in range(FILLS):
            self.tensor.fill_(2.0)
        time.sleep(SECONDS)
        return self.tensor.sum()


PLANTED = Workload(
    name="planted", domain="other", summary="fills a tensor", parameters=0, modes=("train", "infer"),
    levels=("eager",), dtypes=("float32",), defaults={{"batch_size": 1, "resolution": 1}},
    smallest_resolution=1, build=lambda options: Program(),
)
"""


PROGRAM = ["tracekit", "collect", "--workload", "planted", "--device", "cpu", "--steps", "2"]


def commit_workload(git: Git, fills: int, *, seconds: float = 0) -> str:
    info = Path("planted-1.0.dist-info")
    info.mkdir(exist_ok=True)
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: planted\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text("[tracekit.workloads]\nplanted = planted:PLANTED\n")
    Path("planted.py").write_text(WORKLOAD.format(fills=fills, seconds=seconds))
    git("add", ".")
    git("commit", "--quiet", "--allow-empty", f"--message=fills {fills} times")
    return git("rev-parse", "HEAD")


@pytest.mark.slow
def test_one_run_per_commit_names_the_commit_with_more_fills(
    git: Git, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    pytest.importorskip("torch")
    shas = [commit_workload(git, fills) for fills in (1, 1, 1, 161, 161)]
    place = tmp_path / "store"
    words = [
        "bisect",
        f"{shas[0]}..",
        "--signature",
        "aten::fill_",
        "--store",
        str(place),
        "--format",
        "json",
    ]
    assert run([*words, "--", *PROGRAM]) == 0
    found = json.loads(capsys.readouterr().out)
    (culprit,) = found["culprits"]
    assert (culprit["at"]["key"], culprit["before"]["key"]) == (shas[3], shas[2])
    assert (culprit["effect"], found["measured"]) == (160.0, 4)
    kept = {one.meta.git.sha for one in Store(place).readable() if one.meta.git}
    assert kept == {shas[0], shas[2], shas[3], shas[4]}
    assert culprit["commands"][0] == f"tracekit diff {shas[2][:12]}..{shas[3][:12]} --store {place}"
    assert run(["diff", f"{shas[2][:12]}..{shas[3][:12]}", "--store", str(place), "--format", "json"]) == 0


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_without_options_the_count_that_differs_is_searched_and_its_commit_timed(
    git: Git, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    pytest.importorskip("torch")
    shas = [commit_workload(git, fills, seconds=fills / 2_000) for fills in (1, 1, 161)]
    words = ["bisect", f"{shas[0]}..", "--reps", "2", "--warmup", "0", "--store", str(tmp_path / "store")]
    assert run([*words, "--format", "json", "--", *PROGRAM]) == 0
    found = json.loads(capsys.readouterr().out)
    metric, (culprit,) = found["metric"], found["culprits"]
    assert (metric["name"], metric["exact"], found["asked"]["name"]) == ("ops", True, "step_time")
    assert (culprit["at"]["key"], culprit["effect"], found["measured"]) == (shas[2], 160.0, 9)
    assert culprit["asked"]["low"] > 1
