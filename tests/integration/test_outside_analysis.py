"""A package outside of tracekit brings an analysis through its entry point, as the built-in ones do."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from tests.builders import kernel, make_run

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

OUTSIDE = Path(__file__).parents[1] / "outside"
COMMANDS = """
import contextlib, io, json, sys
from tracekit.cli.main import run
found = []
for words in json.loads(sys.argv[1]):
    with contextlib.redirect_stdout(io.StringIO()) as out:
        assert run(words) == 0
    found.append(json.loads(out.getvalue()))
print(json.dumps(found))
"""


@pytest.fixture
def tracekit(tmp_path: Path) -> Callable[..., list[dict[str, Any]]]:
    """Runs commands in one process that has the package on its path, and reads the JSON of each."""
    short = [kernel(start, start + 60, name="short") for start in (0, 210, 280, 350)]
    make_run(tmp_path, device_intervals=[*short, kernel(70, 200, name="long")])
    path = os.pathsep.join([str(OUTSIDE), str(Path(__file__).parents[2])])

    def invoke(*commands: Sequence[str]) -> list[dict[str, Any]]:
        done = subprocess.run(
            [
                sys.executable,
                "-c",
                COMMANDS,
                json.dumps([[*words, "--format", "json"] for words in commands]),
            ],
            env={**os.environ, "PYTHONPATH": path, "TRACEKIT_STORE": str(tmp_path)},
            capture_output=True,
            check=True,
        )
        found: list[dict[str, Any]] = json.loads(done.stdout)
        return found

    return invoke


@pytest.fixture
def answers(tracekit: Callable[..., list[dict[str, Any]]]) -> list[dict[str, Any]]:
    """The list of analyses, the result of the package's own, and the findings of all."""
    return tracekit(["analyze", "--list"], ["analyze", "latest", "longest_kernel"], ["findings", "latest"])


def test_it_is_listed_run_and_ranked_beside_the_built_in_ones(answers: list[dict[str, Any]]) -> None:
    known, analyzed, advice = answers
    listed = known["analyses"]
    assert listed[-2]["name"] == "longest_kernel"
    assert listed[-2]["rules"] == [
        {
            "code": "one_kernel",
            "states": "a kernel takes at least 20% of the kernel time",
            "why": "an example",
        }
    ]
    result = analyzed["results"]["longest_kernel"]
    assert result["tables"] == {"longest": [{"name": "long", "dur_ns": 130}]}
    first = advice["findings"][0]
    assert (first["analysis"], first["code"], first["saving_ns_per_step"]) == (
        "longest_kernel",
        "one_kernel",
        130,
    )
    assert advice["verdict"]["bound"] == "compute"
    assert advice["verdict"]["findings"] == ["one_kernel"]  # because of the bound of its rule
