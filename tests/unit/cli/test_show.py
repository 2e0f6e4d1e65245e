from __future__ import annotations

import csv
import json
from typing import TYPE_CHECKING

import pytest

from tests.runs import make_run
from tracekit.runs.meta import Collector, Diagnostic, Level, Timings

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.unit.cli.conftest import Done
    from tracekit.runs.run import Run
    from tracekit.runs.store import Store


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
    kept = json.loads((run.path / "run.json").read_text())
    del kept["seal"]  # of the file, not of what it says
    assert shown["run"] == kept


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
    assert line.split()[2::2] == ["4", "ms", "ms", "ms", "ms", "ms", "ms"]
    assert line.split()[3::2] == ["2.50", "1.00", "2.00", "4.00", "4.00", "4.00"]


def test_an_unknown_run_exits_2_with_the_next_step(tracekit: Callable[..., Done]) -> None:
    done = tracekit("show", "nothing")
    assert (done.code, done.out) == (2, "")
    assert "list runs with `tracekit runs`" in done.err
    assert done.err.count("\n") == 1


def job_of(store: Store, ranks: int) -> Run:
    sources = [{"name": f"rank{rank}.json", "bytes": 10, "mtime_ns": rank} for rank in range(ranks)]
    noticed = [
        Diagnostic(level, code, f"rank{rank}.json: {what}")
        for rank in range(ranks)
        for level, code, what in (
            (Level.WARN, "cut-short", "the trace ends early"),
            (Level.INFO, "unlinked", f"{rank} of 9 device intervals have no launching call"),
        )
    ]
    collector = Collector("import", "1", {"sources": sources, "depth": 3})
    return make_run(store, collector=collector, diagnostics=noticed)


def test_many_ranks_are_summed_up_for_people_and_listed_in_csv(
    store: Store, tracekit: Callable[..., Done]
) -> None:
    job_of(store, 9)
    text = tracekit("show").out
    facts = dict(
        line.split(maxsplit=1) for line in text.splitlines() if line.startswith(("sources.", "depth"))
    )
    assert facts.pop("sources.details").endswith("`tracekit show RUN --format json`")
    assert facts == {
        "sources.count": "9",
        "sources.first": "rank0.json",
        "sources.last": "rank8.json",
        "sources.bytes": "90",
        "depth": "3",
    }
    assert "9 traces, rank0.json to rank8.json: the trace ends early" in text
    assert "have no launching call; and 8 more of this kind" in " ".join(text.split())
    listed = tracekit("show", "--format", "csv").out
    assert all(f"collector.options.sources.{rank}.name,rank{rank}.json" in listed for rank in range(9))
    assert listed.count("device intervals have no launching call") == 9


def test_a_few_ranks_are_shown_one_by_one(store: Store, tracekit: Callable[..., Done]) -> None:
    job_of(store, 8)
    text = tracekit("show").out
    assert [text.count(f"rank{rank}.json") for rank in range(8)] == [3] * 8
