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
    from collections.abc import Callable

OUTSIDE = Path(__file__).parents[1] / "outside"


@pytest.fixture
def tracekit(tmp_path: Path) -> Callable[..., dict[str, Any]]:
    """Runs a command in a process that has the package on its path, and reads its JSON."""
    short = [kernel(start, start + 60, name="short") for start in (0, 210, 280, 350)]
    make_run(tmp_path, device_intervals=[*short, kernel(70, 200, name="long")])
    path = os.pathsep.join([str(OUTSIDE), str(Path(__file__).parents[2])])

    def invoke(*arguments: str) -> dict[str, Any]:
        done = subprocess.run(
            [
                sys.executable,
                "-c",
                "from tracekit.cli.main import main; main()",
                *arguments,
                "--format",
                "json",
            ],
            env={**os.environ, "PYTHONPATH": path, "TRACEKIT_STORE": str(tmp_path)},
            capture_output=True,
            check=True,
        )
        found: dict[str, Any] = json.loads(done.stdout)
        return found

    return invoke


def test_it_is_listed_run_and_ranked_beside_the_built_in_ones(
    tracekit: Callable[..., dict[str, Any]],
) -> None:
    listed = tracekit("analyze", "--list")["analyses"]
    assert listed[-2]["name"] == "longest_kernel"
    assert listed[-2]["rules"] == [
        {
            "code": "one_kernel",
            "states": "a kernel takes at least 20% of the kernel time",
            "why": "an example",
        }
    ]
    result = tracekit("analyze", "latest", "longest_kernel")["results"]["longest_kernel"]
    assert result["tables"] == {"longest": [{"name": "long", "dur_ns": 130}]}
    advice = tracekit("findings", "latest")
    first = advice["findings"][0]
    assert (first["analysis"], first["code"], first["saving_ns_per_step"]) == (
        "longest_kernel",
        "one_kernel",
        130,
    )
    assert advice["verdict"]["bound"] == "compute"
    assert advice["verdict"]["findings"] == ["one_kernel"]  # because of the bound of its rule
