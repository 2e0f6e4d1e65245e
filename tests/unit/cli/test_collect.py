from __future__ import annotations

import json
from typing import TYPE_CHECKING

from tracekit.cli.main import run

if TYPE_CHECKING:
    import pytest


def test_extra_arguments_are_a_usage_error(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["collect", "--workload", "mnist_cnn", "--", "python", "train.py"]) == 2
    assert "unexpected arguments: python train.py" in " ".join(capsys.readouterr().err.split())


def test_a_level_that_is_not_offered_names_those_that_are(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["collect", "--workload", "mnist_cnn", "--level", "compile"]) == 2
    assert capsys.readouterr().err == "tracekit: mnist_cnn has no level 'compile'; use --level eager\n"


def test_workloads_say_what_they_take(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["workloads", "--format", "json"]) == 0
    listed = json.loads(capsys.readouterr().out)
    assert listed["schema"] == "tracekit.workloads/1"
    resnet50 = next(one for one in listed["workloads"] if one["name"] == "resnet50")
    assert resnet50["parameters"] == 25_557_032
    assert resnet50["modes"] == ["train", "infer"]
    assert resnet50["levels"] == ["eager"]
