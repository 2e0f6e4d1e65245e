"""Findings at source lines, for code scanning and as annotations."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest

from samples.simulator import Program
from tracekit.cli.main import run as tracekit
from tracekit.render.ci import annotate

if TYPE_CHECKING:
    from pathlib import Path

    from tests.shared_runs import SharedRuns


def loading(file: str) -> Program:
    made = Program()
    for _ in range(4):
        with made.step():
            with made.python(f"{file}(12): load"), made.annotation("enumerate(DataLoader)#L.__next__"):
                made.wait(400_000)
            with made.op("aten::mm"):
                for _ in range(2):
                    made.kernel("gemm", 10_000, grid=(4_224, 1, 1))
            made.synchronize()
    return made


@pytest.mark.parametrize(
    ("file", "is_there"), [("train.py", True), ("other.py", False), ("../out.py", False)]
)
def test_a_finding_is_shown_at_the_line_of_a_file_of_the_checkout(
    file: str,
    is_there: bool,
    shared_runs: SharedRuns,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    checkout = tmp_path / "checkout"
    checkout.mkdir()
    monkeypatch.chdir(checkout)
    (checkout / "train.py").touch()
    (tmp_path / "out.py").touch()
    run = str(shared_runs.simulated(loading(file)).path)
    asked = ["findings", run, "idle_gaps", "--store", str(tmp_path / "store"), "--format"]
    assert tracekit([*asked, "sarif"]) == 0
    (content,) = json.loads(capsys.readouterr().out)["runs"]
    places = [result["locations"][0]["physicalLocation"] for result in content["results"]]
    wanted = [{"artifactLocation": {"uri": "train.py"}, "region": {"startLine": 12}}]
    assert places == (wanted if is_there else [])
    assert tracekit([*asked, "github"]) == 0
    place = ",file=train.py,line=12" if is_there else ""
    assert capsys.readouterr().out.startswith(
        f"::warning title=idle_dataload{place}::GPU idle during data loading"
    )


def test_an_annotation_cannot_be_left_by_a_name() -> None:
    text = annotate("notice", "a,b::c", "x\n::error::y", ("a,line=3.py", 1))
    assert text == "::notice title=a%2Cb%3A%3Ac,file=a%2Cline=3.py,line=1::x\\x0a::error::y"
