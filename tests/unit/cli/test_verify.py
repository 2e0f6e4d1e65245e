from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest

from tests.runs import make_run

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from tests.unit.cli.conftest import Done
    from tracekit.runs.store import Store


def test_whole_runs_are_told_and_the_code_is_0(store: Store, tracekit: Callable[..., Done]) -> None:
    runs = [make_run(store, after_s=second) for second in range(2)]
    done = tracekit("verify")
    assert (done.code, done.err) == (0, "tracekit: 2 runs OK\n")
    assert [run.path.name in done.out for run in runs] == [True, True]


def test_damage_is_told_on_stdout_and_the_code_is_2(store: Store, tracekit: Callable[..., Done]) -> None:
    whole, damaged = (make_run(store, after_s=second) for second in range(2))
    (damaged.path / "steps.parquet").unlink()
    done = tracekit("verify", "--format", "json")
    reported = json.loads(done.out)
    assert reported["schema"] == "tracekit.verify/1"
    assert [(row["run"], row["state"], row["damage"], row["table"]) for row in reported["runs"]] == [
        (whole.path.name, "whole", None, None),
        (damaged.path.name, "damaged", "missing", "steps"),
    ]
    assert done.code == 2
    assert done.err.startswith(f"tracekit: 1 of 2 runs damaged: {damaged.path.name}; ")
    assert done.err.count("\n") == 1


def test_only_the_named_runs_are_checked(store: Store, tracekit: Callable[..., Done]) -> None:
    whole, damaged = (make_run(store, after_s=second) for second in range(2))
    (damaged.path / "steps.parquet").unlink()
    assert tracekit("verify", whole.id).code == 0
    assert tracekit("verify", "latest", str(damaged.path), whole.id).err.startswith("tracekit: 1 of 2 runs")


def test_a_folder_that_should_be_a_run_is_not_passed_over(
    store: Store, tracekit: Callable[..., Done]
) -> None:
    run = make_run(store)
    (run.path / "run.json").unlink()
    done = tracekit("verify")
    assert done.code == 2
    assert "metadata" in done.out


def test_a_quick_look_says_that_it_was_one(store: Store, tracekit: Callable[..., Done]) -> None:
    run = make_run(store)
    file = run.path / "steps.parquet"
    content = bytearray(file.read_bytes())
    content[20] ^= 1
    file.write_bytes(content)
    assert tracekit("verify", "--quick").err == "tracekit: 1 run OK (quick check)\n"
    assert tracekit("verify").code == 2


@pytest.mark.parametrize("output_format", ["table", "json", "csv", "markdown"])
def test_an_empty_store_is_no_damage(
    output_format: str, tracekit: Callable[..., Done], tmp_path: Path
) -> None:
    done = tracekit("verify", "--format", output_format)
    assert done.code == 0
    assert "no runs in" in done.err


def test_an_analysis_of_a_damaged_run_names_verify(store: Store, tracekit: Callable[..., Done]) -> None:
    run = make_run(store)
    file = run.path / "steps.parquet"
    file.write_bytes(file.read_bytes()[:30])
    done = tracekit("analyze", run.id, "steps")
    assert done.code == 2
    assert f"tracekit verify {run.id}" in done.err
    assert done.err.count("\n") == 1
