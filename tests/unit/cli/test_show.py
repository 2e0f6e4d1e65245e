from __future__ import annotations

import csv
import json
from typing import TYPE_CHECKING

import pytest

from tests.runs import make_run
from tracekit.meta import Diagnostic, Level, Timings

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.unit.cli.conftest import Done
    from tracekit.run import Run
    from tracekit.store import Store


@pytest.fixture
def run(store: Store) -> Run:
    return make_run(
        store,
        label="mine",
        workload={"name": "resnet50", "batch_size": 8},
        environment={"os": "Linux", "gpus": [{"index": 0, "name": "GPU \x1b[31m"}]},
        timings=Timings([3_000_000, 1_000_000, 2_000_000], [], "perf_counter"),
        diagnostics=[Diagnostic(Level.WARN, "cut-short", "the trace ends early")],
    )


def test_json_is_the_content_of_run_json(run: Run, tracekit: Callable[..., Done]) -> None:
    done = tracekit("show", run.id, "--format", "json")
    shown = json.loads(done.out)
    assert (done.code, shown["schema"]) == (0, "tracekit.show/1")
    assert shown["run"] == json.loads((run.path / "run.json").read_text())


def test_csv_names_every_fact(run: Run, tracekit: Callable[..., Done]) -> None:
    rows = csv.DictReader(tracekit("show", "mine", "--format", "csv").out.splitlines())
    facts = {row["name"]: row["value"] for row in rows}
    assert facts["run_id"] == run.id
    assert facts["tables.steps.rows"] == "2"
    assert facts["environment.gpus.0.index"] == "0"


@pytest.mark.parametrize("output_format", ["table", "markdown"])
def test_people_see_every_section(run: Run, tracekit: Callable[..., Done], output_format: str) -> None:
    text = tracekit("show", "--format", output_format).out.replace("\\", "")
    for expected in (run.id, "batch_size", "steps (perf_counter)", "2.00 ms", "cut-short", "Linux"):
        assert expected in text
    assert "\x1b" not in text


def test_a_median_is_a_time_that_occurred_as_in_the_analyses(
    store: Store, tracekit: Callable[..., Done]
) -> None:
    make_run(store, timings=Timings([4_000_000, 1_000_000, 3_000_000, 2_000_000], [], "perf_counter"))
    (line,) = [line for line in tracekit("show").out.splitlines() if line.startswith("steps (perf_counter)")]
    assert line.split()[2:] == ["4", "1.00", "ms", "2.00", "ms", "4.00", "ms"]


def test_an_unknown_run_exits_2_with_the_next_step(tracekit: Callable[..., Done]) -> None:
    done = tracekit("show", "nothing")
    assert (done.code, done.out) == (2, "")
    assert "`tracekit runs` lists" in done.err
    assert done.err.count("\n") == 1
