"""A simulated server of 10,000 steps: phase, requests, tokens and times of every step are exact."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pandas as pd
import pytest
from tracekit.analyses.steps import DIFFERENT

from samples.simulator.planted import serving as planted
from tests.shared_runs import analyze
from tracekit.ingest.link.serving import read_steps
from tracekit.schema import C

if TYPE_CHECKING:
    from collections.abc import Callable

    from samples.simulator.planted.serving import Batch
    from tests.shared_runs import SharedRuns
    from tracekit.runs.run import Run

STEPS = 10_000
BATCHES = planted.schedule(STEPS)


def expected(batch: Batch) -> tuple[Any, ...]:
    prompts, tokens, generating = batch
    phase = "mixed" if prompts and generating else "prefill" if prompts else "decode"
    return phase, prompts + generating, prompts, generating, tokens, generating


@pytest.fixture(scope="module")
def run(shared_runs: SharedRuns) -> Run:
    return shared_runs.simulated(planted.server(BATCHES))


@pytest.fixture(scope="module")
def tables(run: Run) -> dict[str, pd.DataFrame]:
    return analyze(run, "serving").tables


def test_the_schedule_has_all_phases() -> None:
    phases = pd.Series([expected(batch)[0] for batch in BATCHES]).value_counts()
    assert set(phases.index) == {"prefill", "decode", "mixed"}
    assert phases["decode"] > STEPS / 10
    assert phases["mixed"] > STEPS / 10


@pytest.mark.parametrize("name", [planted.vllm, planted.detailed, planted.sglang, planted.tensorrt])
def test_every_step_of_every_engine_is_read(name: Callable[[int, Batch], str]) -> None:
    batches = read_steps([name(number, batch) for number, batch in enumerate(BATCHES)], ())
    assert [
        (
            *(one.phase, one.requests, one.context_requests, one.generation_requests),
            *(one.context_tokens, one.generation_tokens),
        )
        for one in batches
    ] == [expected(batch) for batch in BATCHES]


def test_every_step_is_imported_once(run: Run) -> None:
    steps = run.table("steps")
    assert steps[C.STEP].tolist() == list(range(STEPS))
    assert steps[C.NAME].tolist() == [planted.detailed(number, one) for number, one in enumerate(BATCHES)]
    columns = [C.PHASE, C.REQUESTS, C.CONTEXT_REQUESTS, C.GENERATION_REQUESTS]
    columns += [C.CONTEXT_TOKENS, C.GENERATION_TOKENS]
    assert list(steps[columns].itertuples(index=False, name=None)) == [expected(one) for one in BATCHES]


def test_every_step_has_its_times(tables: dict[str, pd.DataFrame]) -> None:
    """Range, kernel, synchronization: the device works for all of the device window."""
    steps = tables["steps"]
    kernels = [batch.kernel_ns for batch in BATCHES]
    assert steps["device_span_ns"].tolist() == steps["device_busy_ns"].tolist() == kernels
    assert steps["device_idle_ns"].eq(0).all()
    # a kernel starts 5 µs after its call, 2 edges of 500 ns after the start of the range
    assert steps["host_ns"].tolist() == steps["step_ns"].tolist() == [7_000 + one for one in kernels]
    between = planted.SAMPLE_NS + planted.SCHEDULE_NS + planted.SILENT_NS + 2 * 500
    assert pd.isna(steps["between_ns"][0])
    assert steps["between_ns"][1:].eq(between).all()
    assert steps["between_idle_ns"][1:].eq(between).all()


def test_groups_add_up(tables: dict[str, pd.DataFrame]) -> None:
    groups, steps = tables["by_batch"], tables["steps"]
    assert groups["count"].sum() == STEPS
    for row in groups.to_dict("records"):
        own = [
            7_000 + batch.kernel_ns
            for batch in BATCHES
            if expected(batch)[:2] == (row[C.PHASE], row[C.REQUESTS])
        ]
        assert (row["count"], row["sum_ns"]) == (len(own), sum(own))
        assert row["median_ns"] == sorted(own)[(len(own) - 1) // 2]
        assert row["p90_ns"] == sorted(own)[-(-9 * len(own) // 10) - 1]
        assert row["busy_share"] == 1
        if row[C.PHASE] == "decode":
            assert row["per_output_token_ns"] == row["median_ns"]
            assert row["tokens_per_s"] == pytest.approx(row[C.REQUESTS] * len(own) * 1e9 / sum(own))
    *phases, whole = tables["summary"].to_dict("records")
    assert sum(row[C.CONTEXT_TOKENS] for row in phases) == sum(batch.context_tokens for batch in BATCHES)
    assert whole[C.GENERATION_TOKENS] == sum(batch.generation_requests for batch in BATCHES)
    assert whole["sum_ns"] == steps["step_ns"].sum() + steps["between_ns"].sum()


def test_the_host_between_steps_is_named(tables: dict[str, pd.DataFrame]) -> None:
    gaps = STEPS - 1
    found = {row["activity"]: row for row in tables["between"].to_dict("records")}
    assert {name: (row["part"], row["count"], row["sum_ns"]) for name, row in found.items()} == {
        planted.SCHEDULE: ("scheduling", gaps, gaps * planted.SCHEDULE_NS),
        planted.SAMPLE: ("sampling", gaps, gaps * (planted.SAMPLE_NS + 2 * 500)),
        "(not recorded)": ("(not recorded)", 0, gaps * planted.SILENT_NS),
    }
    assert all(row["device_idle_ns"] == row["sum_ns"] for row in found.values())
    parts = tables["between_parts"].to_dict("records")
    assert [row["part"] for row in parts] == ["scheduling", "sampling", "(not recorded)"]
    assert sum(row["share"] for row in parts) == pytest.approx(1)


def test_slow_steps_are_those_that_take_longer_than_similar_ones(
    tables: dict[str, pd.DataFrame], shared_runs: SharedRuns
) -> None:
    assert not tables["steps"]["slow"].any()
    slow = {70, 200, 333}
    run = shared_runs.simulated(planted.server(BATCHES[:400], slow=slow))
    steps = analyze(run, "serving").tables["steps"]
    assert set(steps[steps["slow"].fillna(value=False)][C.STEP]) == slow
    for row in steps[steps["slow"].fillna(value=False)].to_dict("records"):
        assert 0.8 < row["excess_ns"] / BATCHES[row[C.STEP]].kernel_ns < 1.2


def test_steps_of_different_tokens_are_not_called_unsteady(run: Run) -> None:
    result = analyze(run, "steps")
    assert result.findings == ()
    assert DIFFERENT in result.notes
    assert not result.tables["steps"]["warmup_outlier"].any()
